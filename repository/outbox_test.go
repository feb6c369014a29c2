package repository

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/testkit"
)

// term is longer than any test takes: no lease ends unless the test ends it.
const term = 10 * time.Minute

// as returns the outbox of the process named owner.
func (s *Store) as(owner string, edit ...func(*OutboxOptions)) *Outbox {
	o := OutboxOptions{Owner: owner, LeaseTerm: term}
	for _, e := range edit {
		e(&o)
	}
	return s.Outbox(o)
}

func newDevice(driver dispatch.DriverID, now time.Time) dispatch.Device {
	id := dispatch.NewDeviceID(now)
	return dispatch.Device{
		ID: id, Driver: driver, Installation: "of " + string(id), Platform: dispatch.Android,
		PushToken: "token of " + string(id), AppVersion: "1.0", Locale: "en",
	}
}

// device adds a device of the driver's, as edit changes it.
func (db *database) device(t testing.TB, driver dispatch.DriverID, edit func(*dispatch.Device)) dispatch.Device {
	t.Helper()
	now := time.Now()
	v := newDevice(driver, now)
	if edit != nil {
		edit(&v)
	}
	db.exec(t, `INSERT INTO devices (id, driver_id, installation_id, platform, push_token, app_version, locale,
		quarantined_at, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		v.ID, v.Driver, v.Installation, v.Platform, v.PushToken, v.AppVersion, v.Locale,
		optionalMicros(v.QuarantinedAt), now.UnixMicro(), now.UnixMicro())
	return v
}

// equipped adds n eligible drivers with one device each.
func (db *database) equipped(t testing.TB, n int) []dispatch.Device {
	t.Helper()
	now := time.Now()
	devices, args := make([]dispatch.Device, n), make([]any, 0, 6*n)
	for i, v := range db.drivers(t, n) {
		d := newDevice(v.ID, now)
		devices[i] = d
		args = append(args, d.ID, d.Driver, d.Installation, d.PushToken, now.UnixMicro(), now.UnixMicro())
	}
	db.exec(t, `INSERT INTO devices (id, driver_id, installation_id, push_token, created_at, updated_at, platform, app_version, locale)
		VALUES `+strings.ReplaceAll(placeholders(n, 6), "?)", "?, 'android', '1.0', 'en')"), args...)
	return devices
}

// notifications writes n pushes of dispatch d's opening, due since a minute, as edit changes them.
func (db *database) notifications(t testing.TB, d dispatch.Dispatch, n int, edit func(int, *notificationRow)) []notificationRow {
	t.Helper()
	now := time.Now()
	rows := make([]notificationRow, n)
	for i := range rows {
		rows[i] = notificationRow{
			ID: dispatch.NewNotificationID(now), EventID: dispatch.NewEventID(now), DispatchID: d.ID, Round: d.Round,
			Type: dispatch.EventOpened, DueAt: micros(now.Add(-time.Minute)) + int64(i), At: micros(now),
			ExpiresAt: micros(d.ExpiresAt), CreatedAt: micros(now),
		}
		if edit != nil {
			edit(i, &rows[i])
		}
		if rows[i].State == statePending {
			rows[i].Priority = outbox.PriorityOf(rows[i].Type, rows[i].Silent)
		}
	}
	db.write(t, rows)
	return rows
}

// toDevices is an edit of notifications: the i-th is for the i-th device.
func toDevices(devices []dispatch.Device) func(int, *notificationRow) {
	return func(i int, n *notificationRow) { n.DeviceID, n.DriverID = devices[i].ID, devices[i].Driver }
}

func rowIDs(rows []notificationRow) []dispatch.NotificationID {
	return collect(rows, func(n notificationRow) dispatch.NotificationID { return n.ID })
}

func pushIDs(pushes []outbox.Push) []dispatch.NotificationID {
	return collect(pushes, func(p outbox.Push) dispatch.NotificationID { return p.ID })
}

// mustLease has o lease so many notifications, with room for limit.
func (o *Outbox) mustLease(t testing.TB, limit, want int) []outbox.Push {
	t.Helper()
	pushes, _, err := o.LeaseNotifications(t.Context(), limit)
	if err != nil || len(pushes) != want {
		t.Fatalf("%s leased %d pushes, %v; want %d", o.Owner, len(pushes), err, want)
	}
	return pushes
}

// mustLeaseEvents has o lease so many events, with room for limit.
func (o *Outbox) mustLeaseEvents(t testing.TB, limit, want int) []dispatch.EventID {
	t.Helper()
	events, err := o.LeaseEvents(t.Context(), limit)
	if err != nil || len(events) != want {
		t.Fatalf("%s leased the events %v, %v; want %d", o.Owner, events, err, want)
	}
	return events
}

// mustRecord records the result for each of the pushes.
func (o *Outbox) mustRecord(t testing.TB, result outbox.SendResult, ids ...dispatch.NotificationID) {
	t.Helper()
	must(t, o.RecordResults(t.Context(), collect(ids, func(id dispatch.NotificationID) outbox.SendResult {
		result.ID = id
		return result
	})))
}

func (db *database) stored(t testing.TB, id dispatch.NotificationID) notificationRow {
	t.Helper()
	var row notificationRow
	must(t, db.serve.WithContext(t.Context()).Where("id = ?", id).Take(&row).Error)
	return row
}

// eventLease is the lease of an event: its owner, and its end in microseconds. The end is 0 once the event is expanded.
type eventLease struct {
	Claim  string
	NextAt int64
}

func (db *database) leaseOf(t testing.TB, event dispatch.EventID) (found eventLease) {
	t.Helper()
	must(t, db.serve.WithContext(t.Context()).Raw("SELECT claim, COALESCE(next_at, 0) next_at FROM events WHERE id = ?", event).Take(&found).Error)
	return found
}

// now is the database's.
func (db *database) now(t testing.TB) time.Time {
	t.Helper()
	now, err := db.clock(db.serve.WithContext(t.Context()))
	must(t, err)
	return now
}

// manyEvents writes n due events, the i-th one i microseconds after the first.
func (db *database) manyEvents(t testing.TB, n int) []dispatch.EventID {
	t.Helper()
	now := db.now(t).Add(-time.Minute)
	rows, events := make([]eventRow, n), make([]dispatch.EventID, n)
	for i := range rows {
		rows[i] = eventRow{ID: dispatch.NewEventID(now), DispatchID: "dsp_many", At: micros(now), NextAt: new(micros(now) + int64(i))}
		events[i] = rows[i].ID
	}
	db.write(t, rows)
	return events
}

// instances are the outboxes of n processes, two of them in each Store.
func (db *database) instances(t testing.TB, n int) []*Outbox {
	t.Helper()
	outboxes := make([]*Outbox, n)
	for i := range outboxes {
		if i%2 == 0 {
			outboxes[i] = open(t, db.url).as(fmt.Sprintf("ins_%d", i))
		} else {
			outboxes[i] = outboxes[i-1].as(fmt.Sprintf("ins_%d", i))
		}
	}
	return outboxes
}

// drain has all instances lease at once until no row is due, and fails unless each of want was leased once.
func drain[K comparable](t *testing.T, outboxes []*Outbox, want []K, lease func(*Outbox) ([]K, error)) {
	t.Helper()
	var mu sync.Mutex
	times := map[K]int{}
	lessees := map[string]bool{}
	var first sync.WaitGroup // each leases once before any leases again, however slow it is
	first.Add(len(outboxes))
	testkit.Together(len(outboxes), func(i int) {
		for n := range len(want) + 1 {
			got, err := lease(outboxes[i])
			if n == 0 {
				first.Done()
				first.Wait()
			}
			if err != nil {
				t.Error(err)
			}
			if err != nil || len(got) == 0 {
				return
			}
			mu.Lock()
			lessees[outboxes[i].Owner] = true
			for _, k := range got {
				times[k]++
			}
			mu.Unlock()
		}
		t.Error("the leases never end")
	})
	for _, k := range want {
		if times[k] != 1 {
			t.Fatalf("%v was leased %d times, of %d in all", k, times[k], len(times))
		}
	}
	// SQLite's file may well go to the same one again and again.
	if server := !outboxes[0].dialect.text.sqlite; len(times) != len(want) || server && len(lessees) < 2 {
		t.Errorf("%d were leased, want %d; by %v", len(times), len(want), lessees)
	}
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
	each(t, func(t *testing.T, db *database) {
		events := db.manyEvents(t, manyRows)
		drain(t, db.instances(t, 8), events, func(o *Outbox) ([]dispatch.EventID, error) {
			return o.LeaseEvents(t.Context(), 32)
		})
		db.mustCount(t, manyRows, "events WHERE claim LIKE 'ins_%' AND next_at > ?", micros(db.now(t)))
	})
}

func TestEachNotificationIsLeasedByOne(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d, devices := db.add(t, nil), db.equipped(t, 3)
		ids := rowIDs(db.notifications(t, d, manyRows, func(i int, n *notificationRow) { toDevices(devices)(i%3, n) }))
		drain(t, db.instances(t, 8), ids, func(o *Outbox) ([]dispatch.NotificationID, error) {
			pushes, dropped, err := o.LeaseNotifications(t.Context(), 64)
			if len(dropped) > 0 {
				t.Errorf("dropped %v", dropped)
			}
			return pushIDs(pushes), err
		})
	})
}

func TestLeaseTakesTheOldestDueFirst(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d, devices := db.add(t, nil), db.equipped(t, 1)
		db.exec(t, "DELETE FROM events")
		events := db.manyEvents(t, 20)
		rows := db.notifications(t, d, 20, func(i int, n *notificationRow) { toDevices(devices)(0, n) })
		ids := rowIDs(rows)
		for i, n := range rows[:12] {
			state, next := []any{stateDone, stateDead, stateDropped, statePending}[i%4], n.DueAt
			if i%4 == 3 {
				next = micros(db.now(t).Add(time.Hour)) // not due yet
			}
			db.exec(t, "UPDATE notifications SET state = ?, due_at = ? WHERE id = ?", state, next, n.ID)
			db.exec(t, "UPDATE events SET next_at = CASE WHEN ? = 0 THEN ? END WHERE id = ?", state, next, events[i])
		}
		o := db.as("ins_a")
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
	each(t, func(t *testing.T, db *database) {
		d, devices := db.add(t, nil), db.equipped(t, 1)
		id := db.notifications(t, d, 1, toDevices(devices))[0].ID
		lease := func(o *Outbox, want int) {
			t.Helper()
			o.mustLeaseEvents(t, 10, want)
			o.mustLease(t, 10, want)
		}
		a, b := db.as("ins_a"), db.as("ins_b")
		lease(a, 1)
		lease(b, 0)
		lease(a, 0)
		leased := db.stored(t, id)
		if end := fromMicros(leased.DueAt); leased.Claim != "ins_a" || !near(end, db.now(t).Add(term)) {
			t.Errorf("leased by %s until %v", leased.Claim, end)
		}
		db.exec(t, "UPDATE notifications SET due_at = ?", micros(db.now(t)))
		db.exec(t, "UPDATE events SET next_at = ?", micros(db.now(t)))
		lease(b, 1)
		if got := db.stored(t, id).Claim; got != "ins_b" {
			t.Errorf("it is %s's", got)
		}
	})
}
