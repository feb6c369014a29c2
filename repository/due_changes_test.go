package repository

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

var expiry = clockworks[0]

// pass lets the dispatch's window pass.
func (db *database) pass(t testing.TB, id dispatch.ID) {
	t.Helper()
	db.exec(t, "UPDATE dispatches SET opens_at = 1, expires_at = 2 WHERE id = ?", id)
}

func TestAnOfferEnds(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d, stands := db.add(t, nil), db.add(t, nil)
		db.pass(t, d.ID)
		expiry.mustChange(t, db.Store, 10, 1)
		got := db.mustRead(t, d.ID)
		if got.Status != dispatch.Expired || got.Version != d.Version+1 || got.Round != d.Round || !got.UpdatedAt.After(d.UpdatedAt) {
			t.Errorf("the dispatch is %+v, was %+v", got, d)
		}
		db.mustCount(t, 1, "dispatches WHERE status = 'EXPIRED'")
		want := []string{"dispatch.created 1 - system ", "dispatch.expired 1 - system "}
		testkit.Equal(t, "the trail", want, db.trail(t, d.ID))
		if got := db.mustRead(t, stands.ID); got.Version != stands.Version || got.Status != dispatch.Pending {
			t.Errorf("the one that stands is %+v", got)
		}
	})
}

// Each round has an end of its own.
func TestTheNextRoundEnds(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		db.mustAccept(t, d.ID, v.ID)
		db.mustUpdate(t, d.ID, withdraw)
		expiry.mustChange(t, db.Store, 10, 0)
		db.pass(t, d.ID)
		expiry.mustChange(t, db.Store, 10, 1)
		if trail := db.trail(t, d.ID); trail[len(trail)-1] != "dispatch.expired 2 - system " {
			t.Errorf("the trail is %q", trail)
		}
	})
}

func TestOffersThatDoNotExpire(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 1)[0]
		for name, happens := range map[string]func(dispatch.ID){
			"accepted": func(id dispatch.ID) { db.mustAccept(t, id, v.ID); db.pass(t, id) },
			"canceled": func(id dispatch.ID) { db.mustUpdate(t, id, cancel); db.pass(t, id) },
			"about to pass": func(id dispatch.ID) {
				db.exec(t, "UPDATE dispatches SET expires_at = ? WHERE id = ?", micros(db.now(t).Add(time.Minute)), id)
			},
			"written already": func(id dispatch.ID) {
				db.pass(t, id)
				db.exec(t, "UPDATE dispatches SET status = 'EXPIRED' WHERE id = ?", id)
			},
		} {
			expiry.mustSkip(t, db, name, db.add(t, nil).ID, happens)
		}
		expiry.ready(t, db, 1)
		expiry.mustChange(t, db.Store, 1, 1) // none of the others takes its place in the batch
	})
}

func TestChangedBeforeItExpires(t *testing.T) {
	expiry.mustLeave(t,
		moves{name: "extended", set: "expires_at = 4000000000000000"},
		moves{name: "taken", set: "status = 'ACCEPTED', claim_id = 'clm_x', accepted_by = 'drv_x', accepted_at = 1"},
		moves{name: "canceled", set: "status = 'CANCELED'"},
		moves{name: "opened again", set: "round = round + 1, expires_at = 4000000000000000"},
		moves{
			name: "ended by another", set: "status = 'EXPIRED'",
			also: "INSERT INTO events SELECT 'evt_x', id, 'dispatch.expired', 1, NULL, 'system', '', 1, '', 1, '' FROM dispatches WHERE id = ?",
		},
	)
}

// The driver's claim and the end of the offer want the same row at the same time.
func TestTheLastTapAndTheEnd(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		for i := range 10 {
			v, d := db.drivers(t, 1)[0], db.add(t, nil)
			passed := i%2 == 0
			if passed {
				db.pass(t, d.ID)
			}
			var n int
			var ended, claimed error
			testkit.Together(2, func(k int) {
				if k == 0 {
					n, ended = db.ExpireOffers(t.Context(), 10)
				} else {
					_, claimed = db.accept(t.Context(), d.ID, v.ID)
				}
			})
			got := db.mustRead(t, d.ID)
			switch {
			case ended != nil:
				t.Errorf("the end: %v", ended)
			case passed && (n != 1 || got.Status != dispatch.Expired || !errors.Is(claimed, dispatch.ErrExpired)):
				t.Errorf("%s, %d, %v", got.Status, n, claimed)
			case !passed && (n != 0 || got.Status != dispatch.Accepted || claimed != nil):
				t.Errorf("%s, %d, %v", got.Status, n, claimed)
			}
		}
	})
}

var reminders = clockworks[1]

