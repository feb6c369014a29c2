//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package poll_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/dispatch/outbox"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/repository/poll"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

// A poll tells when the first row of each kind is due, and the zero time if none waits.
func TestPoll(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		read := func(jobs ...string) poll.Waiting {
			t.Helper()
			l, err := db.Poll.Waiting(t.Context(), 0, jobs)
			Must(t, err)
			read := *l
			read.ReadAt, read.Now = time.Time{}, time.Time{}
			return read
		}
		testkit.Equal(t, "of an empty database", poll.Waiting{}, read())
		db.Known(t, Report, "other")
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		won := db.Add(t, Later(1))
		db.MustAccept(t, won.ID, v.ID)
		at := func(n int) time.Time { return time.Date(2030, 1, 1, 0, 0, n, 0, time.UTC) }
		db.Exec(t, "UPDATE events SET next_at = ?", database.Micros(at(1)))
		db.Exec(t, "UPDATE dispatches SET expires_at = ? WHERE id = ?", database.Micros(at(2)), d.ID)
		db.Exec(t, "UPDATE dispatches SET work_starts_at = ? WHERE id = ?", database.Micros(at(3)), won.ID)
		db.WriteNotification(t, d.ID, func(n *pushes.NotificationRow) { n.State, n.DueAt = pushes.StatePending, database.Micros(at(4)) })
		db.Exec(t, "INSERT INTO webhook_events (dispatch_id, event_id) VALUES (?, 'evt_')", d.ID)
		db.AddTopic(t, TopicRow{Name: outbox.TopicOf(d.ID), NextAt: database.Micros(at(5))})
		run := db.MustBegin(t, "a/1", SomeSlot(1))
		db.Exec(t, "UPDATE job_runs SET alive_until = ?", database.Micros(at(6)))
		want := poll.Waiting{Events: at(1), Expiry: at(2), Work: at(3), Notifications: at(4), Topics: at(5), Run: at(6), Unwritten: true}
		testkit.Equal(t, "of rows that are due later", want, read(Report, "other"))

		Must(t, ErrorOf(db.RequestRun(t.Context(), "other", "key_1")))
		want.Run = database.Time(0)
		testkit.Equal(t, "with a requested run", want, read(Report, "other"))
		want.Run = at(6)
		testkit.Equal(t, "with a requested run of another process's job", want, read(Report))
		want.Run = time.Time{}
		testkit.Equal(t, "of a process without jobs", want, read())

		db.Exec(t, "UPDATE job_runs SET status = 'SUCCEEDED' WHERE job = 'other'")
		db.MustEnd(t, run, cronjob.Succeeded)
		db.Exec(t, "UPDATE events SET next_at = NULL")
		db.Exec(t, "DELETE FROM webhook_events")
		for _, table := range []string{"notifications", "topics"} {
			db.Exec(t, "UPDATE "+table+" SET state = 1")
		}
		db.Exec(t, "UPDATE dispatches SET status = 'CANCELED'")
		testkit.Equal(t, "after all is done", poll.Waiting{}, read(Report, "other"))
	})
}

// The relay gets times by the process's clock, from a poll that is a second old at most.
func TestDue(t *testing.T) {
	url := Pooled(t, servertest.SQLite).URL
	testkit.Bubble(t, func(t *testing.T) {
		db := (&Bench{URL: url}).By(OpenPatient(t, url))
		db.Add(t, nil)
		Must(t, db.Work.With(t.Context()).Exec("UPDATE events SET next_at = ?", database.Micros(time.Now().Add(3*time.Second))).Error)
		due := func() outbox.Due {
			t.Helper()
			due, err := db.Poll.Due(t.Context())
			Must(t, err)
			return due
		}
		began := time.Now()
		first := outbox.Due{ReadAt: began, Events: began.Add(3 * time.Second)}
		testkit.Equal(t, "what is due", first, due())
		Must(t, db.Work.With(t.Context()).Exec("UPDATE events SET next_at = ?", database.Micros(began.Add(time.Second))).Error)
		time.Sleep(poll.MaxAge - 1)
		testkit.Equal(t, "what was due", first, due())
		time.Sleep(time.Nanosecond)
		testkit.Equal(t, "what is due now", outbox.Due{ReadAt: time.Now(), Events: began.Add(time.Second)}, due())
		// The database's clock is an hour ahead.
		db.Keep(&poll.Waiting{ReadAt: time.Now(), Now: time.Now().Add(time.Hour), Topics: time.Now().Add(time.Hour + time.Minute)})
		testkit.Equal(t, "what is due later", outbox.Due{ReadAt: time.Now(), Topics: time.Now().Add(time.Minute)}, due())
	})
}

