package repository

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/testkit"
)

// An event that is returned as one without recipients has none: its expansion would write and drop nothing.
func TestWithoutRecipients(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		var committed dispatch.EventID // the latest
		store := openWith(t, db.url, Options{
			Log: quiet, Patience: testkit.Patience, OutboxOwner: "ins_a", OutboxLease: time.Hour,
			OnCommit: func(_ dispatch.Dispatch, events []dispatch.Event) {
				committed = events[len(events)-1].ID
			},
		})
		db = db.by(store)
		now := db.now(t)
		driver := func() dispatch.DriverID { return db.drivers(t, 1)[0].ID }
		withDevice := func(edit func(*dispatch.Device)) dispatch.DriverID {
			v := driver()
			db.device(t, v, edit)
			return v
		}
		offered := func() dispatch.Dispatch {
			d := db.add(t, nil)
			db.notifications(t, d, 1, nil)
			return d
		}
		large := func(ended bool) dispatch.Dispatch {
			d := db.add(t, nil)
			db.addTopic(t, topicRow{Name: "dispatch-" + string(d.ID), Ended: ended, State: stateDone})
			return d
		}
		quarantined := func(p *dispatch.Device) { p.QuarantinedAt = &now }
		tests := []struct {
			name string
			none bool
			make func()
		}{
			{"the claim of a driver without a device", true, func() { db.mustAccept(t, db.add(t, nil).ID, driver()) }},
			{"the claim of a driver with a device", false, func() { db.mustAccept(t, db.add(t, nil).ID, withDevice(nil)) }},
			{"the claim of a driver with a quarantined device", true, func() { db.mustAccept(t, db.add(t, nil).ID, withDevice(quarantined)) }},
			{"the claim of a dispatch that was offered", false, func() { db.mustAccept(t, offered().ID, driver()) }},
			{"the claim of a dispatch with a topic", false, func() { db.mustAccept(t, large(false).ID, driver()) }},
			{"the claim of a dispatch with an ended topic", true, func() { db.mustAccept(t, large(true).ID, driver()) }},
			{"the cancelation of a dispatch that nobody saw", true, func() { db.mustUpdate(t, db.add(t, nil).ID, cancel) }},
			{"the cancelation of a dispatch that was offered", false, func() { db.mustUpdate(t, offered().ID, cancel) }},
			{"an event that another process leases", false, func() {
				db.mustAccept(t, db.add(t, nil).ID, driver())
				db.exec(t, "UPDATE events SET claim = 'ins_b' WHERE id = ?", committed)
			}},
			{"an event that is completed", false, func() {
				db.mustAccept(t, db.add(t, nil).ID, driver())
				must(t, db.as("ins_a").CompleteEvents(t.Context(), []dispatch.EventID{committed}))
			}},
		}
		events := make([]dispatch.EventID, len(tests))
		for i, tt := range tests {
			tt.make()
			events[i] = committed
		}
		o := db.as("ins_a")
		none, err := o.WithoutRecipients(t.Context(), events)
		must(t, err)
		for i, tt := range tests {
			testkit.Equal(t, tt.name+": without recipients", tt.none, slices.Contains(none, events[i]))
			if !tt.none {
				continue
			}
			x, err := o.expandFully(t.Context(), events[i], 100)
			must(t, err)
			testkit.Equal(t, tt.name+": written or dropped by its expansion", 0, len(x.Pushes)+x.Unleased+x.Dropped)
		}
	})
}

// Only what the owner leases is completed.
func TestCompleteEvents(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		events := db.manyEvents(t, 3)
		end := micros(db.now(t).Add(time.Hour))
		db.exec(t, "UPDATE events SET claim = 'ins_a', next_at = ?", end)
		db.exec(t, "UPDATE events SET claim = 'ins_b' WHERE id = ?", events[1])
		must(t, db.as("ins_a").CompleteEvents(t.Context(), events))
		for i, want := range []eventLease{{}, {"ins_b", end}, {}} {
			testkit.Equal(t, fmt.Sprintf("the lease of event %d", i), want, db.leaseOf(t, events[i]))
		}
	})
}

// A write that is a deadlock's victim is tried again.
func TestWritesOfARelayAndADeadlock(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		o := db.as("ins_a")
		events := slices.Sorted(slices.Values(db.manyEvents(t, 500)))[:2]
		db.exec(t, "UPDATE events SET claim = 'ins_a'")
		db.deadlock(t, "events", "id", "next_at", events[0], events[1], func() error { return o.CompleteEvents(t.Context(), events) })
		db.mustCount(t, 2, "events WHERE next_at IS NULL")

		rows := db.notifications(t, db.add(t, nil), 500, func(i int, row *notificationRow) {
			row.DeviceID, row.Claim = dispatch.DeviceID(fmt.Sprint("dev_", i)), "ins_a"
		})
		pushes := slices.Sorted(slices.Values(rowIDs(rows)))[:2]
		db.deadlock(t, "notifications", "id", "due_at", pushes[0], pushes[1], func() error {
			return o.RecordResults(t.Context(), collect(pushes, func(id dispatch.NotificationID) outbox.SendResult {
				return outbox.SendResult{ID: id, Status: outbox.Sent}
			}))
		})
		db.mustCount(t, 2, "notifications WHERE state = 1")
	})
}

// deadlock makes write a deadlock's victim, and fails the test unless write succeeds all the same. Another transaction has written the
// most, so the server rolls back write. It holds the later of two rows that write needs, and then wants the earlier.
func (db *database) deadlock(t *testing.T, table, key, column string, earlier, later any, write func() error) {
	t.Helper()
	db.notOnTiDB(t, "victim of that kind: it rolls back the transaction that closes the circle")
	tx := db.begun(t, fmt.Sprintf("UPDATE %s SET %[2]s = %[2]s + 1 WHERE %[3]s > '%[4]s'", table, column, key, later),
		fmt.Sprintf("SELECT * FROM %s WHERE %s = '%s' FOR UPDATE", table, key, later))
	ended := begin(write)
	db.waiting(t)
	must(t, errorOf(tx.Exec(fmt.Sprintf("UPDATE %s SET %[2]s = %[2]s + 1 WHERE %[3]s = '%[4]s'", table, column, key, earlier))))
	must(t, tx.Rollback())
	must(t, testkit.Await(t, "the write of "+table, ended))
}

// However large the tables are, the look at an event reads a few rows by their keys, and so does its completion.
func TestPlansOfCompletion(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		db.backlogged(t, d, backlog)
		db.exec(t, "ANALYZE TABLE events, devices, topics")
		var events []dispatch.EventID
		must(t, db.serve.Raw("SELECT id FROM events LIMIT 32").Scan(&events).Error)
		o := db.as("ins_a")
		all := statements(t, []*gorm.DB{o.work}, func() {
			_, err := o.WithoutRecipients(t.Context(), events)
			must(t, err)
			must(t, o.CompleteEvents(t.Context(), events))
		})
		testkit.Equal(t, "statements", 2, len(all))
		for _, s := range all {
			for _, plan := range db.explain(t, s) {
				if kind := plan["type"]; kind == "ALL" || kind == "index" {
					t.Errorf("%.160s...\n%v", s, plan)
				}
			}
		}
	})
}
