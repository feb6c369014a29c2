package repository

import (
	"reflect"
	"testing"
	"time"

	"firsttap/dispatch"
)

func TestEventsInPages(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		db.add(t, nil)
		ctx := dispatch.WithCaller(t.Context(), dispatch.Caller{Actor: "key_1", Request: "req_1"})
		for v := 1; v <= 5; v++ {
			_, err := db.Update(ctx, d.ID, extended(v))
			must(t, err)
		}
		events, next, err := db.Events(t.Context(), d.ID, dispatch.Page{Limit: 6})
		if err != nil || next != "" || len(events) != 6 || events[0].Type != dispatch.EventCreated || events[5].Type != dispatch.EventUpdated {
			t.Fatalf("%+v, %q, %v", events, next, err)
		}
		if events[5].Request != "req_1" || events[5].ReasonCode != dispatch.ReasonExtended || events[0].Request != "" {
			t.Errorf("%+v", events)
		}
		paged := all(t, 2, func(p dispatch.Page) ([]dispatch.Event, string, error) { return db.Events(t.Context(), d.ID, p) })
		if !reflect.DeepEqual(paged, events) {
			t.Errorf("in pages\n%+v, at once\n%+v", paged, events)
		}
		mustBeError(t, "of no dispatch", errorOf(db.Events(t.Context(), dispatch.NewID(time.Now()), dispatch.Page{Limit: 1})), dispatch.ErrNotFound)
		for _, bad := range []string{"x", "AAAA", "====", "ZXZ0Xw"} {
			mustBeError(t, bad, errorOf(db.Events(t.Context(), d.ID, dispatch.Page{Limit: 1, Cursor: bad})), dispatch.ErrBadCursor)
		}
	})
}
