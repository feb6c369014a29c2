package repositorytest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/repository/journal"
	"firsttap/repository/pushes"
)

// Lend leases the newest event of that type to the owner.
func (db *Bench) Lend(t testing.TB, owner string, kind dispatch.EventType) (event dispatch.EventID) {
	t.Helper()
	err := db.Raw.QueryRowContext(t.Context(), "SELECT id FROM events WHERE type = ? ORDER BY id DESC LIMIT 1", kind).Scan(&event)
	if err != nil {
		t.Fatalf("no event %s: %v", kind, err)
	}
	db.Exec(t, "UPDATE events SET claim = ?, next_at = ? WHERE id = ? AND next_at IS NOT NULL",
		owner, database.Micros(db.Now(t).Add(Term)), event)
	return event
}

// Told is the expansion of one event.
type Told struct {
	outbox.Expanded
	outbox.Expansion
}

// MustExpand leases the newest event of that type to o, and expands it.
func (o *Outbox) MustExpand(t testing.TB, db *Bench, kind dispatch.EventType, take int) Told {
	t.Helper()
	told, err := o.ExpandFully(t.Context(), db.Lend(t, o.Owner, kind), take)
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return told
}

// ExpandFully expands one event, and completes it unless there is more to be written, as a relay does. ErrNotLeased if o does not lease it.
func (o *Outbox) ExpandFully(ctx context.Context, event dispatch.EventID, take int) (Told, error) {
	x, err := o.Expand(ctx, []dispatch.EventID{event}, take)
	switch {
	case err != nil:
		return Told{}, err
	case len(x.Events) == 0:
		return Told{}, dispatch.ErrNotLeased
	}
	told := Told{x.Events[0], x}
	if !told.More {
		err = o.RecordResults(ctx, nil, []dispatch.EventID{event})
	}
	return told, err
}

// Happens writes an event of that type about the dispatch, after edit has changed both.
func (db *Bench) Happens(
	t testing.TB, id dispatch.ID, event dispatch.EventType, edit func(*dispatch.Dispatch, *dispatch.Event),
) dispatch.Dispatch {
	t.Helper()
	return db.MustUpdate(t, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		e := dispatch.Event{ID: dispatch.NewEventID(now), Type: event, Dispatch: d.ID, Actor: dispatch.System, At: now}
		if d.Claim != nil {
			e.Driver = d.Claim.Driver
		}
		if edit != nil {
			edit(d, &e)
		}
		d.Version++
		e.Round = d.Round
		return []dispatch.Event{e}, nil
	})
}

// ToldOf returns the notifications of the event, by device.
func (db *Bench) ToldOf(t testing.TB, event dispatch.EventID) map[dispatch.DeviceID]pushes.NotificationRow {
	t.Helper()
	var rows []pushes.NotificationRow
	Must(t, db.Serve.With(t.Context()).Where("event_id = ?", event).Find(&rows).Error)
	told := map[dispatch.DeviceID]pushes.NotificationRow{}
	for _, r := range rows {
		told[r.DeviceID] = r
	}
	if len(told) != len(rows) {
		t.Errorf("%d rows for %d devices", len(rows), len(told))
	}
	return told
}

// MustTell fails the test unless exactly these devices have a notification of that type.
func (db *Bench) MustTell(t testing.TB, event dispatch.EventID, as dispatch.EventType, silent bool, devices ...dispatch.Device) {
	t.Helper()
	told := db.ToldOf(t, event)
	got, want := []string{}, []string{}
	for id, n := range told {
		if n.Type == as && n.Silent == silent {
			got = append(got, string(id))
		}
	}
	for _, v := range devices {
		want = append(want, string(v.ID))
		if n := told[v.ID]; n.DriverID != v.Driver {
			t.Errorf("%s is %s's, not %s's", v.ID, v.Driver, n.DriverID)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s is pushed to\n%v, want\n%v", as, got, want)
	}
}

// WriteNotification writes one that is dead, of an offer that stands, as edit changes it.
func (db *Bench) WriteNotification(t testing.TB, id dispatch.ID, edit func(*pushes.NotificationRow)) pushes.NotificationRow {
	t.Helper()
	now := time.Now()
	d := dispatch.Dispatch{ID: id, Round: 1, Window: dispatch.Window{ExpiresAt: now.Add(time.Hour)}}
	return db.WriteNotifications(t, d, 1, func(_ int, row *pushes.NotificationRow) {
		row.DeviceID, row.DriverID = dispatch.NewDeviceID(now), dispatch.NewDriverID(now)
		row.State, row.DueAt = pushes.StateDead, row.ExpiresAt
		row.Attempts, row.Result, row.Reason = 3, "poison", "INVALID_ARGUMENT"
		if edit != nil {
			edit(row)
		}
	})[0]
}

// Many writes so many notifications, of which one in 25 is dead.
func (db *Bench) Many(t *testing.T, n int) {
	t.Helper()
	db.WriteNotifications(t, dispatch.Dispatch{ID: "dsp_1", Round: 1}, n, func(i int, row *pushes.NotificationRow) {
		row.DeviceID, row.State, row.DueAt = "dev_1", pushes.StateDone, row.At+int64(i*7919%n)
		if i%25 == 0 {
			row.State = pushes.StateDead
		}
	})
}

// MustWinOnce has do called n times at once, and fails the test unless one succeeds and the others are refused.
func MustWinOnce(t *testing.T, n int, refused error, do func(int) error) {
	t.Helper()
	errs := make([]error, n)
	testkit.Together(n, func(i int) { errs[i] = do(i) })
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		MustBeError(t, "one that is late", err, refused)
	}
	if won != 1 {
		t.Errorf("%d of %d have succeeded", won, n)
	}
}

