package runs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

// An instance that does not know whether its run began gives it back, and any instance may take it over.
func TestBeginRunWhoseCommitIsLost(t *testing.T) {
	EachServer(t, withJob(func(t *testing.T, db *Bench) {
		s, proxy := db.Proxied(t)
		var run cronjob.Run
		MustLose(t, proxy, "COMMIT", dispatch.ErrUnknown, func() (err error) {
			run, err = db.By(s).Begin(t, "a/1", SomeSlot(1))
			return err
		})
		if _, row := only(db, t); row.Owner != "a/1" || row.Status != cronjob.Running {
			t.Fatalf("it was begun, and is %+v", row)
		}
		MustBeError(t, "another instance", ErrorOf(db.Begin(t, "b/2", SomeSlot(1))), cronjob.ErrRunning)
		Must(t, db.By(s).Interrupt(t, run))
		mustBeginFirst(db, t, "b/2", SomeSlot(1))
	}))
}

// Whatever happens to the reply, a second call returns the state.
func TestTheReplyOfAnEndIsLost(t *testing.T) {
	EachServer(t, withJob(func(t *testing.T, db *Bench) {
		s, proxy := db.Proxied(t)
		end, slot := cronjob.Outcome{Status: cronjob.Failed, Error: "no"}, 0
		for lost, want := range map[string]error{
			"COMMIT": dispatch.ErrUnknown, "UPDATE job_runs": dispatch.ErrUnavailable, "UPDATE jobs": dispatch.ErrUnavailable,
		} {
			slot++
			run := db.MustBegin(t, "a/1", SomeSlot(slot))
			MustLose(t, proxy, lost, want, func() error { return s.Runs.EndRun(t.Context(), run, end) })
			testkit.Retry(t, func() error { return s.Runs.EndRun(t.Context(), run, end) })
			if _, row := only(db, t); row.Status != cronjob.Failed || row.Error != "no" {
				t.Errorf("%s: it is %+v", lost, row)
			}
		}
	}))
}

// A committed result is neither undone nor written twice if the work takes the lost reply for a failure.
func TestConcludeWhoseCommitIsLost(t *testing.T) {
	EachServer(t, withJob(func(t *testing.T, db *Bench) {
		s, proxy := db.Proxied(t)
		run := db.MustBegin(t, "a/1", SomeSlot(1))
		conclude := func() error { return s.Runs.ConcludeRun(t.Context(), run, "done", insert(run)) }
		MustLose(t, proxy, "COMMIT", dispatch.ErrUnknown, conclude)
		MustBeError(t, "once more", conclude(), dispatch.ErrNotLeased)
		MustBeError(t, "failed", s.Runs.EndRun(t.Context(), run, cronjob.Outcome{Status: cronjob.Failed}), dispatch.ErrNotLeased)
		MustBeError(t, "given back", db.By(s).Interrupt(t, run), dispatch.ErrNotLeased)
		job, row := only(db, t)
		if row.Status != cronjob.Succeeded || job.SucceededAt == nil || db.Count(t, "supply") != 1 {
			t.Errorf("the run is %+v, and %d rows were written", row, db.Count(t, "supply"))
		}
	}))
}

// If the database is down, every call fails as unavailable and changes nothing.
func TestNoLedger(t *testing.T) {
	EachServer(t, withJob(func(t *testing.T, db *Bench) {
		run := db.MustBegin(t, "a/1", SomeSlot(1))
		before := ledgerOf(db, t)
		s, proxy := db.Proxied(t)
		proxy.Refuse(true)
		ctx := t.Context()
		for what, ask := range map[string]func() error{
			"states":    func() error { _, _, err := s.Runs.JobStates(ctx, []string{Report}); return err },
			"begin":     func() error { return ErrorOf(db.By(s).Begin(t, "b/2", SomeSlot(2))) },
			"extend":    func() error { return s.Runs.RenewRun(ctx, run, Term) },
			"end":       func() error { return s.Runs.EndRun(ctx, run, cronjob.Outcome{Status: cronjob.Succeeded}) },
			"interrupt": func() error { return db.By(s).Interrupt(t, run) },
			"conclude":  func() error { return s.Runs.ConcludeRun(ctx, run, "", insert(run)) },
			"block":     func() error { return s.Runs.BlockJob(ctx, Report, "a", "no") },
			"request":   func() error { return ErrorOf(s.Runs.RequestRun(ctx, Report, "key_1")) },
			"runs": func() error {
				_, _, err := s.Runs.Runs(ctx, Report, dispatch.Page{Limit: 1})
				return err
			},
		} {
			MustBeError(t, what, ask(), dispatch.ErrUnavailable)
		}
		mustBe(db, t, before)
		proxy.Refuse(false)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		MustBeError(t, "a context that has ended", ErrorOf(s.Runs.BeginRun(ended, Report, "b/2", Term, At(SomeSlot(2)))), dispatch.ErrUnavailable)
	}))
}

// A clock that was a day ahead leaves times in the future. The job goes on all the same.
func TestJobOfAClockThatWasAhead(t *testing.T) {
	Each(t, withJob(func(t *testing.T, db *Bench) {
		now := db.Now(t)
		db.MustEnd(t, db.MustBegin(t, "ins_a", now.Add(-time.Hour)), cronjob.Succeeded)
		run := db.MustBegin(t, "ins_a", now.Add(-30*time.Minute))
		db.MustEnd(t, run, cronjob.Succeeded)
		tomorrow := database.Micros(now.Add(24 * time.Hour))
		db.Exec(t, "UPDATE job_runs SET slot = ? WHERE slot = ?", tomorrow, database.Micros(run.Slot))
		db.Exec(t, "UPDATE jobs SET slot = ?, ended_at = ?, succeeded_at = ?, registered_at = ?", tomorrow, tomorrow, tomorrow, tomorrow)

		slot := now.Add(time.Minute).Truncate(time.Microsecond)
		got, err := db.Begin(t, "ins_b", slot)
		if err != nil || !got.Slot.Equal(slot) {
			t.Fatalf("%+v, %v", got, err)
		}
		db.MustEnd(t, got, cronjob.Succeeded)
		// A little ahead is waited for.
		soon := database.Micros(db.Now(t).Add(cronjob.MaxClockSkew / 2))
		db.Exec(t, "UPDATE jobs SET slot = ?", soon)
		if _, err := db.Begin(t, "ins_c", now); !errors.Is(err, cronjob.ErrNotDue) {
			t.Errorf("got %v, want %v", err, cronjob.ErrNotDue)
		}
		db.MustCount(t, 1, "jobs WHERE slot = ?", soon)
	}))
}
