package repository

import (
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

// heard keeps the events that a Store announces.
type heard struct {
	mu     sync.Mutex
	about  []dispatch.Dispatch
	events []dispatch.Event
	stored []int // how many of the events were in the database when they were announced
}

func (h *heard) listen(t testing.TB, db *database) {
	db.options.OnCommit = func(d dispatch.Dispatch, events []dispatch.Event) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.about, h.events = append(h.about, d), append(h.events, events...)
		for _, e := range events {
			h.stored = append(h.stored, db.count(t, "events WHERE id = ?", e.ID))
		}
	}
}

func (h *heard) types() (types []dispatch.EventType) {
	for _, e := range h.events {
		types = append(types, e.Type)
	}
	return types
}

func TestEventsAreAnnouncedOnceAfterCommit(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		var h heard
		h.listen(t, db)
		v := db.drivers(t, 2)
		d := db.add(t, nil)
		d2 := db.mustAccept(t, d.ID, v[0].ID)
		db.mustAccept(t, d.ID, v[0].ID) // again
		if _, err := db.accept(t.Context(), d.ID, v[1].ID); err == nil {
			t.Error("taken twice")
		}
		d3 := db.mustUpdate(t, d.ID, withdraw)
		db.mustUpdate(t, d.ID, func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error) { return nil, nil })
		var claimed, canceled, created error
		db.withoutColumn(t, "events", "claim", func() {
			_, claimed = db.accept(t.Context(), d.ID, v[1].ID)
			_, canceled = db.Update(t.Context(), d.ID, cancel)
			_, created = db.Create(t.Context(), offering(""))
		})
		if claimed == nil || canceled == nil || created == nil {
			t.Errorf("without a column of events: %v, %v, %v", claimed, canceled, created)
		}
		want := []dispatch.EventType{
			dispatch.EventCreated, dispatch.EventAccepted, dispatch.EventWithdrawn, dispatch.EventReopened,
		}
		if !slices.Equal(h.types(), want) {
			t.Errorf("announced %v, want %v", h.types(), want)
		}
		if !slices.Equal(h.stored, []int{1, 1, 1, 1}) {
			t.Errorf("announced before the COMMIT: %v", h.stored)
		}
		if !reflect.DeepEqual(h.about, []dispatch.Dispatch{d, d2, d3}) {
			t.Errorf("announced with %+v, want %+v", h.about, []dispatch.Dispatch{d, d2, d3})
		}
	})
}

func TestBornLeasedOrDueAtOnce(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		// Another process, which announces its own commits.
		teller := db.by(open(t, db.url))
		teller.options.OutboxOwner, teller.options.OutboxLease = "ins_a", term
		var h heard
		h.listen(t, teller)
		v := db.drivers(t, 1)[0]
		d := teller.add(t, nil)
		teller.mustAccept(t, d.ID, v.ID)
		teller.mustUpdate(t, d.ID, cancel)

		if leased, err := db.as("ins_b").LeaseEvents(t.Context(), 10); err != nil || len(leased) > 0 {
			t.Errorf("another instance leased %v, %v", leased, err)
		}
		for i, e := range h.events {
			testkit.Equal(t, "the lease of a new event", eventLease{"ins_a", micros(e.At.Add(term))}, db.leaseOf(t, e.ID))
			if told, err := teller.as("ins_a").expandFully(t.Context(), e.ID, 10); err != nil || told.Event != e {
				t.Errorf("%d: expanded %+v, %v; want %+v", i, told.Event, err, e)
			}
		}
		if len(h.events) != 3 {
			t.Errorf("announced %v", h.types())
		}

		d = db.add(t, nil)
		leased, err := db.as("ins_b").LeaseEvents(t.Context(), 10)
		if err != nil || len(leased) != 1 || db.count(t, "events WHERE id = ? AND dispatch_id = ?", leased[0], d.ID) != 1 {
			t.Errorf("without a teller: leased %v, %v", leased, err)
		}
	})
}

func TestEventsInPages(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		db.add(t, nil)
		ctx := dispatch.WithCaller(t.Context(), dispatch.Caller{Actor: "key_1", Request: "req_1"})
		for v := 1; v <= 5; v++ {
			must(t, errorOf(db.Update(ctx, d.ID, extended(v))))
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
		mustBeError(t, "of no dispatch", errorOfPage(db.Events(t.Context(), dispatch.NewID(time.Now()), dispatch.Page{Limit: 1})), dispatch.ErrNotFound)
		for _, bad := range []string{"x", "AAAA", "====", "ZXZ0Xw"} {
			mustBeError(t, bad, errorOfPage(db.Events(t.Context(), d.ID, dispatch.Page{Limit: 1, Cursor: bad})), dispatch.ErrBadCursor)
		}
	})
}
