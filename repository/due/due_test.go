package due_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/repository"
	"firsttap/repository/due"
	. "firsttap/repository/repositorytest"
)

// eachClockwork runs the test for each of them, on databases as each has them.
func eachClockwork(t *testing.T, on func(*testing.T, func(*testing.T, *Bench)), test func(*testing.T, *Bench, Clockwork)) {
	t.Helper()
	t.Parallel()
	for _, c := range Clockworks {
		t.Run(c.Name, func(t *testing.T) {
			on(t, func(t *testing.T, db *Bench) { test(t, db, c) })
		})
	}
}

// A call ends no more than its limit, the earliest first, and the next call goes on.
func TestDueInBatches(t *testing.T) {
	eachClockwork(t, Each, func(t *testing.T, db *Bench, c Clockwork) {
		ids := c.Ready(t, db, 7)
		c.MustChange(t, db.Store, 0, 0)
		done := 0
		for _, n := range []int{3, 3, 1} {
			c.MustChange(t, db.Store, 3, n)
			done += n
			c.MustHave(t, db, 1, ids[:done]...)
			c.MustHave(t, db, 0, ids[done:]...)
		}
		c.MustChange(t, db.Store, 3, 0)
		c.MustHave(t, db, 1, ids...)
	})
}

// Of many concurrent calls one makes the change, and only that one reports it.
func TestDueOnce(t *testing.T) {
	eachClockwork(t, Each, func(t *testing.T, db *Bench, c Clockwork) {
		ids := c.Ready(t, db, 10)
		stores := []*repository.Store{db.Store, OpenPatient(t, db.URL)}
		var changed atomic.Int32
		MustAll(t, 6, func(i int) error {
			n, err := c.Run(t.Context(), stores[i%2], 100)
			changed.Add(int32(n))
			return err
		})
		if int(changed.Load()) != len(ids) {
			t.Errorf("%d were changed, want %d", changed.Load(), len(ids))
		}
		c.MustHave(t, db, 1, ids...)
	})
}

// The database's clock decides what is due, not the clock of the process.
func TestDueByTheDatabasesClock(t *testing.T) {
	for _, offset := range []time.Duration{-3 * time.Hour, 3 * time.Hour} {
		t.Run(offset.String(), func(t *testing.T) {
			t.Parallel()
			db := Migrated(t, servertest.StartMariaDBSkewed(t, offset).URL(t))
			for _, c := range Clockworks {
				db.Add(t, nil)
				for _, id := range db.Taken(t, 2) {
					db.WorksIn(t, id, RemindBefore+10*time.Minute)
				}
				c.MustChange(t, db.Store, 10, 0)
				ids := c.Ready(t, db, 2)
				c.MustChange(t, db.Store, 10, 2)
				c.MustHave(t, db, 1, ids...)
				db.Exec(t, "DELETE FROM dispatches")
			}
		})
	}
}

// A row that another session has locked is left for the next call; the others are not.
func TestDueAndHeld(t *testing.T) {
	eachClockwork(t, EachServer, func(t *testing.T, db *Bench, c Clockwork) {
		ids := c.Ready(t, db, 3)
		_, release := db.Hold(t, ids[0])
		n, err := c.Run(t.Context(), db.Impatient(t).Store, 10)
		if n != 2 || !errors.Is(err, dispatch.ErrUnavailable) || !strings.Contains(err.Error(), string(ids[0])) {
			t.Errorf("%d, %v; want 2, and that %s could not be", n, err, ids[0])
		}
		c.MustHave(t, db, 0, ids[0])
		c.MustHave(t, db, 1, ids[1:]...)
		release()
		c.MustChange(t, db.Store, 10, 1)
		c.MustHave(t, db, 1, ids...)
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
	eachClockwork(t, Each, func(t *testing.T, db *Bench, c Clockwork) {
		ids := c.Ready(t, db, due.MaxFailures+2)
		var n int
		var err error
		again := func() { n, err = c.Run(t.Context(), db.Store, 100) }
		db.WithoutColumn(t, "events", "claim", again)
		if n != 0 || failures(err) != due.MaxFailures {
			t.Errorf("%d, %d failures: %v", n, failures(err), err)
		}
		c.MustHave(t, db, 0, ids...)
		db.Without(t, "dispatches", again)
		if n != 0 || !errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("%d, %v; want %v", n, err, dispatch.ErrUnavailable)
		}
		if db.SQLite() {
			return // a SQLite transaction locks the file, and no query tells who waits for it
		}
		db.Hold(t, ids[0])
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := Begin(func() error { return ErrorOf(c.Run(ctx, db.Store, 100)) })
		db.Waiting(t)
		stop()
		if err := <-ended; failures(err) != 1 {
			t.Errorf("after its context ended: %v", err)
		}
		c.MustHave(t, db, 0, ids...)
	})
}
