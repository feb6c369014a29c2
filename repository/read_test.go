package repository_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

func dispatches(offered []dispatch.Offered) []dispatch.Dispatch {
	return Collect(offered, func(o dispatch.Offered) dispatch.Dispatch { return o.Dispatch })
}

func TestListByStatus(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0].ID
		status := func(s dispatch.Status) func(*dispatch.Dispatch) {
			return func(d *dispatch.Dispatch) { d.Status = s }
		}
		window := func(opens, expires time.Duration) func(*dispatch.Dispatch) {
			return func(d *dispatch.Dispatch) {
				d.OpensAt, d.ExpiresAt = d.CreatedAt.Add(opens), d.CreatedAt.Add(expires)
			}
		}
		want := map[dispatch.Status][]dispatch.ID{
			dispatch.Scheduled:  {db.Add(t, window(time.Hour, 2*time.Hour)).ID},
			dispatch.Pending:    {db.Add(t, nil).ID, db.Add(t, window(0, time.Hour)).ID},
			dispatch.Expired:    {db.Add(t, window(-2*time.Hour, -time.Hour)).ID, db.Add(t, status(dispatch.Expired)).ID, db.Add(t, window(-time.Hour, 0)).ID},
			dispatch.Accepted:   {db.MustAccept(t, db.Add(t, nil).ID, v).ID},
			dispatch.InProgress: {db.Add(t, status(dispatch.InProgress)).ID},
			dispatch.Completed:  {db.Add(t, status(dispatch.Completed)).ID},
			dispatch.Canceled:   {db.Add(t, status(dispatch.Canceled)).ID},
		}
		total := 0
		for status, ids := range want {
			total += len(ids)
			slices.Reverse(ids)
			if got := db.ListIDs(t, dispatch.Query{Status: status}); !slices.Equal(got, ids) {
				t.Errorf("%s: got %v, want %v", status, got, ids)
			}
			for _, id := range ids {
				if got := db.MustRead(t, id); got.Status != status {
					t.Errorf("%s is %s in the list and %s by itself", id, status, got.Status)
				}
			}
		}
		everything := db.Listed(t, 100, dispatch.Query{})
		if len(everything) != total {
			t.Errorf("%d dispatches, want %d", len(everything), total)
		}
		for _, d := range everything {
			if !slices.Contains(want[d.Status], d.ID) {
				t.Errorf("%s is %s in the list of all", d.ID, d.Status)
			}
			if stored := db.MustRead(t, d.ID); !reflect.DeepEqual(stored, d) {
				t.Errorf("listed\n%+v, stored\n%+v", d, stored)
			}
		}
		testkit.Equal(t, "the driver's own", want[dispatch.Accepted], db.ListIDs(t, dispatch.Query{Driver: v}))
	})
}

func TestPagesHaveNoGaps(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0]
		var want []dispatch.ID
		for range 12 {
			want = append(want, db.Add(t, nil).ID)
		}
		sets := map[string]string{
			"times of their own": "version = version",
			"the same time":      "created_at = 5, opens_at = 5",
			"before 1970":        "created_at = -5, opens_at = -5",
		}
		slices.Reverse(want)
		for name, set := range sets {
			db.Exec(t, "UPDATE dispatches SET "+set)
			for _, limit := range []int{1, 3, 4, 12, 13} {
				if got := Ids(db.Listed(t, limit, dispatch.Query{})); !slices.Equal(got, want) {
					t.Errorf("List, %s, %d a page: got %v, want %v", name, limit, got, want)
				}
				offered := All(t, limit, func(p dispatch.Page) ([]dispatch.Offered, string, error) {
					return db.OpenDispatchesFor(t.Context(), v, p)
				})
				if got := Ids(dispatches(offered)); !slices.Equal(got, want) {
					t.Errorf("OpenDispatchesFor, %s, %d a page: got %v, want %v", name, limit, got, want)
				}
			}
		}
		db.Exec(t, "UPDATE dispatches SET status = 'COMPLETED', accepted_by = ?, claim_id = 'clm_x', accepted_at = 7", v.ID)
		testkit.Equal(t, "the driver's own", want, db.ListIDs(t, dispatch.Query{Driver: v.ID, Status: dispatch.Completed}))
	})
}

func TestBadCursors(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0]
		db.Add(t, nil)
		for _, c := range []string{
			"x", "=", "äö", "AAAAAAAAAAA", "null", "' OR 1 = 1 --",
			base64.RawURLEncoding.EncodeToString([]byte("d12345678")),
			base64.RawURLEncoding.EncodeToString([]byte("o12345678")),
			base64.RawURLEncoding.EncodeToString([]byte("d12345678drv_0123456789abcdefghijklmnop")),
			base64.RawURLEncoding.EncodeToString([]byte("o12345678drv_0123456789abcdefghijklmnop")),
			base64.RawURLEncoding.EncodeToString([]byte("12345678drv_0123456789abcdefghijklmnop")),
			base64.StdEncoding.EncodeToString([]byte("12345678dsp_0123456789abcdefghijklmnop??")),
			database.Cursor(database.DispatchList, 0, "dsp_\x00"), database.Cursor(database.DispatchList, 0, "dsp_한국"),
		} {
			page := dispatch.Page{Limit: 1, Cursor: c}
			MustBeError(t, "List, "+c, ErrorOfPage(db.Dispatches.List(t.Context(), dispatch.Query{Page: page})), dispatch.ErrBadCursor)
			MustBeError(t, "OpenDispatchesFor, "+c, ErrorOfPage(db.OpenDispatchesFor(t.Context(), v, page)), dispatch.ErrBadCursor)
		}
	})
}

