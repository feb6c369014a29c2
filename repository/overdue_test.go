package repository

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

var overdue = clockworks[2]

// mustSkip fails the test if c changes a dispatch that is due but for what happens to it.
func (c clockwork) mustSkip(t *testing.T, db *database, name string, happens func(dispatch.ID)) {
	t.Helper()
	id := c.ready(t, db, 1)[0]
	happens(id)
	before := db.mustRead(t, id)
	if n, err := c.run(t.Context(), db.Store, 10); n != 0 || err != nil {
		t.Errorf("%s: %d, %v", name, n, err)
	}
	if got := db.mustRead(t, id); got.Version != before.Version {
		t.Errorf("%s: %+v", name, got)
	}
}

// Overdue work that never began is canceled, and overdue work that began is completed.
func TestCloseOverdue(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		ids := overdue.ready(t, db, 2)
		db.mustUpdate(t, ids[1], start)
		overdue.mustChange(t, db.Store, 10, 2)
		for i, want := range []struct {
			status  dispatch.Status
			outcome dispatch.Outcome
			event   dispatch.EventType
			version int
		}{
			{dispatch.Canceled, dispatch.OutcomeCanceled, dispatch.EventCanceled, 3},
			{dispatch.Completed, dispatch.OutcomeWon, dispatch.EventCompleted, 4},
		} {
			d := db.mustRead(t, ids[i])
			if d.Status != want.status || d.Version != want.version || d.Claim == nil {
				t.Fatalf("the dispatch is %+v", d)
			}
			past, err := db.NewestClaim(t.Context(), d.ID, d.Claim.Driver)
			if err != nil || past.Outcome != want.outcome || (past.EndedAt != nil) != (want.outcome != dispatch.OutcomeWon) {
				t.Errorf("the claim is %+v, %v", past, err)
			}
			trail := db.trail(t, d.ID)
			if last := fmt.Sprintf("%s 1 %s system OVERDUE", want.event, d.Claim.Driver); trail[len(trail)-1] != last {
				t.Errorf("the trail is %q, want it to end with %s", trail, last)
			}
		}
		overdue.mustChange(t, db.Store, 10, 0)
	})
}

func TestDispatchesThatAreNotOverdue(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		update := func(set string, args ...any) func(dispatch.ID) {
			return func(id dispatch.ID) { db.exec(t, "UPDATE dispatches SET "+set+" WHERE id = ?", append(args, id)...) }
		}
		for name, happens := range map[string]func(dispatch.ID){
			"still under way":       update("work_ends_at = ?", micros(db.now(t).Add(time.Hour))),
			"over for not so long":  func(id dispatch.ID) { db.worksIn(t, id, -overdueAfter-time.Hour+testkit.Patience) },
			"completed":             update("status = 'COMPLETED'"),
			"canceled":              update("status = 'CANCELED'"),
			"expired":               update("status = 'EXPIRED'"),
			"never taken":           update("status = 'PENDING'"),
			"of the day after next": func(id dispatch.ID) { db.worksIn(t, id, 48*time.Hour) },
		} {
			overdue.mustSkip(t, db, name, happens)
		}
		overdue.ready(t, db, 1)
		overdue.mustChange(t, db.Store, 1, 1) // none of the others takes its place in the batch
	})
}

// Closing overdue work at night sends no push.
func TestOverdueIsNotPushed(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		ids := overdue.ready(t, db, 2)
		others := db.equipped(t, 3)
		for _, id := range ids {
			d := db.mustRead(t, id)
			db.device(t, d.Claim.Driver, nil)
			db.notifications(t, d, 3, func(i int, n *notificationRow) {
				toDevices(others)(i, n)
				n.State = stateDone
			})
		}
		db.mustUpdate(t, ids[1], start)
		overdue.mustChange(t, db.Store, 10, 2)
		offers := db.count(t, "notifications")
		for _, event := range []dispatch.EventType{dispatch.EventCanceled, dispatch.EventCompleted} {
			told := db.as("ins_a").mustExpand(t, db, event, 10)
			if len(told.Pushes)+told.Unleased != 0 || told.Event.ReasonCode != dispatch.ReasonOverdue {
				t.Errorf("%+v", told)
			}
		}
		db.mustCount(t, offers, "notifications")
	})
}

func TestChangedBeforeItIsClosed(t *testing.T) {
	overdue.mustLeave(t,
		moves{name: "completed", set: "status = 'COMPLETED'"},
		moves{name: "canceled", set: "status = 'CANCELED'"},
		moves{name: "longer work", set: "work_ends_at = 4000000000000000"},
		moves{name: "withdrawn", set: "status = 'PENDING', round = round + 1, claim_id = NULL, accepted_by = NULL, accepted_at = NULL"},
	)
}

// The driver completes the work while it is closed: it ends once.
func TestClosedAndCompleted(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		for range 5 {
			id := overdue.ready(t, db, 1)[0]
			d := db.mustUpdate(t, id, start)
			testkit.Together(2, func(k int) {
				var err error
				if k == 0 {
					_, err = db.CloseOverdue(t.Context(), overdueAfter, 10)
				} else {
					_, err = db.Update(t.Context(), id, complete)
				}
				if err != nil {
					t.Error(err)
				}
			})
			if got := db.mustRead(t, id); got.Status != dispatch.Completed || got.Version != d.Version+1 {
				t.Errorf("%+v", got)
			}
			if trail := db.trail(t, id); len(slices.DeleteFunc(trail, func(e string) bool { return e[:18] != "dispatch.completed" })) != 1 {
				t.Errorf("the trail is %q", trail)
			}
		}
	})
}
