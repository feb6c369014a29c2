package repository

import (
	"errors"
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
		for _, edit := range []func(*dispatch.Dispatch){fill, nil, zero} {
			d := db.add(t, edit)
			db.mustStore(t, d)
			db.mustCount(t, 1, "events e JOIN outbox o ON o.event_id = e.id WHERE e.dispatch_id = ?", d.ID)
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

// offering is a dispatch that is open for an hour from now.
func offering(externalID string) func(time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
	return func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
		w := dispatch.Window{OpensAt: now, ExpiresAt: now.Add(time.Hour)}
		d, events := dispatch.New(dispatch.NewID(now), externalID, someTerms(now), w, dispatch.System, now)
		return d, events, nil
	}
}

func TestDuplicateExternalID(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		create := func(externalID string) error { _, err := db.Create(t.Context(), offering(externalID)); return err }
		var created atomic.Int32
		testkit.Together(8, func(int) {
			if err := create("ERP-1"); err == nil {
				created.Add(1)
			} else {
				mustBeError(t, "the same identifier", err, dispatch.ErrDuplicateExternalID)
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
		mustBeError(t, "the rule's error", err, no)
		_, err = db.Create(t.Context(), func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
			d, events, err := offering("")(now)
			return d, append(events, events...), err
		})
		mustBeError(t, "the same event twice", err, dispatch.ErrUnavailable)
		db.mustCount(t, 0, "dispatches")
		db.mustHold(t, 0, dispatch.EventCreated, 0)
		_, err = db.Dispatch(t.Context(), dispatch.NewID(time.Now()))
		mustBeError(t, "an unknown dispatch", err, dispatch.ErrNotFound)
	})
}