// A cursor is valid for its own list only, with any filter.
func TestCursorsOfOtherLists(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0]
		d := db.Add(t, nil)
		ctx, push := t.Context(), dispatch.NewNotificationID(time.Now())
		dispatches := func(q dispatch.Query) func(dispatch.Page) error {
			return func(p dispatch.Page) error { q.Page = p; return ErrorOfPage(db.Dispatches.List(ctx, q)) }
		}
		lists := map[string]struct {
			cursor string
			read   func(dispatch.Page) error
		}{
			"dispatches":           {database.Cursor(database.DispatchList, 0, d.ID), dispatches(dispatch.Query{})},
			"by status":            {database.Cursor(database.DispatchList, 0, d.ID), dispatches(dispatch.Query{Status: dispatch.Expired, Region: "seoul"})},
			"jobs":                 {database.Cursor(database.DriverDispatchList, 1, d.ID), dispatches(dispatch.Query{Driver: v.ID})},
			"offers":               {database.Cursor(database.OpenList, 1, d.ID), func(p dispatch.Page) error { return ErrorOfPage(db.OpenDispatchesFor(ctx, v, p)) }},
			"taps":                 {database.Cursor(database.AttemptList, 0, dispatch.NewAttemptID(time.Now())), func(p dispatch.Page) error { return ErrorOfPage(db.Attempts(ctx, d.ID, 0, p)) }},
			"offers of a dispatch": {database.Cursor(database.ContactList, 1, v.ID), func(p dispatch.Page) error { return ErrorOfPage(db.Offers.Offers(ctx, d.ID, 0, p)) }},
			"notifications": {database.Cursor(database.NotificationOfDispatch, 1, push), func(p dispatch.Page) error {
				return ErrorOfPage(db.Notifications.Notifications(ctx, d.ID, p))
			}},
			"all notifications": {database.Cursor(database.NotificationList, 1, push), func(p dispatch.Page) error {
				return ErrorOfPage(db.NotificationsBy(ctx, outbox.Dead, p))
			}},
			"events": {database.Cursor(database.EventList, 0, "evt_00000000000000000000000000"), func(p dispatch.Page) error { return ErrorOfPage(db.Events(ctx, d.ID, p)) }},
			"runs": {database.Cursor(database.RunList, 1, Report), func(p dispatch.Page) error {
				return ErrorOfPage(db.Runs.Runs(ctx, Report, p))
			}},
			"keys":    {database.Cursor(database.KeyList, 0, "key_first"), func(p dispatch.Page) error { return ErrorOfPage(db.Keys.Keys(ctx, p)) }},
			"devices": {database.Cursor(database.DeviceList, 0, "dev_0"), func(p dispatch.Page) error { return ErrorOfPage(db.Devices.Devices(ctx, v.ID, p)) }},
			"drivers": {database.Cursor(database.DriverList, 0, v.ID), func(p dispatch.Page) error {
				return ErrorOfPage(db.Drivers.Drivers(ctx, dispatch.DriverQuery{Page: p}))
			}},
			"audit": {database.Cursor(database.AuditList, 0, "aud_0"), func(p dispatch.Page) error {
				return ErrorOfPage(db.Audit(ctx, dispatch.AuditQuery{Page: p}))
			}},
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
	Each(t, func(t *testing.T, db *Bench) {
		var offers []dispatch.Dispatch
		for _, region := range []string{"seoul", "jeju"} {
			for _, class := range []string{"scissor", "boom"} {
				for _, height := range []*float64{nil, new(0.0), new(16.0), new(16.5)} {
					offers = append(offers, db.Add(t, func(d *dispatch.Dispatch) {
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
					if err != nil || next != "" || !slices.Equal(Ids(dispatches(got)), want) {
						h := "no height"
						if height != nil {
							h = fmt.Sprint(*height)
						}
						t.Errorf("%v %s %s: got %v, %v; want %v", regions, class, h, Ids(dispatches(got)), err, want)
					}
				}
			}
		}
	})
}

func TestOpenDispatchesForOmitsEndedOffers(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 2)
		open := db.Add(t, nil)
		soon := db.Add(t, func(d *dispatch.Dispatch) {
			d.OpensAt, d.ExpiresAt = d.CreatedAt.Add(time.Hour), d.CreatedAt.Add(2*time.Hour)
		})
		db.Add(t, func(d *dispatch.Dispatch) { d.ExpiresAt = d.CreatedAt })
		db.MustAccept(t, db.Add(t, nil).ID, drivers[1].ID)
		for _, s := range []dispatch.Status{dispatch.Canceled, dispatch.Expired, dispatch.Completed, dispatch.InProgress} {
			db.Add(t, func(d *dispatch.Dispatch) { d.Status = s })
		}
		got, _, err := db.OpenDispatchesFor(t.Context(), drivers[0], dispatch.Page{Limit: 10})
		if err != nil || !slices.Equal(Ids(dispatches(got)), []dispatch.ID{soon.ID, open.ID}) {
			t.Errorf("got %v, %v; want %v and %v", Ids(dispatches(got)), err, soon.ID, open.ID)
		}
	})
}
