package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/servertest"
	"firsttap/testkit"
)

const (
	remindBefore = time.Hour
	overdueAfter = 24 * time.Hour
)

// clockwork is a change of dispatches that is made when it is due.
type clockwork struct {
	name  string
	event dispatch.EventType
	// ready adds n dispatches that it is time for, the i-th the i-th to be changed.
	ready func(t testing.TB, db *database, n int) []dispatch.ID
	run   func(ctx context.Context, s *Store, limit int) (int, error)
}

var clockworks = []clockwork{
	{"ExpireOffers", dispatch.EventExpired, func(t testing.TB, db *database, n int) []dispatch.ID {
		ids := make([]dispatch.ID, n)
		for i := range ids {
			ids[i] = db.add(t, nil).ID
			db.exec(t, "UPDATE dispatches SET opens_at = 1, expires_at = ? WHERE id = ?", 2+i, ids[i])
		}
		return ids
	}, func(ctx context.Context, s *Store, limit int) (int, error) { return s.ExpireOffers(ctx, limit) }},
	{"Remind", dispatch.EventReminder, func(t testing.TB, db *database, n int) []dispatch.ID {
		ids := db.taken(t, n)
		for i, id := range ids {
			db.worksIn(t, id, 10*time.Minute+time.Duration(i)*time.Second)
		}
		return ids
	}, func(ctx context.Context, s *Store, limit int) (int, error) {
		return s.WriteReminders(ctx, remindBefore, limit)
	}},
	{"CloseOverdue", dispatch.EventCanceled, func(t testing.TB, db *database, n int) []dispatch.ID {
		ids := db.taken(t, n)
		for i, id := range ids {
			db.worksIn(t, id, -overdueAfter-2*time.Hour+time.Duration(i)*time.Second)
		}
		return ids
	}, func(ctx context.Context, s *Store, limit int) (int, error) {
		return s.CloseOverdue(ctx, overdueAfter, limit)
	}},
}

// eachClockwork runs the test for each of them, on databases as each has them.
func eachClockwork(t *testing.T, on func(*testing.T, func(*testing.T, *database)), test func(*testing.T, *database, clockwork)) {
	t.Helper()
	t.Parallel()
	for _, c := range clockworks {
		t.Run(c.name, func(t *testing.T) {
			on(t, func(t *testing.T, db *database) { test(t, db, c) })
		})
	}
}

// taken adds n dispatches, each accepted two days ago by a driver of its own.
func (db *database) taken(t testing.TB, n int) []dispatch.ID {
	t.Helper()
	ids := make([]dispatch.ID, n)
	for i, v := range db.drivers(t, n) {
		ids[i] = db.add(t, nil).ID
		db.mustAccept(t, ids[i], v.ID)
		for table, key := range map[string]string{"dispatches": "id", "claims": "dispatch_id"} {
			db.exec(t, "UPDATE "+table+" SET accepted_at = accepted_at - ? WHERE "+key+" = ?", (48 * time.Hour).Microseconds(), ids[i])
		}
	}
	return ids
}

// worksIn has the work of a dispatch, an hour of it, start then.
func (db *database) worksIn(t testing.TB, id dispatch.ID, d time.Duration) {
	t.Helper()
	starts := db.now(t).Add(d)
	db.exec(t, "UPDATE dispatches SET work_starts_at = ?, work_ends_at = ? WHERE id = ?", micros(starts), micros(starts.Add(time.Hour)), id)
}

// change runs c, and fails unless it changes so many.
func (c clockwork) change(ctx context.Context, s *Store, limit, want int) error {
	if n, err := c.run(ctx, s, limit); n != want || err != nil {
		return fmt.Errorf("%s: %d, %w; want %d", c.name, n, err, want)
	}
	return nil
}

func (c clockwork) mustChange(t testing.TB, s *Store, limit, want int) {
	t.Helper()
	if err := c.change(t.Context(), s, limit, want); err != nil {
		t.Error(err)
	}
}

// mustHave fails the test unless each of the dispatches has so many of c's events, all to be expanded.
func (c clockwork) mustHave(t testing.TB, db *database, want int, ids ...dispatch.ID) {
	t.Helper()
	for i, id := range ids {
		n := db.count(t, "events WHERE dispatch_id = ? AND type = ?", id, c.event)
		due := db.count(t, "events WHERE dispatch_id = ? AND type = ? AND next_at IS NOT NULL", id, c.event)
		if n != want || due != want {
			t.Errorf("%s: dispatch %d has %d events, %d to be expanded; want %d", c.name, i, n, due, want)
		}
	}
}

