package repository

import (
	"context"
	"errors"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/servertest"
	"firsttap/testkit"
)

// mustLose has the reply to the statement in do get lost, and fails the test unless do fails with want.
func mustLose(t *testing.T, proxy *servertest.Proxy, statement string, want error, do func() error) {
	t.Helper()
	cut := proxy.CutReply(statement)
	err := do()
	testkit.Await(t, "the cut of "+statement, cut.Done())
	mustBeError(t, "the reply to "+statement+" is lost", err, want)
}

// untilCommit begins do, and returns when its COMMIT waits at the proxy.
func untilCommit(t testing.TB, proxy *servertest.Proxy, do func() error) (commit *servertest.Hold, ended <-chan error) {
	t.Helper()
	commit = proxy.Hold("COMMIT")
	ended = begin(do)
	testkit.Await(t, "the COMMIT", commit.Reached())
	return commit, ended
}

// An instance that does not know whether its run began gives it back, and any instance may take it over.
func TestBeginRunWhoseCommitIsLost(t *testing.T) {
	eachServer(t, withJob(func(t *testing.T, db *database) {
		s, proxy := db.proxied(t)
		mustLose(t, proxy, "COMMIT", dispatch.ErrUnknown, func() error { return errorOf(s.begin(t, "a/1", someSlot(1))) })
		if _, row := db.only(t); row.Owner != "a/1" || row.Status != cronjob.Running {
			t.Fatalf("it was begun, and is %+v", row)
		}
		mustBeError(t, "another instance", errorOf(db.begin(t, "b/2", someSlot(1))), cronjob.ErrRunning)
		must(t, s.InterruptRun(t.Context(), report, "a/1"))
		db.mustBeginFirst(t, "b/2", someSlot(1))
	}))
}

func TestBeginRunWhoseCommitNeverArrives(t *testing.T) {
	eachServer(t, withJob(func(t *testing.T, db *database) {
		s, proxy := db.proxied(t)
		_, ended := untilCommit(t, proxy, func() error { return errorOf(s.begin(t, "a/1", someSlot(1))) })
		proxy.CutAll()
		mustBeError(t, "begin", <-ended, dispatch.ErrUnknown)
		testkit.Retry(t, func() error { // once the server has seen that the connection is gone
			err := s.InterruptRun(t.Context(), report, "a/1")
			if errors.Is(err, dispatch.ErrNotLeased) {
				return nil
			}
			return errors.Join(errors.New("given back what was not begun"), err)
		})
		testkit.Retry(t, func() error { return errorOf(db.begin(t, "b/2", someSlot(1))) })
		if _, row := db.only(t); row.Attempt != 1 || row.Owner != "b/2" {
			t.Errorf("the run is %+v", row)
		}
	}))
}

// If the reply to a renewal is lost, the run belongs to its owner for the whole new term, and the owner may renew it again.
func TestTheReplyToARenewalIsLost(t *testing.T) {
	eachServer(t, withJob(func(t *testing.T, db *database) {
		s, proxy := db.proxied(t)
		run := db.mustBegin(t, "a/1", someSlot(1))
		mustLose(t, proxy, "SET alive_until", dispatch.ErrUnavailable, func() error { return s.RenewRun(t.Context(), run, 2*term) })
		if _, row := db.only(t); row.Owner != "a/1" || *row.AliveUntil-*row.BeganAt < (2*term).Microseconds() {
			t.Errorf("the run is %+v", row)
		}
		must(t, s.RenewRun(t.Context(), run, term))
	}))
}

// Whatever happens to the reply, a second call returns the state.
func TestTheReplyOfAnEndIsLost(t *testing.T) {
	eachServer(t, withJob(func(t *testing.T, db *database) {
		s, proxy := db.proxied(t)
		end, slot := cronjob.Outcome{Status: cronjob.Failed, Error: "no"}, 0
		for lost, want := range map[string]error{
			"COMMIT": dispatch.ErrUnknown, "UPDATE job_runs": dispatch.ErrUnavailable, "UPDATE jobs": dispatch.ErrUnavailable,
		} {
			slot++
			run := db.mustBegin(t, "a/1", someSlot(slot))
			mustLose(t, proxy, lost, want, func() error { return s.EndRun(t.Context(), run, end) })
			testkit.Retry(t, func() error { return s.EndRun(t.Context(), run, end) })
			if _, row := db.only(t); row.Status != cronjob.Failed || row.Error != "no" {
				t.Errorf("%s: it is %+v", lost, row)
			}
		}
	}))
}

func TestTheReplyToAnInterruptionIsLost(t *testing.T) {
	eachServer(t, withJob(func(t *testing.T, db *database) {
		s, proxy := db.proxied(t)
		run := db.mustBegin(t, "a/1", someSlot(1))
		interrupt := func() error { return s.InterruptRun(t.Context(), report, run.Owner) }
		mustLose(t, proxy, "attempt = attempt - 1", dispatch.ErrUnavailable, interrupt)
		mustBeError(t, "the second time", interrupt(), dispatch.ErrNotLeased)
		db.mustBeginFirst(t, "b/2", someSlot(1))
	}))
}