// Backlog is how many rows are due, and as many done: 100,000 of each make the same plans.
var Backlog = testkit.Scale(2000, 10_000)

// Backlogged fills both tables with n rows that are due and n that are done. The last few notifications are of dispatch d.
func (db *Bench) Backlogged(t *testing.T, d dispatch.Dispatch, n int) {
	t.Helper()
	const first = 200 // few enough that an index is the better way to them, whatever the server samples
	devices := ToDevices(db.Equipped(t, first))
	db.WriteNotifications(t, d, 2*n-first, func(i int, row *pushes.NotificationRow) {
		devices(i%first, row)
		row.DispatchID = dispatch.NewID(time.Now())
	})
	db.WriteNotifications(t, d, first, devices)
	db.ManyEvents(t, 2*n)
	db.Exec(t, fmt.Sprintf("UPDATE notifications SET state = 1, priority = 0 ORDER BY RAND() LIMIT %d", n))
	db.Exec(t, fmt.Sprintf("UPDATE events SET next_at = NULL WHERE dispatch_id = 'dsp_many' ORDER BY RAND() LIMIT %d", n))
	db.Exec(t, "ANALYZE TABLE notifications, events")
}

// Leased writes n notifications of a dispatch that is open, and has the owner lease them.
func (db *Bench) Leased(t *testing.T, o *Outbox, n int) []dispatch.NotificationID {
	t.Helper()
	d, devices := db.Add(t, nil), db.Equipped(t, 1)
	rows := db.WriteNotifications(t, d, n, func(_ int, n *pushes.NotificationRow) { ToDevices(devices)(0, n) })
	o.MustLease(t, n, n)
	return RowIDs(rows)
}

// MustBeAbout fails the test unless the time in the database is by ahead of its clock, but for what the test may take.
func (db *Bench) MustBeAbout(t *testing.T, what string, at int64, ahead time.Duration) {
	t.Helper()
	if now := db.Now(t); !Near(database.Time(at), now.Add(ahead)) {
		t.Errorf("%s is %v, want %v after %v", what, database.Time(at), ahead, now)
	}
}

// Term is longer than any test takes: no lease ends unless the test ends it.
const Term = 10 * time.Minute

// As returns the outbox of the process named owner.
func (db *Bench) As(owner string, edit ...func(*pushes.Options)) *Outbox {
	o := pushes.Options{Owner: owner, LeaseTerm: Term}
	for _, e := range edit {
		e(&o)
	}
	return &Outbox{db.Store.Outbox(o), db.Store.TopicsOf(o.Owner, o.LeaseTerm)}
}

// WriteNotifications writes n pushes of dispatch d's opening, due since a minute, as edit changes them.
func (db *Bench) WriteNotifications(
	t testing.TB, d dispatch.Dispatch, n int, edit func(int, *pushes.NotificationRow),
) []pushes.NotificationRow {
	t.Helper()
	now := time.Now()
	rows := make([]pushes.NotificationRow, n)
	for i := range rows {
		rows[i] = pushes.NotificationRow{
			ID: dispatch.NewNotificationID(now), EventID: dispatch.NewEventID(now), DispatchID: d.ID, Round: d.Round,
			Type: dispatch.EventOpened, DueAt: database.Micros(now.Add(-time.Minute)) + int64(i), At: database.Micros(now),
			ExpiresAt: database.Micros(d.ExpiresAt), CreatedAt: database.Micros(now),
		}
		if edit != nil {
			edit(i, &rows[i])
		}
		if rows[i].State == pushes.StatePending {
			rows[i].Priority = outbox.PriorityOf(rows[i].Type, rows[i].Silent)
		}
	}
	db.Write(t, rows)
	return rows
}

