package repository

import (
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/testkit"
)

// all is the whole of a list, page by page.
func all[T any](t *testing.T, limit int, next func(dispatch.Page) ([]T, string, error)) (items []T) {
	t.Helper()
	page := dispatch.Page{Limit: limit}
	for range 1000 {
		got, cursor, err := next(page)
		must(t, err)
		if len(got) > limit || cursor != "" && len(got) != limit {
			t.Fatalf("a page of %d with the cursor %q, the limit is %d", len(got), cursor, limit)
		}
		items = append(items, got...)
		if cursor == "" {
			return items
		}
		page.Cursor = cursor
	}
	t.Fatal("the list has no end")
	return nil
}

// listed is the whole of a list, so many dispatches a page.
func (db *database) listed(t *testing.T, limit int, q dispatch.Query) []dispatch.Dispatch {
	t.Helper()
	return all(t, limit, func(p dispatch.Page) ([]dispatch.Dispatch, string, error) {
		q.Page = p
		return db.List(t.Context(), q)
	})
}

func (db *database) list(t *testing.T, q dispatch.Query) []dispatch.ID {
	t.Helper()
	return ids(db.listed(t, 3, q))
}

func ids(items []dispatch.Dispatch) []dispatch.ID {
	return collect(items, func(d dispatch.Dispatch) dispatch.ID { return d.ID })
}

func dispatches(offered []dispatch.Offered) []dispatch.Dispatch {
	return collect(offered, func(o dispatch.Offered) dispatch.Dispatch { return o.Dispatch })
}

func TestListByStatus(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 1)[0].ID
		status := func(s dispatch.Status) func(*dispatch.Dispatch) {
			return func(d *dispatch.Dispatch) { d.Status = s }
		}
		window := func(opens, expires time.Duration) func(*dispatch.Dispatch) {
			return func(d *dispatch.Dispatch) {
				d.OpensAt, d.ExpiresAt = d.CreatedAt.Add(opens), d.CreatedAt.Add(expires)
			}
		}
		want := map[dispatch.Status][]dispatch.ID{
			dispatch.Scheduled:  {db.add(t, window(time.Hour, 2*time.Hour)).ID},
			dispatch.Pending:    {db.add(t, nil).ID, db.add(t, window(0, time.Hour)).ID},
			dispatch.Expired:    {db.add(t, window(-2*time.Hour, -time.Hour)).ID, db.add(t, status(dispatch.Expired)).ID, db.add(t, window(-time.Hour, 0)).ID},
			dispatch.Accepted:   {db.mustAccept(t, db.add(t, nil).ID, v).ID},
			dispatch.InProgress: {db.add(t, status(dispatch.InProgress)).ID},
			dispatch.Completed:  {db.add(t, status(dispatch.Completed)).ID},
			dispatch.Canceled:   {db.add(t, status(dispatch.Canceled)).ID},
		}
		total := 0
		for status, ids := range want {
			total += len(ids)
			slices.Reverse(ids)
			if got := db.list(t, dispatch.Query{Status: status}); !slices.Equal(got, ids) {
				t.Errorf("%s: got %v, want %v", status, got, ids)
			}
			for _, id := range ids {
				if got := db.mustRead(t, id); got.Status != status {
					t.Errorf("%s is %s in the list and %s by itself", id, status, got.Status)
				}
			}
		}
		everything := db.listed(t, 100, dispatch.Query{})
		if len(everything) != total {
			t.Errorf("%d dispatches, want %d", len(everything), total)
		}
		for _, d := range everything {
			if !slices.Contains(want[d.Status], d.ID) {
				t.Errorf("%s is %s in the list of all", d.ID, d.Status)
			}
			if stored := db.mustRead(t, d.ID); !reflect.DeepEqual(stored, d) {
				t.Errorf("listed\n%+v, stored\n%+v", d, stored)
			}
		}
		testkit.Equal(t, "the driver's own", want[dispatch.Accepted], db.list(t, dispatch.Query{Driver: v}))
	})
}