// Relay and jobs share one poll, which costs one statement. The scheduler always reads a new one.
func TestPollsAreShared(t *testing.T) {
	url := Pooled(t, servertest.SQLite).URL
	testkit.Bubble(t, func(t *testing.T) { // where no poll gets old by itself
		db, w := (&Bench{URL: url}).Counting(t)
		var polling sync.WaitGroup
		for range 20 {
			polling.Go(func() {
				_, err := db.Poll.Due(t.Context())
				Must(t, errors.Join(err, ErrorOfPage(db.Next(t.Context()))))
			})
		}
		polling.Wait()
		testkit.Equal(t, "statements of twenty", 1, len(w.Take()))
		Must(t, ErrorOfPage(db.NextOpenRun(t.Context(), nil)))
		testkit.Equal(t, "statements of the scheduler", 1, len(w.Take()))
	})
}

// A poll that fails is shared with nobody, and nobody waits for it longer than for a context.
func TestPollThatFails(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		Must(t, ErrorOfPage(db.NextOpenRun(t.Context(), nil)))
		db.Without(t, "topics", func() {
			MustBeError(t, "a poll", ErrorOf(db.Poll.Waiting(t.Context(), 0, nil)), dispatch.ErrUnavailable)
			MustBeError(t, "one that may be old", ErrorOfPage(db.Next(t.Context())), dispatch.ErrUnavailable)
		})
		Must(t, ErrorOf(db.Poll.Waiting(t.Context(), 0, nil)))
		done := db.Busy() // another poll is under way
		ended, end := context.WithCancel(t.Context())
		end()
		MustBeError(t, "one that waits", ErrorOf(db.Poll.Waiting(ended, 0, nil)), dispatch.ErrUnavailable)
		done()
	})
}

// While a table is locked, polls wait for it. The database takes writes all the same.
func TestProbeWhileATableIsLocked(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		db.NotOnTiDB(t, "LOCK TABLES")
		locking, err := db.Raw.Conn(t.Context())
		Must(t, err)
		defer locking.Close()
		Must(t, ErrorOf(locking.ExecContext(t.Context(), "LOCK TABLES topics WRITE")))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		MustBeError(t, "a poll", ErrorOf(db.Poll.Waiting(ctx, 0, nil)), dispatch.ErrUnavailable)
		db.MustProbeUp(t, "a table is locked")
		Must(t, ErrorOf(locking.ExecContext(t.Context(), "UNLOCK TABLES")))
	})
}

// While a poll waits for a locked table, the ledger of jobs can be read. A poll that waits too long ends in the server, too.
func TestPollThatWaits(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		db.NotOnTiDB(t, "LOCK TABLES")
		locking, err := db.Raw.Conn(t.Context())
		Must(t, err)
		defer locking.Close()
		Must(t, ErrorOf(locking.ExecContext(t.Context(), "LOCK TABLES topics WRITE")))
		waiting := func() bool {
			return slices.ContainsFunc(servertest.Sessions(t, db.Raw), func(s servertest.Session) bool { return strings.Contains(s.Statement, "ix_topics_due") })
		}
		quick := db.By(OpenWith(t, db.URL, repository.Options{Log: Quiet, Patience: time.Second})) // a server's limits are whole seconds
		MustBeError(t, "a poll of little patience", ErrorOf(quick.Poll.Waiting(t.Context(), 0, nil)), dispatch.ErrUnavailable)
		testkit.Eventually(t, "the server has ended it", func() bool { return !waiting() })

		polled := make(chan error, 1)
		go func() { polled <- ErrorOf(db.Poll.Waiting(t.Context(), 0, nil)) }()
		testkit.Eventually(t, "a patient poll waits", waiting)
		Must(t, ErrorOfPage(db.JobStates(t.Context(), []string{Report})))
		select {
		case err := <-polled:
			t.Errorf("the ledger was read after the poll: %v", err)
			return
		default:
		}
		Must(t, ErrorOf(locking.ExecContext(t.Context(), "UNLOCK TABLES")))
		Must(t, testkit.Await(t, "the poll ends", polled))
	})
}

// A poll reads a few rows, however many are due or done.
func TestPlanOfAPoll(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		d := db.Add(t, nil)
		db.Backlogged(t, d, Backlog)
		db.Ran(t)
		db.Elsewhere(t, 500)
		db.Exec(t, "ANALYZE TABLE dispatches, topics")
		jobs := []string{Report, "other"}
		db.MustReadFew(t, map[string]Reading{
			"a poll":         {Do: func() error { return ErrorOf(db.Poll.Waiting(t.Context(), 0, jobs)) }, Most: 50},
			"states of jobs": {Do: func() error { return ErrorOfPage(db.JobStates(t.Context(), jobs)) }, Most: 50},
		})
	})
}