// ToDevices is an edit of notifications: the i-th is for the i-th device.
func ToDevices(devices []dispatch.Device) func(int, *pushes.NotificationRow) {
	return func(i int, n *pushes.NotificationRow) { n.DeviceID, n.DriverID = devices[i].ID, devices[i].Driver }
}

// RowIDs returns the identifiers of notifications.
func RowIDs(rows []pushes.NotificationRow) []dispatch.NotificationID {
	return Collect(rows, func(n pushes.NotificationRow) dispatch.NotificationID { return n.ID })
}

// MustLease has o lease so many notifications, with room for limit.
func (o *Outbox) MustLease(t testing.TB, limit, want int) []outbox.Push {
	t.Helper()
	pushes, _, err := o.LeaseNotifications(t.Context(), limit)
	if err != nil || len(pushes) != want {
		t.Fatalf("%s leased %d pushes, %v; want %d", o.Owner, len(pushes), err, want)
	}
	return pushes
}

// MustLeaseEvents has o lease so many events, with room for limit.
func (o *Outbox) MustLeaseEvents(t testing.TB, limit, want int) []dispatch.EventID {
	t.Helper()
	events, err := o.LeaseEvents(t.Context(), limit)
	if err != nil || len(events) != want {
		t.Fatalf("%s leased the events %v, %v; want %d", o.Owner, events, err, want)
	}
	return events
}

// MustRecord records the result for each of the pushes.
func (o *Outbox) MustRecord(t testing.TB, result outbox.SendResult, ids ...dispatch.NotificationID) {
	t.Helper()
	Must(t, o.RecordResults(t.Context(), Collect(ids, func(id dispatch.NotificationID) outbox.SendResult {
		result.ID = id
		return result
	}), nil))
}

// Stored returns the notification as it is stored.
func (db *Bench) Stored(t testing.TB, id dispatch.NotificationID) pushes.NotificationRow {
	t.Helper()
	var row pushes.NotificationRow
	Must(t, db.Serve.With(t.Context()).Where("id = ?", id).Take(&row).Error)
	return row
}

// EventLease is the lease of an event: its owner, and its end in microseconds. The end is 0 once the event is expanded.
type EventLease struct {
	Claim  string
	NextAt int64
}

// LeaseOf returns the event's lease.
func (db *Bench) LeaseOf(t testing.TB, event dispatch.EventID) (found EventLease) {
	t.Helper()
	Must(t, db.Serve.With(t.Context()).Raw("SELECT claim, COALESCE(next_at, 0) next_at FROM events WHERE id = ?", event).Take(&found).Error)
	return found
}

// Now is the database's.
func (db *Bench) Now(t testing.TB) time.Time {
	t.Helper()
	now, err := database.Clock(db.Serve.With(t.Context()))
	Must(t, err)
	return now
}

// ManyEvents writes n due events, the i-th one i microseconds after the first.
func (db *Bench) ManyEvents(t testing.TB, n int) []dispatch.EventID {
	t.Helper()
	now := db.Now(t).Add(-time.Minute)
	rows, events := make([]journal.EventRow, n), make([]dispatch.EventID, n)
	for i := range rows {
		rows[i] = journal.EventRow{
			ID:         dispatch.NewEventID(now),
			DispatchID: "dsp_many",
			At:         database.Micros(now),
			NextAt:     new(database.Micros(now) + int64(i)),
		}
		events[i] = rows[i].ID
	}
	db.Write(t, rows)
	return events
}

// Instances are the outboxes of n processes, two of them in each Store.
func (db *Bench) Instances(t testing.TB, n int) []*Outbox {
	t.Helper()
	outboxes := make([]*Outbox, n)
	var in *Bench
	for i := range outboxes {
		if i%2 == 0 {
			in = db.With(t, func(*repository.Options) {})
		}
		outboxes[i] = in.As(fmt.Sprintf("ins_%d", i))
	}
	return outboxes
}

// Drain has all instances lease at once until no row is due, and fails unless each of want was leased once.
func Drain[K comparable](t *testing.T, db *Bench, outboxes []*Outbox, want []K, lease func(*Outbox) ([]K, error)) {
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
	if server := !db.SQLite(); len(times) != len(want) || server && len(lessees) < 2 {
		t.Errorf("%d were leased, want %d; by %v", len(times), len(want), lessees)
	}
}