func TestPagesHaveNoGaps(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 1)[0]
		var want []dispatch.ID
		for range 12 {
			want = append(want, db.add(t, nil).ID)
		}
		sets := map[string]string{
			"times of their own": "version = version",
			"the same time":      "created_at = 5, opens_at = 5",
			"before 1970":        "created_at = -5, opens_at = -5",
		}
		slices.Reverse(want)
		for name, set := range sets {
			db.exec(t, "UPDATE dispatches SET "+set)
			for _, limit := range []int{1, 3, 4, 12, 13} {
				if got := ids(db.listed(t, limit, dispatch.Query{})); !slices.Equal(got, want) {
					t.Errorf("List, %s, %d a page: got %v, want %v", name, limit, got, want)
				}
				offered := all(t, limit, func(p dispatch.Page) ([]dispatch.Offered, string, error) {
					return db.OpenDispatchesFor(t.Context(), v, p)
				})
				if got := ids(dispatches(offered)); !slices.Equal(got, want) {
					t.Errorf("OpenDispatchesFor, %s, %d a page: got %v, want %v", name, limit, got, want)
				}
			}
		}
		db.exec(t, "UPDATE dispatches SET status = 'COMPLETED', accepted_by = ?, claim_id = 'clm_x', accepted_at = 7", v.ID)
		testkit.Equal(t, "the driver's own", want, db.list(t, dispatch.Query{Driver: v.ID, Status: dispatch.Completed}))
	})
}

func TestBadCursors(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 1)[0]
		db.add(t, nil)
		for _, c := range []string{
			"x", "=", "äö", "AAAAAAAAAAA", "null", "' OR 1 = 1 --",
			base64.RawURLEncoding.EncodeToString([]byte("d12345678")),
			base64.RawURLEncoding.EncodeToString([]byte("o12345678")),
			base64.RawURLEncoding.EncodeToString([]byte("d12345678drv_0123456789abcdefghijklmnop")),
			base64.RawURLEncoding.EncodeToString([]byte("o12345678drv_0123456789abcdefghijklmnop")),
			base64.RawURLEncoding.EncodeToString([]byte("12345678drv_0123456789abcdefghijklmnop")),
			base64.StdEncoding.EncodeToString([]byte("12345678dsp_0123456789abcdefghijklmnop??")),
		} {
			page := dispatch.Page{Limit: 1, Cursor: c}
			mustBeError(t, "List, "+c, errorOfPage(db.List(t.Context(), dispatch.Query{Page: page})), dispatch.ErrBadCursor)
			mustBeError(t, "OpenDispatchesFor, "+c, errorOfPage(db.OpenDispatchesFor(t.Context(), v, page)), dispatch.ErrBadCursor)
		}
	})
}

// errorOfPage and cursorOf leave out the rest of a page, or of two other results.

func errorOfPage[T, U any](_ T, _ U, err error) error { return err }

func cursorOf[T any](_ []T, next string, err error) (string, error) { return next, err }

// A cursor is valid for its own list only, with any filter.
func TestCursorsOfOtherLists(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 1)[0]
		d := db.add(t, nil)
		ctx, push := t.Context(), dispatch.NewNotificationID(time.Now())
		dispatches := func(q dispatch.Query) func(dispatch.Page) error {
			return func(p dispatch.Page) error { q.Page = p; return errorOfPage(db.List(ctx, q)) }
		}
		lists := map[string]struct {
			cursor string
			read   func(dispatch.Page) error
		}{
			"dispatches":           {cursor(dispatchList, 0, d.ID), dispatches(dispatch.Query{})},
			"by status":            {cursor(dispatchList, 0, d.ID), dispatches(dispatch.Query{Status: dispatch.Expired, Region: "seoul"})},
			"jobs":                 {cursor(driverDispatchList, 1, d.ID), dispatches(dispatch.Query{Driver: v.ID})},
			"offers":               {cursor(openList, 1, d.ID), func(p dispatch.Page) error { return errorOfPage(db.OpenDispatchesFor(ctx, v, p)) }},
			"taps":                 {cursor(attemptList, 0, dispatch.NewAttemptID(time.Now())), func(p dispatch.Page) error { return errorOfPage(db.Attempts(ctx, d.ID, 0, p)) }},
			"offers of a dispatch": {cursor(contactList, 1, v.ID), func(p dispatch.Page) error { return errorOfPage(db.Offers(ctx, d.ID, 0, p)) }},
			"notifications":        {cursor(notificationOfDispatch, 1, push), func(p dispatch.Page) error { return errorOfPage(db.Notifications(ctx, d.ID, p)) }},
			"all notifications":    {cursor(notificationList, 1, push), func(p dispatch.Page) error { return errorOfPage(db.NotificationsBy(ctx, outbox.Dead, p)) }},
			"events":               {cursor(eventList, 0, "evt_00000000000000000000000000"), func(p dispatch.Page) error { return errorOfPage(db.Events(ctx, d.ID, p)) }},
			"runs":                 {cursor(runList, 1, report), func(p dispatch.Page) error { return errorOfPage(db.Runs(ctx, report, p)) }},
			"keys":                 {cursor(keyList, 0, "key_first"), func(p dispatch.Page) error { return errorOfPage(db.Keys(ctx, p)) }},
			"devices":              {cursor(deviceList, 0, "dev_0"), func(p dispatch.Page) error { return errorOfPage(db.Devices(ctx, v.ID, p)) }},
			"drivers":              {cursor(driverList, 0, v.ID), func(p dispatch.Page) error { return errorOfPage(db.Drivers(ctx, dispatch.DriverQuery{Page: p})) }},
			"audit":                {cursor(auditList, 0, "aud_0"), func(p dispatch.Page) error { return errorOfPage(db.Audit(ctx, dispatch.AuditQuery{Page: p})) }},
		}
		for name, list := range lists {
			for of, other := range lists {
				err := list.read(dispatch.Page{Limit: 1, Cursor: other.cursor})
				if mine := other.cursor == list.cursor; mine && err != nil || !mine && !errors.Is(err, dispatch.ErrBadCursor) {
					t.Errorf("%s with the cursor of %s: %v", name, of, err)
				}
			}
		}
	})
}

