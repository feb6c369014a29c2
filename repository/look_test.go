package repository

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gorm.io/gorm"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/servertest"
	"firsttap/testkit"
)

// A look tells when the first row of each kind is due, and the zero time if none waits.
func TestLook(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		read := func(jobs ...string) look {
			t.Helper()
			l, err := db.look(t.Context(), 0, jobs)
			must(t, err)
			read := *l
			read.SentAt, read.ReadAt, read.Now = time.Time{}, time.Time{}, time.Time{}
			return read
		}
		testkit.Equal(t, "of an empty database", look{}, read())
		db.known(t, report, "other")
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		won := db.add(t, later(1))
		db.mustAccept(t, won.ID, v.ID)
		at := func(n int) time.Time { return time.Date(2030, 1, 1, 0, 0, n, 0, time.UTC) }
		db.exec(t, "UPDATE events SET next_at = ?", micros(at(1)))
		db.exec(t, "UPDATE dispatches SET expires_at = ? WHERE id = ?", micros(at(2)), d.ID)
		db.exec(t, "UPDATE dispatches SET work_starts_at = ? WHERE id = ?", micros(at(3)), won.ID)
		db.notification(t, d.ID, func(n *notificationRow) { n.State, n.DueAt = statePending, micros(at(4)) })
		db.addTopic(t, topicRow{Name: outbox.TopicOf(d.ID), NextAt: micros(at(5))})
		run := db.mustBegin(t, "a/1", someSlot(1))
		db.exec(t, "UPDATE job_runs SET alive_until = ?", micros(at(6)))
		want := look{Events: at(1), Expiry: at(2), Work: at(3), Notifications: at(4), Topics: at(5), Run: at(6), Unwritten: true}
		testkit.Equal(t, "of rows that are due later", want, read(report, "other"))

		must(t, errorOf(db.RequestRun(t.Context(), "other", "key_1")))
		want.Run = fromMicros(0)
		testkit.Equal(t, "with a requested run", want, read(report, "other"))
		want.Run = at(6)
		testkit.Equal(t, "with a requested run of another process's job", want, read(report))
		want.Run = time.Time{}
		testkit.Equal(t, "of a process without jobs", want, read())

		db.exec(t, "UPDATE job_runs SET status = 'SUCCEEDED' WHERE job = 'other'")
		db.mustEnd(t, run, cronjob.Succeeded)
		db.exec(t, "UPDATE events SET next_at = NULL")
		db.exec(t, "DELETE FROM webhook_events")
		for _, table := range []string{"notifications", "topics"} {
			db.exec(t, "UPDATE "+table+" SET state = 1")
		}
		db.exec(t, "UPDATE dispatches SET status = 'CANCELED'")
		testkit.Equal(t, "after all is done", look{}, read(report, "other"))
	})
}

// The relay gets times by the process's clock, from a look that is a second old at most.
func TestDue(t *testing.T) {
	url := pooled(t, servertest.SQLite).url
	synctest.Test(t, func(t *testing.T) {
		db := (&database{url: url}).by(open(t, url))
		db.add(t, nil)
		must(t, db.work.Exec("UPDATE events SET next_at = ?", micros(time.Now().Add(3*time.Second))).Error)
		due := func() outbox.Due {
			t.Helper()
			due, err := db.as("ins_a").Due(t.Context())
			must(t, err)
			return due
		}
		began := time.Now()
		first := outbox.Due{ReadAt: began, Events: began.Add(3 * time.Second)}
		testkit.Equal(t, "what is due", first, due())
		must(t, db.work.Exec("UPDATE events SET next_at = ?", micros(began.Add(time.Second))).Error)
		time.Sleep(maxLookAge - 1)
		testkit.Equal(t, "what was due", first, due())
		time.Sleep(time.Nanosecond)
		testkit.Equal(t, "what is due now", outbox.Due{ReadAt: time.Now(), Events: began.Add(time.Second)}, due())
		// The database's clock is an hour ahead.
		db.looks.latest.Store(&look{ReadAt: time.Now(), Now: time.Now().Add(time.Hour), Topics: time.Now().Add(time.Hour + time.Minute)})
		testkit.Equal(t, "what is due later", outbox.Due{ReadAt: time.Now(), Topics: time.Now().Add(time.Minute)}, due())
	})
}

