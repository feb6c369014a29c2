package repositorytest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/repository"
	"firsttap/repository/database"
)

// Pass lets the dispatch's window pass.
func (db *Bench) Pass(t testing.TB, id dispatch.ID) {
	t.Helper()
	db.Exec(t, "UPDATE dispatches SET opens_at = 1, expires_at = 2 WHERE id = ?", id)
}

// MustSkip fails the test if c changes the dispatch after that has happened to it.
func (c Clockwork) MustSkip(t *testing.T, db *Bench, name string, id dispatch.ID, happens func(dispatch.ID)) {
	t.Helper()
	happens(id)
	before, events := db.MustRead(t, id), db.Count(t, "events")
	if n, err := c.Run(t.Context(), db.Store, 10); n != 0 || err != nil {
		t.Errorf("%s: %d, %v", name, n, err)
	}
	if got := db.MustRead(t, id); got.Version != before.Version || db.Count(t, "events") != events {
		t.Errorf("%s: %+v", name, got)
	}
}

// When drivers are reminded, and work is overdue.
const (
	RemindBefore = time.Hour
	OverdueAfter = 24 * time.Hour
)

// Clockwork is a change of dispatches that is made when it is due.
type Clockwork struct {
	Name  string
	Event dispatch.EventType
	// ready adds n dispatches that it is time for, the i-th the i-th to be changed.
	Ready func(t testing.TB, db *Bench, n int) []dispatch.ID
	Run   func(ctx context.Context, s *repository.Store, limit int) (int, error)
}

// Clockworks are the changes that time makes.
var Clockworks = []Clockwork{
	{"ExpireOffers", dispatch.EventExpired, func(t testing.TB, db *Bench, n int) []dispatch.ID {
		ids := make([]dispatch.ID, n)
		for i := range ids {
			ids[i] = db.Add(t, nil).ID
			db.Exec(t, "UPDATE dispatches SET opens_at = 1, expires_at = ? WHERE id = ?", 2+i, ids[i])
		}
		return ids
	}, func(ctx context.Context, s *repository.Store, limit int) (int, error) {
		return s.Due.ExpireOffers(ctx, limit)
	}},
	{"Remind", dispatch.EventReminder, func(t testing.TB, db *Bench, n int) []dispatch.ID {
		ids := db.Taken(t, n)
		for i, id := range ids {
			db.WorksIn(t, id, 10*time.Minute+time.Duration(i)*time.Second)
		}
		return ids
	}, func(ctx context.Context, s *repository.Store, limit int) (int, error) {
		return s.Due.WriteReminders(ctx, RemindBefore, limit)
	}},
	{"CloseOverdue", dispatch.EventCanceled, func(t testing.TB, db *Bench, n int) []dispatch.ID {
		ids := db.Taken(t, n)
		for i, id := range ids {
			db.WorksIn(t, id, -OverdueAfter-2*time.Hour+time.Duration(i)*time.Second)
		}
		return ids
	}, func(ctx context.Context, s *repository.Store, limit int) (int, error) {
		return s.Due.CloseOverdue(ctx, OverdueAfter, limit)
	}},
}

// Taken adds n dispatches, each accepted two days ago by a driver of its own.
func (db *Bench) Taken(t testing.TB, n int) []dispatch.ID {
	t.Helper()
	ids := make([]dispatch.ID, n)
	for i, v := range db.Fleet(t, n) {
		ids[i] = db.Add(t, nil).ID
		db.MustAccept(t, ids[i], v.ID)
		for table, key := range map[string]string{"dispatches": "id", "claims": "dispatch_id"} {
			db.Exec(t, "UPDATE "+table+" SET accepted_at = accepted_at - ? WHERE "+key+" = ?", (48 * time.Hour).Microseconds(), ids[i])
		}
	}
	return ids
}

// WorksIn has the work of a dispatch, an hour of it, start then.
func (db *Bench) WorksIn(t testing.TB, id dispatch.ID, d time.Duration) {
	t.Helper()
	starts := db.Now(t).Add(d)
	db.Exec(t, "UPDATE dispatches SET work_starts_at = ?, work_ends_at = ? WHERE id = ?", database.Micros(starts),
		database.Micros(starts.Add(time.Hour)), id)
}

// Change runs c, and fails unless it changes so many.
func (c Clockwork) Change(ctx context.Context, s *repository.Store, limit, want int) error {
	if n, err := c.Run(ctx, s, limit); n != want || err != nil {
		return fmt.Errorf("%s: %d, %w; want %d", c.Name, n, err, want)
	}
	return nil
}

// MustChange fails the test unless so many dispatches change.
func (c Clockwork) MustChange(t testing.TB, s *repository.Store, limit, want int) {
	t.Helper()
	if err := c.Change(t.Context(), s, limit, want); err != nil {
		t.Error(err)
	}
}

// MustHave fails the test unless each of the dispatches has so many of c's events, all to be expanded.
func (c Clockwork) MustHave(t testing.TB, db *Bench, want int, ids ...dispatch.ID) {
	t.Helper()
	for i, id := range ids {
		n := db.Count(t, "events WHERE dispatch_id = ? AND type = ?", id, c.Event)
		due := db.Count(t, "events WHERE dispatch_id = ? AND type = ? AND next_at IS NOT NULL", id, c.Event)
		if n != want || due != want {
			t.Errorf("%s: dispatch %d has %d events, %d to be expanded; want %d", c.Name, i, n, due, want)
		}
	}
}

// Moves is a change of a dispatch between the search for due dispatches and the lock.
type Moves struct {
	Name, Set string // of the row
	Also      string // a statement with the dispatch's identifier
}

// MustLeave fails the test unless c leaves dispatches alone that have changed meanwhile.
func (c Clockwork) MustLeave(t *testing.T, all ...Moves) {
	EachServer(t, func(t *testing.T, db *Bench) {
		for _, m := range all {
			t.Run(m.Name, func(t *testing.T) { c.MustLeaveOne(t, db, m) })
			db.Exec(t, "UPDATE dispatches SET status = 'CANCELED'")
		}
	})
}

// MustLeaveOne fails the test unless one dispatch is left as it was.
func (c Clockwork) MustLeaveOne(t *testing.T, db *Bench, m Moves) {
	id := c.Ready(t, db, 1)[0]
	tx, _ := db.Hold(t, id)
	ended := Begin(func() error { return c.Change(t.Context(), db.Store, 10, 0) })
	db.Waiting(t)
	events := db.Count(t, "events")
	for _, query := range []string{"UPDATE dispatches SET version = version + 1, " + m.Set + " WHERE id = ?", m.Also} {
		if query == "" {
			continue
		}
		Must(t, ErrorOf(tx.Exec(query, id)))
	}
	if m.Also != "" {
		events++
	}
	Must(t, tx.Commit())
	moved := db.MustRead(t, id)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := db.MustRead(t, id); got.Version != moved.Version || got.Status != moved.Status || db.Count(t, "events") != events {
		t.Errorf("the dispatch is %+v, was %+v", got, moved)
	}
}