func TestTheReminder(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		id := reminders.ready(t, db, 1)[0]
		d := db.mustRead(t, id)
		phone := db.device(t, d.Claim.Driver, nil)
		db.equipped(t, 1)
		reminders.mustChange(t, db.Store, 10, 1)
		got := db.mustRead(t, id)
		if !got.UpdatedAt.After(d.UpdatedAt) {
			t.Errorf("changed at %s, want after %s, so that later events come behind the reminder", got.UpdatedAt, d.UpdatedAt)
		}
		if got.UpdatedAt = d.UpdatedAt; !reflect.DeepEqual(got, d) {
			t.Errorf("the dispatch is %+v, was %+v", got, d)
		}
		told := db.as("ins_a").mustExpand(t, db, dispatch.EventReminder, 10)
		db.mustTell(t, told.Event.ID, dispatch.EventReminder, false, phone)
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
	each(t, func(t *testing.T, db *database) {
		id := reminders.ready(t, db, 1)[0]
		reminders.mustChange(t, db.Store, 10, 1)
		db.mustUpdate(t, id, withdraw)
		reminders.mustChange(t, db.Store, 10, 0)
		second := db.drivers(t, 1)[0].ID
		db.mustAccept(t, id, second)
		reminders.mustChange(t, db.Store, 10, 0) // accepted when the time of the reminder had come
		db.exec(t, "UPDATE dispatches SET accepted_at = 1")
		reminders.mustChange(t, db.Store, 10, 1)
		reminders.mustChange(t, db.Store, 10, 0)
		db.mustCount(t, 1, "events WHERE type = ? AND round = 2 AND driver_id = ?", dispatch.EventReminder, second)
		reminders.mustHave(t, db, 2, id)
	})
}

func TestNoReminder(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		update := func(do change) func(dispatch.ID) { return func(id dispatch.ID) { db.mustUpdate(t, id, do) } }
		accepted := func(before time.Duration) func(dispatch.ID) {
			return func(id dispatch.ID) {
				db.exec(t, "UPDATE dispatches SET accepted_at = work_starts_at - ? WHERE id = ?", before.Microseconds(), id)
			}
		}
		for name, happens := range map[string]func(dispatch.ID){
			"started":                  update(start),
			"canceled":                 update(cancel),
			"withdrawn":                update(withdraw),
			"the work has begun":       func(id dispatch.ID) { db.worksIn(t, id, 0) },
			"it begins later":          func(id dispatch.ID) { db.worksIn(t, id, remindBefore+testkit.Patience) },
			"accepted at the time":     accepted(remindBefore),
			"accepted later than that": accepted(remindBefore - time.Second),
		} {
			reminders.mustSkip(t, db, name, reminders.ready(t, db, 1)[0], happens)
		}
		id := reminders.ready(t, db, 1)[0]
		for _, before := range []time.Duration{0, 9 * time.Minute} {
			if n, err := db.WriteReminders(t.Context(), before, 10); n != 0 || err != nil {
				t.Errorf("%v before the work: %d, %v", before, n, err)
			}
		}
		reminders.mustHave(t, db, 0, id)
		accepted(remindBefore + time.Second)(id)
		reminders.mustChange(t, db.Store, 1, 1) // none of the others takes its place in the batch
	})
}

func TestChangedBeforeItsReminder(t *testing.T) {
	reminders.mustLeave(t,
		moves{name: "withdrawn", set: "status = 'PENDING', round = round + 1, claim_id = NULL, accepted_by = NULL, accepted_at = NULL"},
		moves{name: "taken in the next round", set: "round = round + 1, accepted_by = 'drv_x', accepted_at = work_starts_at - 1"},
		moves{name: "started", set: "status = 'IN_PROGRESS'"},
		moves{name: "canceled", set: "status = 'CANCELED'"},
		moves{name: "put off", set: "work_starts_at = work_starts_at + 7200000000"},
		moves{
			name: "reminded by another", set: "note = note",
			also: "INSERT INTO events SELECT 'evt_x', id, 'dispatch.reminder', 1, NULL, 'system', '', 1, '', 1, '' FROM dispatches WHERE id = ?",
		},
	)
}

// A reminder that waits is not sent to a driver that has started or has lost the work meanwhile.
func TestAReminderThatIsOvertaken(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		id := reminders.ready(t, db, 1)[0]
		driver := db.mustRead(t, id).Claim.Driver
		db.device(t, driver, nil)
		reminders.mustChange(t, db.Store, 10, 1)
		db.mustUpdate(t, id, start)
		told := db.as("ins_a").mustExpand(t, db, dispatch.EventReminder, 10)
		if len(told.Pushes)+told.Unleased != 0 || told.Dropped != 1 {
			t.Errorf("%+v", told)
		}
	})
}

var overdue = clockworks[2]

// mustSkip fails the test if c changes the dispatch after that has happened to it.
func (c clockwork) mustSkip(t *testing.T, db *database, name string, id dispatch.ID, happens func(dispatch.ID)) {
	t.Helper()
	happens(id)
	before, events := db.mustRead(t, id), db.count(t, "events")
	if n, err := c.run(t.Context(), db.Store, 10); n != 0 || err != nil {
		t.Errorf("%s: %d, %v", name, n, err)
	}
	if got := db.mustRead(t, id); got.Version != before.Version || db.count(t, "events") != events {
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
			db.mustOutcome(t, d, d.Claim.Driver, want.outcome)
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
			overdue.mustSkip(t, db, name, overdue.ready(t, db, 1)[0], happens)
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
			mustAll(t, 2, func(k int) error {
				if k == 0 {
					return errorOf(db.CloseOverdue(t.Context(), overdueAfter, 10))
				}
				return errorOf(db.Update(t.Context(), id, complete))
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