// Relay, jobs and probe share one look, which costs one statement. The scheduler always reads a new one.
func TestLooksAreShared(t *testing.T) {
	url := pooled(t, servertest.SQLite).url
	synctest.Test(t, func(t *testing.T) { // where no look gets old by itself
		db, w := (&database{url: url}).counting(t)
		o := db.as("ins_a")
		var looking sync.WaitGroup
		for range 20 {
			looking.Go(func() {
				_, err := o.Due(t.Context())
				_, expiry := db.NextExpiry(t.Context())
				_, work := db.NextWork(t.Context())
				must(t, errors.Join(err, expiry, work))
			})
		}
		looking.Wait()
		testkit.Equal(t, "statements of twenty", 1, len(w.take()))
		must(t, errorOfPage(db.NextOpenRun(t.Context(), nil)))
		testkit.Equal(t, "statements of the scheduler", 1, len(w.take()))
		if !db.Probe(t.Context()).Up() {
			t.Error("the probe is down")
		}
		testkit.Equal(t, "statements of the probe", 0, len(w.take()))
	})
}

// A look that fails is shared with nobody, and nobody waits for it longer than for a context.
func TestLookThatFails(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		must(t, errorOfPage(db.NextOpenRun(t.Context(), nil)))
		db.without(t, "topics", func() {
			mustBeError(t, "a look", errorOf(db.look(t.Context(), 0, nil)), dispatch.ErrUnavailable)
			mustBeError(t, "one that may be old", errorOf(db.NextWork(t.Context())), dispatch.ErrUnavailable)
		})
		must(t, errorOf(db.look(t.Context(), 0, nil)))
		db.looks.looking <- struct{}{} // another look is under way
		ended, end := context.WithCancel(t.Context())
		end()
		mustBeError(t, "one that waits", errorOf(db.look(ended, 0, nil)), dispatch.ErrUnavailable)
		<-db.looks.looking
	})
}

// While a table is locked, looks wait for it. The database takes writes all the same.
func TestProbeWhileATableIsLocked(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "LOCK TABLES")
		locking, err := db.raw.Conn(t.Context())
		must(t, err)
		defer locking.Close()
		must(t, errorOf(locking.ExecContext(t.Context(), "LOCK TABLES topics WRITE")))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		mustBeError(t, "a look", errorOf(db.look(ctx, 0, nil)), dispatch.ErrUnavailable)
		db.mustProbeUp(t, "a table is locked")
		must(t, errorOf(locking.ExecContext(t.Context(), "UNLOCK TABLES")))
	})
}

// While a look waits for a locked table, the ledger of jobs can be read. A look that waits too long ends in the server, too.
func TestLookThatWaits(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "LOCK TABLES")
		locking, err := db.raw.Conn(t.Context())
		must(t, err)
		defer locking.Close()
		must(t, errorOf(locking.ExecContext(t.Context(), "LOCK TABLES topics WRITE")))
		waiting := func() bool {
			return slices.ContainsFunc(servertest.Sessions(t, db.raw), func(s servertest.Session) bool { return strings.Contains(s.Statement, "ix_topics_due") })
		}
		quick := db.by(openWith(t, db.url, Options{Log: quiet, Patience: time.Second})) // a server's limits are whole seconds
		mustBeError(t, "a look of little patience", errorOf(quick.look(t.Context(), 0, nil)), dispatch.ErrUnavailable)
		testkit.Eventually(t, "the server has ended it", func() bool { return !waiting() })

		looked := make(chan error, 1)
		go func() { looked <- errorOf(db.look(t.Context(), 0, nil)) }()
		testkit.Eventually(t, "a patient look waits", waiting)
		must(t, errorOfPage(db.JobStates(t.Context(), []string{report})))
		select {
		case err := <-looked:
			t.Errorf("the ledger was read after the look: %v", err)
			return
		default:
		}
		must(t, errorOf(locking.ExecContext(t.Context(), "UNLOCK TABLES")))
		must(t, testkit.Await(t, "the look ends", looked))
	})
}

// A look reads a few rows, however many are due or done.
func TestPlanOfALook(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		db.backlogged(t, d, backlog)
		db.ran(t)
		db.elsewhere(t, 500)
		db.exec(t, "ANALYZE TABLE dispatches, topics")
		for _, s := range statements(t, []*gorm.DB{db.watch}, func() {
			must(t, errorOf(db.look(t.Context(), 0, []string{report, "other"})))
			_, _, err := db.JobStates(t.Context(), []string{report, "other"})
			must(t, err)
		}) {
			if n := db.rowsRead(t, s); n > 50 {
				t.Errorf("%d rows are read for %s", n, s)
			}
		}
	})
}
