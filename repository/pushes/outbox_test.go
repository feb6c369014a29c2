package pushes_test

import (
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

func pushIDs(pushes []outbox.Push) []dispatch.NotificationID {
	return Collect(pushes, func(p outbox.Push) dispatch.NotificationID { return p.ID })
}

// mustBeOnce fails the test unless whatever was done to each of them was done once.
func mustBeOnce[K comparable](t testing.TB, was string, times map[K]int) {
	t.Helper()
	for k, n := range times {
		if n != 1 {
			t.Errorf("%v %s %d times", k, was, n)
		}
	}
}

var manyRows = testkit.Scale(500, 2000)

func TestEachEventIsLeasedByOne(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		events := db.ManyEvents(t, manyRows)
		Drain(t, db, db.Instances(t, 8), events, func(o *Outbox) ([]dispatch.EventID, error) {
			return o.LeaseEvents(t.Context(), 32)
		})
		db.MustCount(t, manyRows, "events WHERE claim LIKE 'ins_%' AND next_at > ?", database.Micros(db.Now(t)))
	})
}

func TestEachNotificationIsLeasedByOne(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d, devices := db.Add(t, nil), db.Equipped(t, 3)
		ids := RowIDs(db.WriteNotifications(t, d, manyRows, func(i int, n *pushes.NotificationRow) { ToDevices(devices)(i%3, n) }))
		Drain(t, db, db.Instances(t, 8), ids, func(o *Outbox) ([]dispatch.NotificationID, error) {
			pushes, dropped, err := o.LeaseNotifications(t.Context(), 64)
			if len(dropped) > 0 {
				t.Errorf("dropped %v", dropped)
			}
			return pushIDs(pushes), err
		})
	})
}

func TestLeaseTakesTheOldestDueFirst(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d, devices := db.Add(t, nil), db.Equipped(t, 1)
		db.Exec(t, "DELETE FROM events")
		events := db.ManyEvents(t, 20)
		rows := db.WriteNotifications(t, d, 20, func(i int, n *pushes.NotificationRow) { ToDevices(devices)(0, n) })
		ids := RowIDs(rows)
		for i, n := range rows[:12] {
			state, next := []any{pushes.StateDone, pushes.StateDead, pushes.StateDropped, pushes.StatePending}[i%4], n.DueAt
			if i%4 == 3 {
				next = database.Micros(db.Now(t).Add(time.Hour)) // not due yet
			}
			db.Exec(t, "UPDATE notifications SET state = ?, due_at = ? WHERE id = ?", state, next, n.ID)
			db.Exec(t, "UPDATE events SET next_at = CASE WHEN ? = 0 THEN ? END WHERE id = ?", state, next, events[i])
		}
		o := db.As("ins_a")
		for _, want := range [][2]int{{12, 15}, {15, 18}, {18, 20}, {20, 20}} {
			leased, err := o.LeaseEvents(t.Context(), 3)
			slices.Sort(leased)
			wanted := slices.Sorted(slices.Values(events[want[0]:want[1]]))
			if err != nil || !slices.Equal(leased, wanted) {
				t.Errorf("leased the events %v, %v; want %v", leased, err, wanted)
			}
			pushes, _, err := o.LeaseNotifications(t.Context(), 3)
			got := slices.Sorted(slices.Values(pushIDs(pushes)))
			wantIDs := slices.Sorted(slices.Values(ids[want[0]:want[1]]))
			if err != nil || !slices.Equal(got, wantIDs) {
				t.Errorf("leased %v, %v; want %v", got, err, wantIDs)
			}
		}
	})
}

func TestExpiredLeaseIsTakenOver(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d, devices := db.Add(t, nil), db.Equipped(t, 1)
		id := db.WriteNotifications(t, d, 1, ToDevices(devices))[0].ID
		lease := func(o *Outbox, want int) {
			t.Helper()
			o.MustLeaseEvents(t, 10, want)
			o.MustLease(t, 10, want)
		}
		a, b := db.As("ins_a"), db.As("ins_b")
		lease(a, 1)
		lease(b, 0)
		lease(a, 0)
		leased := db.Stored(t, id)
		if end := database.Time(leased.DueAt); leased.Claim != "ins_a" || !Near(end, db.Now(t).Add(Term)) {
			t.Errorf("leased by %s until %v", leased.Claim, end)
		}
		db.Exec(t, "UPDATE notifications SET due_at = ?", database.Micros(db.Now(t)))
		db.Exec(t, "UPDATE events SET next_at = ?", database.Micros(db.Now(t)))
		lease(b, 1)
		if got := db.Stored(t, id).Claim; got != "ins_b" {
			t.Errorf("it is %s's", got)
		}
	})
}