// A committed result is neither undone nor written twice if the work takes the lost reply for a failure.
func TestConcludeWhoseCommitIsLost(t *testing.T) {
	eachServer(t, withJob(func(t *testing.T, db *database) {
		s, proxy := db.proxied(t)
		run := db.mustBegin(t, "a/1", someSlot(1))
		conclude := func() error { return s.ConcludeRun(t.Context(), run, "done", insert(run)) }
		mustLose(t, proxy, "COMMIT", dispatch.ErrUnknown, conclude)
		mustBeError(t, "once more", conclude(), dispatch.ErrNotLeased)
		mustBeError(t, "failed", s.EndRun(t.Context(), run, cronjob.Outcome{Status: cronjob.Failed}), dispatch.ErrNotLeased)
		mustBeError(t, "given back", s.InterruptRun(t.Context(), report, run.Owner), dispatch.ErrNotLeased)
		job, row := db.only(t)
		if row.Status != cronjob.Succeeded || job.SucceededAt == nil || db.count(t, "supply") != 1 {
			t.Errorf("the run is %+v, and %d rows were written", row, db.count(t, "supply"))
		}
	}))
}

// If the database is down, every call fails as unavailable and changes nothing.
func TestNoLedger(t *testing.T) {
	eachServer(t, withJob(func(t *testing.T, db *database) {
		run := db.mustBegin(t, "a/1", someSlot(1))
		before := db.ledger(t)
		s, proxy := db.proxied(t)
		proxy.Refuse(true)
		ctx := t.Context()
		for what, ask := range map[string]func() error{
			"register":  func() error { return errorOf(s.RegisterJobs(ctx, []string{report})) },
			"states":    func() error { _, _, err := s.JobStates(ctx, []string{report}); return err },
			"begin":     func() error { return errorOf(s.begin(t, "b/2", someSlot(2))) },
			"extend":    func() error { return s.RenewRun(ctx, run, term) },
			"end":       func() error { return s.EndRun(ctx, run, cronjob.Outcome{Status: cronjob.Succeeded}) },
			"interrupt": func() error { return s.InterruptRun(ctx, report, "a/1") },
			"conclude":  func() error { return s.ConcludeRun(ctx, run, "", insert(run)) },
			"block":     func() error { return s.BlockJob(ctx, report, "a", "no") },
			"request":   func() error { return errorOf(s.RequestRun(ctx, report, "key_1")) },
			"last":      func() error { return errorOf(s.LastRun(ctx, report)) },
			"runs":      func() error { _, _, err := s.Runs(ctx, report, dispatch.Page{Limit: 1}); return err },
		} {
			mustBeError(t, what, ask(), dispatch.ErrUnavailable)
		}
		db.mustBe(t, before)
		proxy.Refuse(false)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		mustBeError(t, "a context that has ended", errorOf(s.BeginRun(ended, report, "b/2", term, at(someSlot(2)))), dispatch.ErrUnavailable)
	}))
}

// A clock that was a day ahead leaves times in the future. The job goes on all the same.
func TestJobOfAClockThatWasAhead(t *testing.T) {
	each(t, withJob(func(t *testing.T, db *database) {
		now := db.now(t)
		db.mustEnd(t, db.mustBegin(t, "ins_a", now.Add(-time.Hour)), cronjob.Succeeded)
		run := db.mustBegin(t, "ins_a", now.Add(-30*time.Minute))
		db.mustEnd(t, run, cronjob.Succeeded)
		tomorrow := micros(now.Add(24 * time.Hour))
		db.exec(t, "UPDATE job_runs SET slot = ? WHERE slot = ?", tomorrow, micros(run.Slot))
		db.exec(t, "UPDATE jobs SET slot = ?, ended_at = ?, succeeded_at = ?, registered_at = ?", tomorrow, tomorrow, tomorrow, tomorrow)

		slot := now.Add(time.Minute).Truncate(time.Microsecond)
		got, err := db.begin(t, "ins_b", slot)
		if err != nil || !got.Slot.Equal(slot) {
			t.Fatalf("%+v, %v", got, err)
		}
		db.mustEnd(t, got, cronjob.Succeeded)
		// A little ahead is waited for.
		soon := micros(db.now(t).Add(cronjob.MaxClockSkew / 2))
		db.exec(t, "UPDATE jobs SET slot = ?", soon)
		if _, err := db.begin(t, "ins_c", now); !errors.Is(err, cronjob.ErrNotDue) {
			t.Errorf("got %v, want %v", err, cronjob.ErrNotDue)
		}
		db.mustCount(t, 1, "jobs WHERE slot = ?", soon)
	}))
}