// A call ends no more than its limit, the earliest first, and the next call goes on.
func TestDueInBatches(t *testing.T) {
	eachClockwork(t, each, func(t *testing.T, db *database, c clockwork) {
		ids := c.ready(t, db, 7)
		c.mustChange(t, db.Store, 0, 0)
		done := 0
		for _, n := range []int{3, 3, 1} {
			c.mustChange(t, db.Store, 3, n)
			done += n
			c.mustHave(t, db, 1, ids[:done]...)
			c.mustHave(t, db, 0, ids[done:]...)
		}
		c.mustChange(t, db.Store, 3, 0)
		c.mustHave(t, db, 1, ids...)
	})
}

// Of many concurrent calls one makes the change, and only that one reports it.
func TestDueOnce(t *testing.T) {
	eachClockwork(t, each, func(t *testing.T, db *database, c clockwork) {
		ids := c.ready(t, db, 10)
		stores := []*Store{db.Store, open(t, db.url)}
		var changed atomic.Int32
		mustAll(t, 6, func(i int) error {
			n, err := c.run(t.Context(), stores[i%2], 100)
			changed.Add(int32(n))
			return err
		})
		if int(changed.Load()) != len(ids) {
			t.Errorf("%d were changed, want %d", changed.Load(), len(ids))
		}
		c.mustHave(t, db, 1, ids...)
	})
}

// The process that commits an event announces it once.
func TestDueEventsAreAnnounced(t *testing.T) {
	eachClockwork(t, each, func(t *testing.T, db *database, c clockwork) {
		teller := db.by(open(t, db.url))
		teller.options.OutboxOwner, teller.options.OutboxLease = "ins_a", term
		var h heard
		h.listen(t, teller)
		id := c.ready(t, db, 1)[0]
		c.mustChange(t, teller.Store, 10, 1)
		if !slices.Equal(h.types(), []dispatch.EventType{c.event}) || !slices.Equal(h.stored, []int{1}) {
			t.Fatalf("announced %v, of which %v were committed", h.types(), h.stored)
		}
		e := h.events[0]
		if e.Dispatch != id || e.Round != 1 || e.Actor != dispatch.System || h.about[0].Version != db.mustRead(t, id).Version {
			t.Errorf("announced %+v with %+v", e, h.about[0])
		}
		if lease := db.leaseOf(t, e.ID); lease.Claim != "ins_a" || lease.NextAt == 0 {
			t.Errorf("born with the lease %+v", lease)
		}
		c.mustChange(t, teller.Store, 10, 0)
		if len(h.events) != 1 {
			t.Errorf("announced %v", h.types())
		}
	})
}

// The database's clock decides what is due, not the clock of the process.
func TestDueByTheDatabasesClock(t *testing.T) {
	for _, offset := range []time.Duration{-3 * time.Hour, 3 * time.Hour} {
		t.Run(offset.String(), func(t *testing.T) {
			t.Parallel()
			db := migrated(t, servertest.StartMariaDBSkewed(t, offset).URL(t))
			for _, c := range clockworks {
				db.add(t, nil)
				for _, id := range db.taken(t, 2) {
					db.worksIn(t, id, remindBefore+10*time.Minute)
				}
				c.mustChange(t, db.Store, 10, 0)
				ids := c.ready(t, db, 2)
				c.mustChange(t, db.Store, 10, 2)
				c.mustHave(t, db, 1, ids...)
				db.exec(t, "DELETE FROM dispatches")
			}
		})
	}
}

// A row that another session has locked is left for the next call; the others are not.
func TestDueAndHeld(t *testing.T) {
	eachClockwork(t, eachServer, func(t *testing.T, db *database, c clockwork) {
		ids := c.ready(t, db, 3)
		_, release := db.hold(t, ids[0])
		n, err := c.run(t.Context(), db.impatient(t).Store, 10)
		if n != 2 || !errors.Is(err, dispatch.ErrUnavailable) || !strings.Contains(err.Error(), string(ids[0])) {
			t.Errorf("%d, %v; want 2, and that %s could not be", n, err, ids[0])
		}
		c.mustHave(t, db, 0, ids[0])
		c.mustHave(t, db, 1, ids[1:]...)
		release()
		c.mustChange(t, db.Store, 10, 1)
		c.mustHave(t, db, 1, ids...)
	})
}

