package repository

import (
	"reflect"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

var reminders = clockworks[1]

func TestTheReminder(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		id := reminders.ready(t, db, 1)[0]
		d := db.mustRead(t, id)
		phone := db.device(t, d.Claim.Driver, nil)
		db.equipped(t, 1)
		reminders.mustChange(t, db.Store, 10, 1)
		if got := db.mustRead(t, id); !reflect.DeepEqual(got, d) {
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
			reminders.mustSkip(t, db, name, happens)
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
			also: "INSERT INTO events SELECT 'evt_x', id, 'dispatch.reminder', 1, NULL, 'system', '', 1, '' FROM dispatches WHERE id = ?",
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
