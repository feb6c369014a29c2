package pushes_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

// Of events that are expanded together, those that concern nobody cost nothing beyond the one statement that reads them all; and none that
// concerns somebody is taken for one of these.
func TestEventsThatConcernNobody(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		var committed dispatch.Event // the latest
		store := OpenWith(t, db.URL, repository.Options{
			Log: Quiet, Patience: testkit.Patience, OutboxOwner: "ins_a", OutboxLease: time.Hour,
			OnCommit: func(_ dispatch.Dispatch, events []dispatch.Event) { committed = events[len(events)-1] },
		})
		db = db.By(store)
		now := db.Now(t)
		driver := func() dispatch.DriverID { return db.Fleet(t, 1)[0].ID }
		withDevice := func(edit func(*dispatch.Device)) dispatch.DriverID {
			v := driver()
			db.Device(t, v, edit)
			return v
		}
		offered := func() dispatch.Dispatch {
			d := db.Add(t, nil)
			db.WriteNotifications(t, d, 1, nil)
			return d
		}
		large := func(ended bool) dispatch.Dispatch {
			d := db.Add(t, nil)
			db.AddTopic(t, TopicRow{Name: "dispatch-" + string(d.ID), Ended: ended, State: pushes.StateDone})
			return d
		}
		quarantined := func(p *dispatch.Device) { p.QuarantinedAt = &now }
		tests := []struct {
			name string
			want string
			make func()
		}{
			{"the claim of a driver without a device", "", func() { db.MustAccept(t, db.Add(t, nil).ID, driver()) }},
			{"the claim of a driver with a device", "told", func() { db.MustAccept(t, db.Add(t, nil).ID, withDevice(nil)) }},
			{"the claim of a driver with a quarantined device", "", func() { db.MustAccept(t, db.Add(t, nil).ID, withDevice(quarantined)) }},
			{"the claim of a dispatch that was offered", "dropped", func() { db.MustAccept(t, offered().ID, driver()) }},
			{"the claim of a dispatch with a topic", "topic ended", func() { db.MustAccept(t, large(false).ID, driver()) }},
			{"the claim of a dispatch with an ended topic", "", func() { db.MustAccept(t, large(true).ID, driver()) }},
			{"the cancelation of a dispatch that nobody saw", "", func() { db.MustUpdate(t, db.Add(t, nil).ID, Cancel) }},
			{"the cancelation of a dispatch that was offered", "dropped", func() { db.MustUpdate(t, offered().ID, Cancel) }},
			{"an event that another process leases", "skipped", func() {
				db.MustAccept(t, db.Add(t, nil).ID, withDevice(nil))
				db.Exec(t, "UPDATE events SET claim = 'ins_b' WHERE id = ?", committed.ID)
			}},
			{"an event that is completed", "skipped", func() {
				db.MustAccept(t, db.Add(t, nil).ID, withDevice(nil))
				Must(t, db.As("ins_a").RecordResults(t.Context(), nil, []dispatch.EventID{committed.ID}))
			}},
		}
		o := db.As("ins_a")
		var all, nobodys []dispatch.EventID
		happened := map[dispatch.EventID]dispatch.Event{}
		for _, tt := range tests {
			tt.make()
			all, happened[committed.ID] = append(all, committed.ID), committed
			if tt.want == "" {
				nobodys = append(nobodys, committed.ID)
			}
		}
		var x outbox.Expansion
		sent := db.Statements(t, func() {
			_, err := o.Expand(t.Context(), nobodys, 100)
			Must(t, err)
		})
		testkit.Equal(t, "statements for those that concern nobody", 1, len(sent))
		x, err := o.Expand(t.Context(), all, 100)
		Must(t, err)
		expanded := Collect(x.Events, func(e outbox.Expanded) dispatch.EventID { return e.Event.ID })
		for i, tt := range tests {
			event, got := happened[all[i]], ""
			switch d := event.Dispatch; {
			case !slices.Contains(expanded, event.ID):
				got = "skipped"
			case len(db.ToldOf(t, event.ID)) > 0:
				got = "told"
			case db.Count(t, "notifications WHERE dispatch_id = ? AND state = 3", d) > 0:
				got = "dropped"
			case tt.want != "" && db.Count(t, "topics WHERE name = ? AND ended", outbox.TopicOf(d)) > 0:
				got = "topic ended"
			}
			testkit.Equal(t, tt.name, tt.want, got)
		}
		testkit.Equal(t, "pushes to be sent at once", 1, len(x.Pushes))
	})
}

// Only what the owner leases is completed.
func TestCompleteEvents(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		events := db.ManyEvents(t, 3)
		end := database.Micros(db.Now(t).Add(time.Hour))
		db.Exec(t, "UPDATE events SET claim = 'ins_a', next_at = ?", end)
		db.Exec(t, "UPDATE events SET claim = 'ins_b' WHERE id = ?", events[1])
		Must(t, db.As("ins_a").RecordResults(t.Context(), nil, events))
		for i, want := range []EventLease{{}, {Claim: "ins_b", NextAt: end}, {}} {
			testkit.Equal(t, fmt.Sprintf("the lease of event %d", i), want, db.LeaseOf(t, events[i]))
		}
	})
}

// A write that is a deadlock's victim is tried again.
func TestWritesOfARelayAndADeadlock(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		o := db.As("ins_a")
		events := slices.Sorted(slices.Values(db.ManyEvents(t, 500)))[:2]
		db.Exec(t, "UPDATE events SET claim = 'ins_a'")
		deadlock(db, t, "events", "id", "next_at", events[0], events[1], func() error { return o.RecordResults(t.Context(), nil, events) })
		db.MustCount(t, 2, "events WHERE next_at IS NULL")

		rows := db.WriteNotifications(t, db.Add(t, nil), 500, func(i int, row *pushes.NotificationRow) {
			row.DeviceID, row.Claim = dispatch.DeviceID(fmt.Sprint("dev_", i)), "ins_a"
		})
		pushes := slices.Sorted(slices.Values(RowIDs(rows)))[:2]
		deadlock(db, t, "notifications", "id", "due_at", pushes[0], pushes[1], func() error {
			return o.RecordResults(t.Context(), Collect(pushes, func(id dispatch.NotificationID) outbox.SendResult {
				return outbox.SendResult{ID: id, Status: outbox.Sent}
			}), nil)
		})
		db.MustCount(t, 2, "notifications WHERE state = 1")
	})
}

// deadlock makes write a deadlock's victim, and fails the test unless write succeeds all the same. Another transaction has written the
// most, so the server rolls back write. It holds the later of two rows that write needs, and then wants the earlier.
func deadlock(db *Bench, t *testing.T, table, key, column string, earlier, later any, write func() error) {
	t.Helper()
	db.NotOnTiDB(t, "victim of that kind: it rolls back the transaction that closes the circle")
	tx := db.Begun(t, fmt.Sprintf("UPDATE %s SET %[2]s = %[2]s + 1 WHERE %[3]s > '%[4]s'", table, column, key, later),
		fmt.Sprintf("SELECT * FROM %s WHERE %s = '%s' FOR UPDATE", table, key, later))
	ended := Begin(write)
	db.Waiting(t)
	Must(t, ErrorOf(tx.Exec(fmt.Sprintf("UPDATE %s SET %[2]s = %[2]s + 1 WHERE %[3]s = '%[4]s'", table, column, key, earlier))))
	Must(t, tx.Rollback())
	Must(t, testkit.Await(t, "the write of "+table, ended))
}