// OpenDispatchesFor returns the dispatches whose terms the driver matches, by a condition in SQL.
func TestOpenDispatchesForMatchesTerms(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		var offers []dispatch.Dispatch
		for _, region := range []string{"seoul", "jeju"} {
			for _, class := range []string{"scissor", "boom"} {
				for _, height := range []*float64{nil, new(0.0), new(16.0), new(16.5)} {
					offers = append(offers, db.add(t, func(d *dispatch.Dispatch) {
						d.Region, d.VehicleClass, d.MinWorkingHeightM = region, class, height
					}))
				}
			}
		}
		for _, regions := range [][]string{nil, {"seoul"}, {"seoul", "jeju"}} {
			for _, class := range []string{"scissor", "boom", "SCISSOR"} {
				for _, height := range []*float64{nil, new(12.0), new(16.0), new(20.0)} {
					// Neither duty nor a suspension matters here.
					v := dispatch.Driver{Regions: regions, VehicleClass: class, WorkingHeightM: height, SuspendedUntil: new(time.Now().Add(time.Hour))}
					var want []dispatch.ID
					for _, d := range slices.Backward(offers) {
						if v.MatchesTerms(d.Terms) {
							want = append(want, d.ID)
						}
					}
					got, next, err := db.OpenDispatchesFor(t.Context(), v, dispatch.Page{Limit: 100})
					if err != nil || next != "" || !slices.Equal(ids(dispatches(got)), want) {
						h := "no height"
						if height != nil {
							h = fmt.Sprint(*height)
						}
						t.Errorf("%v %s %s: got %v, %v; want %v", regions, class, h, ids(dispatches(got)), err, want)
					}
				}
			}
		}
	})
}

func TestOpenDispatchesForOmitsEndedOffers(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 2)
		open := db.add(t, nil)
		soon := db.add(t, func(d *dispatch.Dispatch) {
			d.OpensAt, d.ExpiresAt = d.CreatedAt.Add(time.Hour), d.CreatedAt.Add(2*time.Hour)
		})
		db.add(t, func(d *dispatch.Dispatch) { d.ExpiresAt = d.CreatedAt })
		db.mustAccept(t, db.add(t, nil).ID, drivers[1].ID)
		for _, s := range []dispatch.Status{dispatch.Canceled, dispatch.Expired, dispatch.Completed, dispatch.InProgress} {
			db.add(t, func(d *dispatch.Dispatch) { d.Status = s })
		}
		got, _, err := db.OpenDispatchesFor(t.Context(), drivers[0], dispatch.Page{Limit: 10})
		if err != nil || !slices.Equal(ids(dispatches(got)), []dispatch.ID{soon.ID, open.ID}) {
			t.Errorf("got %v, %v; want %v and %v", ids(dispatches(got)), err, soon.ID, open.ID)
		}
	})
}
