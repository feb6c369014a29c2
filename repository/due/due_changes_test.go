package due_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

var expiry = Clockworks[0]

func TestAnOfferEnds(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d, stands := db.Add(t, nil), db.Add(t, nil)
		db.Pass(t, d.ID)
		expiry.MustChange(t, db.Store, 10, 1)
		got := db.MustRead(t, d.ID)
		if got.Status != dispatch.Expired || got.Version != d.Version+1 || got.Round != d.Round || !got.UpdatedAt.After(d.UpdatedAt) {
			t.Errorf("the dispatch is %+v, was %+v", got, d)
		}
		db.MustCount(t, 1, "dispatches WHERE status = 'EXPIRED'")
		want := []string{"dispatch.created 1 - system ", "dispatch.expired 1 - system "}
		testkit.Equal(t, "the trail", want, db.Trail(t, d.ID))
		if got := db.MustRead(t, stands.ID); got.Version != stands.Version || got.Status != dispatch.Pending {
			t.Errorf("the one that stands is %+v", got)
		}
	})
}

func TestOffersThatDoNotExpire(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0]
		for name, happens := range map[string]func(dispatch.ID){
			"accepted": func(id dispatch.ID) { db.MustAccept(t, id, v.ID); db.Pass(t, id) },
			"canceled": func(id dispatch.ID) { db.MustUpdate(t, id, Cancel); db.Pass(t, id) },
			"about to pass": func(id dispatch.ID) {
				db.Exec(t, "UPDATE dispatches SET expires_at = ? WHERE id = ?", database.Micros(db.Now(t).Add(time.Minute)), id)
			},
			"written already": func(id dispatch.ID) {
				db.Pass(t, id)
				db.Exec(t, "UPDATE dispatches SET status = 'EXPIRED' WHERE id = ?", id)
			},
		} {
			expiry.MustSkip(t, db, name, db.Add(t, nil).ID, happens)
		}
		expiry.Ready(t, db, 1)
		expiry.MustChange(t, db.Store, 1, 1) // none of the others takes its place in the batch
	})
}

func TestChangedBeforeItExpires(t *testing.T) {
	expiry.MustLeave(t,
		Moves{Name: "extended", Set: "expires_at = 4000000000000000"},
		Moves{Name: "taken", Set: "status = 'ACCEPTED', claim_id = 'clm_x', accepted_by = 'drv_x', accepted_at = 1"},
		Moves{Name: "canceled", Set: "status = 'CANCELED'"},
		Moves{Name: "opened again", Set: "round = round + 1, expires_at = 4000000000000000"},
		Moves{
			Name: "ended by another", Set: "status = 'EXPIRED'",
			Also: "INSERT INTO events SELECT 'evt_x', id, 'dispatch.expired', 1, NULL, 'system', '', 1, '', 1, '' FROM dispatches WHERE id = ?",
		},
	)
}

var reminders = Clockworks[1]

func TestTheReminder(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		id := reminders.Ready(t, db, 1)[0]
		d := db.MustRead(t, id)
		phone := db.Device(t, d.Claim.Driver, nil)
		db.Equipped(t, 1)
		reminders.MustChange(t, db.Store, 10, 1)
		got := db.MustRead(t, id)
		if !got.UpdatedAt.After(d.UpdatedAt) {
			t.Errorf("changed at %s, want after %s, so that later events come behind the reminder", got.UpdatedAt, d.UpdatedAt)
		}
		if got.UpdatedAt = d.UpdatedAt; !reflect.DeepEqual(got, d) {
			t.Errorf("the dispatch is %+v, was %+v", got, d)
		}
		told := db.As("ins_a").MustExpand(t, db, dispatch.EventReminder, 10)
		db.MustTell(t, told.Event.ID, dispatch.EventReminder, false, phone)
		if len(told.Pushes) != 1 || !told.Pushes[0].UsefulUntil.Equal(d.WorkStartsAt) || told.Pushes[0].Driver != d.Claim.Driver {
			t.Errorf("%+v", told.Pushes)
		}
		if told.Event.Driver != d.Claim.Driver || told.Event.Round != 1 || told.Event.Actor != dispatch.System {
			t.Errorf("the event is %+v", told.Event)
		}
	})
}

// The driver of the next round is reminded, too.
func TestAReminderInEachRound(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		id := reminders.Ready(t, db, 1)[0]
		reminders.MustChange(t, db.Store, 10, 1)
		db.MustUpdate(t, id, Withdraw)
		reminders.MustChange(t, db.Store, 10, 0)
		second := db.Fleet(t, 1)[0].ID
		db.MustAccept(t, id, second)
		reminders.MustChange(t, db.Store, 10, 0) // accepted when the time of the reminder had come
		db.Exec(t, "UPDATE dispatches SET accepted_at = 1")
		reminders.MustChange(t, db.Store, 10, 1)
		reminders.MustChange(t, db.Store, 10, 0)
		db.MustCount(t, 1, "events WHERE type = ? AND round = 2 AND driver_id = ?", dispatch.EventReminder, second)
		reminders.MustHave(t, db, 2, id)
	})
}

