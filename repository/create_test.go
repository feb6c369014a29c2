package repository

import (
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

// fill gives every optional field of a dispatch a value, with whatever may get lost on the way.
func fill(d *dispatch.Dispatch) {
	d.ExternalID = "ERP/4711 한국"
	d.MinWorkingHeightM = new(16.05)
	d.Site = dispatch.Site{Address: "서울 중구 세종대로 110 \\ 'a' \"b\" 🏗", Lat: new(37.56655555555555), Lng: new(-126.97796666666667)}
	d.Fee = dispatch.Money{Amount: 1<<62 + 1, Currency: "JPY"}
	d.Note = "line\nline\ttab %_!? \x00"
	d.WorkStartsAt = time.Date(2100, 2, 28, 23, 59, 59, 999_999_000, time.UTC)
	d.WorkEndsAt = time.Date(2101, 2, 28, 0, 0, 0, 1_000, time.UTC)
}

func TestCreateRoundTrip(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		zero := func(d *dispatch.Dispatch) {
			d.MinWorkingHeightM, d.Site.Lat, d.Site.Lng = new(0.0), new(0.0), new(0.0)
			d.Fee, d.Note, d.ExternalID = dispatch.Money{Currency: "KRW"}, "", ""
			d.WorkStartsAt, d.WorkEndsAt = time.UnixMicro(0).UTC(), time.UnixMicro(-1).UTC()
		}
		for name, edit := range map[string]func(*dispatch.Dispatch){"full": fill, "bare": nil, "zero": zero} {
			d := db.add(t, edit)
			if got := db.mustRead(t, d.ID); !reflect.DeepEqual(got, d) {
				t.Errorf("%s: got\n%+v, want\n%+v", name, got, d)
			}
			if n := db.count(t, "events e JOIN outbox o ON o.event_id = e.id WHERE e.dispatch_id = ?", d.ID); n != 1 {
				t.Errorf("%s: %d events", name, n)
			}
		}
	})
}

func TestCreateIsByTheDatabasesClock(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		before := time.Now()
		d := db.add(t, nil)
		// The server runs on this machine: its clock is ours.
		if d.CreatedAt.Before(before.Truncate(time.Microsecond)) || d.CreatedAt.After(time.Now()) {
			t.Errorf("created at %v, asked at %v", d.CreatedAt, before)
		}
		if d.CreatedAt.Location() != time.UTC {
			t.Errorf("in %v", d.CreatedAt.Location())
		}
	})
}

func TestDuplicateExternalID(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		create := func(externalID string) error {
			_, err := db.Create(t.Context(), func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
				w := dispatch.Window{OpensAt: now, ExpiresAt: now.Add(time.Hour)}
				d, events := dispatch.New(dispatch.NewID(now), externalID, someTerms(now), w, dispatch.System, now)
				return d, events, nil
			})
			return err
		}
		var created atomic.Int32
		testkit.Together(8, func(int) {
			switch err := create("ERP-1"); {
			case err == nil:
				created.Add(1)
			case !errors.Is(err, dispatch.ErrDuplicateExternalID) || errors.Is(err, dispatch.ErrUnavailable):
				t.Errorf("got %v, want %v", err, dispatch.ErrDuplicateExternalID)
			}
		})
		if created.Load() != 1 {
			t.Errorf("created %d times", created.Load())
		}
		for _, other := range []string{"erp-1", "ERP-10", "", ""} {
			if err := create(other); err != nil {
				t.Errorf("%q: %v", other, err)
			}
		}
		db.mustHold(t, 0, dispatch.EventCreated, 5)
	})
}

func TestCreateThatFails(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		no := errors.New("no")
		_, err := db.Create(t.Context(), func(time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
			return dispatch.Dispatch{}, nil, no
		})
		if !errors.Is(err, no) {
			t.Errorf("got %v, want %v", err, no)
		}
		_, err = db.Create(t.Context(), func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
			w := dispatch.Window{OpensAt: now, ExpiresAt: now.Add(time.Hour)}
			d, events := dispatch.New(dispatch.NewID(now), "", someTerms(now), w, dispatch.System, now)
			return d, append(events, events...), nil
		})
		if !errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("got %v, want %v", err, dispatch.ErrUnavailable)
		}
		if n := db.count(t, "dispatches"); n != 0 {
			t.Errorf("%d dispatches", n)
		}
		db.mustHold(t, 0, dispatch.EventCreated, 0)
		if _, err := db.Dispatch(t.Context(), dispatch.NewID(time.Now())); !errors.Is(err, dispatch.ErrNotFound) {
			t.Errorf("got %v, want %v", err, dispatch.ErrNotFound)
		}
	})
}