// It does not go on for long with a database that is of no use, nor after its context has ended.
func TestDueGivesUp(t *testing.T) {
	failures := func(err error) int {
		var all interface{ Unwrap() []error }
		if !errors.As(err, &all) || !errors.Is(err, dispatch.ErrUnavailable) {
			return 0
		}
		return len(all.Unwrap())
	}
	eachClockwork(t, each, func(t *testing.T, db *database, c clockwork) {
		ids := c.ready(t, db, maxFailures+2)
		var n int
		var err error
		again := func() { n, err = c.run(t.Context(), db.Store, 100) }
		db.withoutColumn(t, "events", "claim", again)
		if n != 0 || failures(err) != maxFailures {
			t.Errorf("%d, %d failures: %v", n, failures(err), err)
		}
		c.mustHave(t, db, 0, ids...)
		db.without(t, "dispatches", again)
		if n != 0 || !errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("%d, %v; want %v", n, err, dispatch.ErrUnavailable)
		}
		if db.dialect.text.sqlite {
			return // a SQLite transaction locks the file, and no query tells who waits for it
		}
		db.hold(t, ids[0])
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := begin(func() error { return errorOf(c.run(ctx, db.Store, 100)) })
		db.waiting(t)
		stop()
		if err := <-ended; failures(err) != 1 {
			t.Errorf("after its context ended: %v", err)
		}
		c.mustHave(t, db, 0, ids...)
	})
}

// Another transaction holds the rows of its events and then wants the dispatch: the deadlock's victim tries again.
func TestDueAndADeadlock(t *testing.T) {
	eachClockwork(t, everyServer, func(t *testing.T, db *database, c clockwork) {
		db.notOnTiDB(t, "gap locks, for which the insert of an event would wait")
		ids := c.ready(t, db, 2)
		db.manyEvents(t, 500)
		// It has written the most, so the server does not roll it back.
		tx := db.begun(t, "UPDATE events SET next_at = next_at + 1", "SELECT * FROM events FOR UPDATE")
		ended := begin(func() error { return c.change(t.Context(), db.Store, 1, 1) })
		db.waiting(t)
		must(t, errorOf(tx.Exec("UPDATE dispatches SET note = note WHERE id = ?", ids[0])))
		// Both waited for each other, and this one got through.
		tx.Rollback()
		must(t, <-ended) // it was done again
		c.mustChange(t, db.Store, 10, 1)
		c.mustHave(t, db, 1, ids...)
	})
}

// The reply to the first COMMIT is lost: the database says that the change is committed. It is not repeated, and the others follow.
func TestDueAndTheReplyOfTheCommitIsLost(t *testing.T) {
	eachClockwork(t, eachServer, func(t *testing.T, db *database, c clockwork) {
		ids := c.ready(t, db, 2)
		s, proxy := db.proxied(t)
		cut := proxy.CutReply("COMMIT")
		n, err := c.run(t.Context(), s, 10)
		testkit.Await(t, "the cut", cut.Done())
		if n != len(ids) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		c.mustHave(t, db, 1, ids...)
		c.mustChange(t, s, 10, 0)
		c.mustHave(t, db, 1, ids...)
	})
}

// moves is a change of a dispatch between the search for due dispatches and the lock.
type moves struct {
	name, set string // of the row
	also      string // a statement with the dispatch's identifier
}

// mustLeave fails the test unless c leaves dispatches alone that have changed meanwhile.
func (c clockwork) mustLeave(t *testing.T, all ...moves) {
	eachServer(t, func(t *testing.T, db *database) {
		for _, m := range all {
			t.Run(m.name, func(t *testing.T) { c.mustLeaveOne(t, db, m) })
			db.exec(t, "UPDATE dispatches SET status = 'CANCELED'")
		}
	})
}

func (c clockwork) mustLeaveOne(t *testing.T, db *database, m moves) {
	id := c.ready(t, db, 1)[0]
	tx, _ := db.hold(t, id)
	ended := begin(func() error { return c.change(t.Context(), db.Store, 10, 0) })
	db.waiting(t)
	events := db.count(t, "events")
	for _, query := range []string{"UPDATE dispatches SET version = version + 1, " + m.set + " WHERE id = ?", m.also} {
		if query == "" {
			continue
		}
		must(t, errorOf(tx.Exec(query, id)))
	}
	if m.also != "" {
		events++
	}
	must(t, tx.Commit())
	moved := db.mustRead(t, id)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := db.mustRead(t, id); got.Version != moved.Version || got.Status != moved.Status || db.count(t, "events") != events {
		t.Errorf("the dispatch is %+v, was %+v", got, moved)
	}
}