func TestNoReminder(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		update := func(do Change) func(dispatch.ID) {
			return func(id dispatch.ID) { db.MustUpdate(t, id, do) }
		}
		accepted := func(before time.Duration) func(dispatch.ID) {
			return func(id dispatch.ID) {
				db.Exec(t, "UPDATE dispatches SET accepted_at = work_starts_at - ? WHERE id = ?", before.Microseconds(), id)
			}
		}
		for name, happens := range map[string]func(dispatch.ID){
			"started":                  update(Start),
			"canceled":                 update(Cancel),
			"withdrawn":                update(Withdraw),
			"the work has begun":       func(id dispatch.ID) { db.WorksIn(t, id, 0) },
			"it begins later":          func(id dispatch.ID) { db.WorksIn(t, id, RemindBefore+testkit.Patience) },
			"accepted at the time":     accepted(RemindBefore),
			"accepted later than that": accepted(RemindBefore - time.Second),
		} {
			reminders.MustSkip(t, db, name, reminders.Ready(t, db, 1)[0], happens)
		}
		id := reminders.Ready(t, db, 1)[0]
		for _, before := range []time.Duration{0, 9 * time.Minute} {
			if n, err := db.WriteReminders(t.Context(), before, 10); n != 0 || err != nil {
				t.Errorf("%v before the work: %d, %v", before, n, err)
			}
		}
		reminders.MustHave(t, db, 0, id)
		accepted(RemindBefore + time.Second)(id)
		reminders.MustChange(t, db.Store, 1, 1) // none of the others takes its place in the batch
	})
}

func TestChangedBeforeItsReminder(t *testing.T) {
	reminders.MustLeave(t,
		Moves{Name: "withdrawn", Set: "status = 'PENDING', round = round + 1, claim_id = NULL, accepted_by = NULL, accepted_at = NULL"},
		Moves{Name: "taken in the next round", Set: "round = round + 1, accepted_by = 'drv_x', accepted_at = work_starts_at - 1"},
		Moves{Name: "started", Set: "status = 'IN_PROGRESS'"},
		Moves{Name: "canceled", Set: "status = 'CANCELED'"},
		Moves{Name: "put off", Set: "work_starts_at = work_starts_at + 7200000000"},
		Moves{
			Name: "reminded by another", Set: "note = note",
			Also: "INSERT INTO events SELECT 'evt_x', id, 'dispatch.reminder', 1, NULL, 'system', '', 1, '', 1, '' FROM dispatches WHERE id = ?",
		},
	)
}

var overdue = Clockworks[2]

// Overdue work that never began is canceled, and overdue work that began is completed.
func TestCloseOverdue(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		ids := overdue.Ready(t, db, 2)
		db.MustUpdate(t, ids[1], Start)
		overdue.MustChange(t, db.Store, 10, 2)
		for i, want := range []struct {
			status  dispatch.Status
			outcome dispatch.Outcome
			event   dispatch.EventType
			version int
		}{
			{dispatch.Canceled, dispatch.OutcomeCanceled, dispatch.EventCanceled, 3},
			{dispatch.Completed, dispatch.OutcomeWon, dispatch.EventCompleted, 4},
		} {
			d := db.MustRead(t, ids[i])
			if d.Status != want.status || d.Version != want.version || d.Claim == nil {
				t.Fatalf("the dispatch is %+v", d)
			}
			db.MustOutcome(t, d, d.Claim.Driver, want.outcome)
			trail := db.Trail(t, d.ID)
			if last := fmt.Sprintf("%s 1 %s system OVERDUE", want.event, d.Claim.Driver); trail[len(trail)-1] != last {
				t.Errorf("the trail is %q, want it to end with %s", trail, last)
			}
		}
		overdue.MustChange(t, db.Store, 10, 0)
	})
}

func TestDispatchesThatAreNotOverdue(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		update := func(set string, args ...any) func(dispatch.ID) {
			return func(id dispatch.ID) { db.Exec(t, "UPDATE dispatches SET "+set+" WHERE id = ?", append(args, id)...) }
		}
		for name, happens := range map[string]func(dispatch.ID){
			"still under way":       update("work_ends_at = ?", database.Micros(db.Now(t).Add(time.Hour))),
			"over for not so long":  func(id dispatch.ID) { db.WorksIn(t, id, -OverdueAfter-time.Hour+testkit.Patience) },
			"completed":             update("status = 'COMPLETED'"),
			"canceled":              update("status = 'CANCELED'"),
			"expired":               update("status = 'EXPIRED'"),
			"never taken":           update("status = 'PENDING'"),
			"of the day after next": func(id dispatch.ID) { db.WorksIn(t, id, 48*time.Hour) },
		} {
			overdue.MustSkip(t, db, name, overdue.Ready(t, db, 1)[0], happens)
		}
		overdue.Ready(t, db, 1)
		overdue.MustChange(t, db.Store, 1, 1) // none of the others takes its place in the batch
	})
}

func TestChangedBeforeItIsClosed(t *testing.T) {
	overdue.MustLeave(t,
		Moves{Name: "completed", Set: "status = 'COMPLETED'"},
		Moves{Name: "canceled", Set: "status = 'CANCELED'"},
		Moves{Name: "longer work", Set: "work_ends_at = 4000000000000000"},
		Moves{Name: "withdrawn", Set: "status = 'PENDING', round = round + 1, claim_id = NULL, accepted_by = NULL, accepted_at = NULL"},
	)
}
