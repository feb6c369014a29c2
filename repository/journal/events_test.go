package journal_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

func TestEventsAreAnnouncedOnceAfterCommit(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		var h Heard
		h.Listen(t, db)
		v := db.Fleet(t, 2)
		d := db.Add(t, nil)
		d2 := db.MustAccept(t, d.ID, v[0].ID)
		db.MustAccept(t, d.ID, v[0].ID) // again
		if _, err := db.Accept(t.Context(), d.ID, v[1].ID); err == nil {
			t.Error("taken twice")
		}
		d3 := db.MustUpdate(t, d.ID, Withdraw)
		db.MustUpdate(t, d.ID, func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error) { return nil, nil })
		var claimed, canceled, created error
		db.WithoutColumn(t, "events", "claim", func() {
			_, claimed = db.Accept(t.Context(), d.ID, v[1].ID)
			_, canceled = db.Update(t.Context(), d.ID, Cancel)
			_, created = db.Create(t.Context(), Offering(""))
		})
		if claimed == nil || canceled == nil || created == nil {
			t.Errorf("without a column of events: %v, %v, %v", claimed, canceled, created)
		}
		want := []dispatch.EventType{
			dispatch.EventCreated, dispatch.EventAccepted, dispatch.EventWithdrawn, dispatch.EventReopened,
		}
		if !slices.Equal(h.Types(), want) {
			t.Errorf("announced %v, want %v", h.Types(), want)
		}
		if !slices.Equal(h.Stored, []int{1, 1, 1, 1}) {
			t.Errorf("announced before the COMMIT: %v", h.Stored)
		}
		if !reflect.DeepEqual(h.About, []dispatch.Dispatch{d, d2, d3}) {
			t.Errorf("announced with %+v, want %+v", h.About, []dispatch.Dispatch{d, d2, d3})
		}
	})
}

func TestBornLeasedOrDueAtOnce(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		// Another process, which announces its own commits.
		teller := db.With(t, func(o *repository.Options) { o.OutboxOwner, o.OutboxLease = "ins_a", Term })
		var h Heard
		h.Listen(t, teller)
		v := db.Fleet(t, 1)[0]
		d := teller.Add(t, nil)
		teller.MustAccept(t, d.ID, v.ID)
		teller.MustUpdate(t, d.ID, Cancel)

		if leased, err := db.As("ins_b").LeaseEvents(t.Context(), 10); err != nil || len(leased) > 0 {
			t.Errorf("another instance leased %v, %v", leased, err)
		}
		for i, e := range h.Events {
			testkit.Equal(t, "the lease of a new event", EventLease{Claim: "ins_a", NextAt: database.Micros(e.At.Add(Term))}, db.LeaseOf(t, e.ID))
			if told, err := teller.As("ins_a").ExpandFully(t.Context(), e.ID, 10); err != nil || told.Event != e {
				t.Errorf("%d: expanded %+v, %v; want %+v", i, told.Event, err, e)
			}
		}
		if len(h.Events) != 3 {
			t.Errorf("announced %v", h.Types())
		}

		d = db.Add(t, nil)
		leased, err := db.As("ins_b").LeaseEvents(t.Context(), 10)
		if err != nil || len(leased) != 1 || db.Count(t, "events WHERE id = ? AND dispatch_id = ?", leased[0], d.ID) != 1 {
			t.Errorf("without a teller: leased %v, %v", leased, err)
		}
	})
}

func TestEventsInPages(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d := db.Add(t, nil)
		db.Add(t, nil)
		ctx := dispatch.WithCaller(t.Context(), dispatch.Caller{Actor: "key_1", Request: "req_1"})
		for v := 1; v <= 5; v++ {
			Must(t, ErrorOf(db.Update(ctx, d.ID, Extended(v))))
		}
		events, next, err := db.Events(t.Context(), d.ID, dispatch.Page{Limit: 6})
		if err != nil || next != "" || len(events) != 6 || events[0].Type != dispatch.EventCreated || events[5].Type != dispatch.EventUpdated {
			t.Fatalf("%+v, %q, %v", events, next, err)
		}
		if events[5].Request != "req_1" || events[5].ReasonCode != dispatch.ReasonExtended || events[0].Request != "" {
			t.Errorf("%+v", events)
		}
		paged := All(t, 2, func(p dispatch.Page) ([]dispatch.Event, string, error) { return db.Events(t.Context(), d.ID, p) })
		if !reflect.DeepEqual(paged, events) {
			t.Errorf("in pages\n%+v, at once\n%+v", paged, events)
		}
		MustBeError(t, "of no dispatch", ErrorOfPage(db.Events(t.Context(), dispatch.NewID(time.Now()), dispatch.Page{Limit: 1})), dispatch.ErrNotFound)
		for _, bad := range []string{"x", "AAAA", "====", "ZXZ0Xw"} {
			MustBeError(t, bad, ErrorOfPage(db.Events(t.Context(), d.ID, dispatch.Page{Limit: 1, Cursor: bad})), dispatch.ErrBadCursor)
		}
	})
}
