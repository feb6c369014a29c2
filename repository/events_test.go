package repository

import (
	"errors"
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
			if _, err := db.Update(ctx, d.ID, extended(v)); err != nil {
				t.Fatal(err)
			}
		}
		all, next, err := db.Events(t.Context(), d.ID, dispatch.Page{Limit: 6})
		if err != nil || next != "" || len(all) != 6 || all[0].Type != dispatch.EventCreated || all[5].Type != dispatch.EventUpdated {
			t.Fatalf("%+v, %q, %v", all, next, err)
		}
		if all[5].Request != "req_1" || all[5].ReasonCode != dispatch.ReasonExtended || all[0].Request != "" {
			t.Errorf("%+v", all)
		}
		var paged []dispatch.Event
		cursor := ""
		for {
			part, next, err := db.Events(t.Context(), d.ID, dispatch.Page{Limit: 2, Cursor: cursor})
			if err != nil || len(part) != 2 {
				t.Fatalf("%+v, %v", part, err)
			}
			paged = append(paged, part...)
			if cursor = next; next == "" {
				break
			}
		}
		if !reflect.DeepEqual(paged, all) {
			t.Errorf("in pages\n%+v, at once\n%+v", paged, all)
		}
		if _, _, err := db.Events(t.Context(), dispatch.NewID(time.Now()), dispatch.Page{Limit: 1}); !errors.Is(err, dispatch.ErrNotFound) {
			t.Errorf("of no dispatch: %v", err)
		}
		for _, bad := range []string{"x", "AAAA", "====", "ZXZ0Xw"} {
			if _, _, err := db.Events(t.Context(), d.ID, dispatch.Page{Limit: 1, Cursor: bad}); !errors.Is(err, dispatch.ErrBadCursor) {
				t.Errorf("%q: %v", bad, err)
			}
		}
	})
}
