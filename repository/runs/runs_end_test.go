package runs_test

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

func TestEndRun(t *testing.T) {
	Each(t, withJob(func(t *testing.T, db *Bench) {
		for i, tt := range []struct {
			end       cronjob.Outcome
			succeeded bool
		}{
			{cronjob.Outcome{Status: cronjob.Succeeded, Result: "3 told"}, true},
			{cronjob.Outcome{Status: cronjob.Failed, Result: "2 told", Error: "no more"}, false},
		} {
			run := db.MustBegin(t, "a/1", SomeSlot(i))
			before, _ := only(db, t)
			Must(t, db.EndRun(t.Context(), run, tt.end))
			job, row := only(db, t)
			if row.EndedAt == nil || row.AliveUntil != nil {
				t.Fatalf("stored %+v", row)
			}
			db.MustBeAbout(t, "ended_at", *row.EndedAt, 0)
			want := run
			want.Status, want.Result, want.Error = tt.end.Status, tt.end.Result, tt.end.Error
			want.LeasedUntil, want.EndedAt = nil, database.OptionalTime(row.EndedAt)
			if got := row.Run(); !reflect.DeepEqual(got, want) {
				t.Errorf("stored %+v, want %+v", got, want)
			}
			if !reflect.DeepEqual(job.EndedAt, row.EndedAt) || *row.EndedAt < *row.BeganAt {
				t.Errorf("the job is %+v", job)
			}
			if succeeded := !reflect.DeepEqual(job.SucceededAt, before.SucceededAt); succeeded != tt.succeeded {
				t.Errorf("%s: success at %v, before at %v", tt.end.Status, job.SucceededAt, before.SucceededAt)
			}
			// A reply may have been lost.
			Must(t, db.EndRun(t.Context(), run, tt.end))
			after := ledgerOf(db, t)
			other := cronjob.Outcome{Status: cronjob.Failed}
			if !tt.succeeded {
				other.Status = cronjob.Succeeded
			}
			MustBeError(t, "ended otherwise", db.EndRun(t.Context(), run, other), dispatch.ErrNotLeased)
			MustBeError(t, "extended", db.RenewRun(t.Context(), run, Term), dispatch.ErrNotLeased)
			MustBeError(t, "given back", db.Interrupt(t, run), dispatch.ErrNotLeased)
			mustBe(db, t, after)
		}
		db.MustCount(t, 2, "job_runs")
	}))
}

func TestRenewRun(t *testing.T) {
	Each(t, withJob(func(t *testing.T, db *Bench) {
		run := db.MustBegin(t, "a/1", SomeSlot(1))
		for _, overdue := range []bool{false, true} {
			if overdue {
				die(db, t) // and no instance has noticed
			}
			Must(t, db.RenewRun(t.Context(), run, time.Hour))
			_, row := only(db, t)
			db.MustBeAbout(t, "alive_until", *row.AliveUntil, time.Hour)
			row.AliveUntil = database.OptionalMicros(run.LeasedUntil)
			if got := row.Run(); !reflect.DeepEqual(got, run) {
				t.Errorf("%+v became %+v", run, got)
			}
			MustBeError(t, "another instance", ErrorOf(db.Begin(t, "b/2", SomeSlot(2))), cronjob.ErrRunning)
		}
	}))
}

// Any instance may take over an interrupted run at once, and the attempt does not count as a death.
func TestInterruptRun(t *testing.T) {
	Each(t, withJob(func(t *testing.T, db *Bench) {
		var last cronjob.Run
		for i := range 2 * cronjob.MaxAttempts {
			run := db.MustBegin(t, "host:7/x", SomeSlot(1))
			if run.Attempt != 1 || !run.Slot.Equal(SomeSlot(1)) || run.Fence <= last.Fence {
				t.Errorf("attempt %d is %+v after %+v", i, run, last)
			}
			Must(t, db.Interrupt(t, run))
			if _, row := only(db, t); row.Owner != "host:7" || row.Status != cronjob.Running || row.EndedAt != nil {
				t.Errorf("interrupted, the run is %+v", row)
			}
			before := ledgerOf(db, t)
			MustBeError(t, "again", db.Interrupt(t, run), dispatch.ErrNotLeased)
			mustBe(db, t, before)
			last = run
		}
		runs, _, err := db.Runs.Runs(t.Context(), Report, dispatch.Page{Limit: 10})
		if err != nil || len(runs) != 1 || runs[0].Status != cronjob.Interrupted {
			t.Errorf("the runs are %+v: %v", runs, err)
		}
		// Those that have died count still.
		db.MustBegin(t, "a/1", SomeSlot(1))
		die(db, t)
		Must(t, db.Interrupt(t, db.MustBegin(t, "b/2", SomeSlot(1))))
		if run := db.MustBegin(t, "c/3", SomeSlot(1)); run.Attempt != 2 {
			t.Errorf("one has died of it, and this is %+v", run)
		}
	}))
}

// mustLeave fails the test unless the owner of the run, which is no longer its own, is refused whatever it does.
func mustLeave(db *Bench, t *testing.T, run cronjob.Run) {
	t.Helper()
	before := ledgerOf(db, t)
	MustBeError(t, "extends", db.RenewRun(t.Context(), run, time.Hour), dispatch.ErrNotLeased)
	for _, status := range []cronjob.Status{cronjob.Succeeded, cronjob.Failed} {
		MustBeError(t, string(status), db.EndRun(t.Context(), run, cronjob.Outcome{Status: status}), dispatch.ErrNotLeased)
	}
	MustBeError(t, "gives back", db.Interrupt(t, run), dispatch.ErrNotLeased)
	MustBeError(t, "concludes", db.ConcludeRun(t.Context(), run, "", func(database.Tx) error {
		t.Error("it writes")
		return nil
	}), dispatch.ErrNotLeased)
	mustBe(db, t, before)
}

func mustInterruptNothing(db *Bench, t *testing.T) {
	t.Helper()
	before := ledgerOf(db, t)
	if runs, err := db.InterruptRuns(t.Context(), []string{Report}); err != nil || len(runs) > 0 {
		t.Errorf("taken away are %+v: %v", runs, err)
	}
	mustBe(db, t, before)
}

// The former owner of an interrupted run changes nothing, even before the next attempt begins; the attempt counts.
func TestInterruptRuns(t *testing.T) {
	Each(t, withJob(func(t *testing.T, db *Bench) {
		for _, dead := range []bool{false, true} {
			run := db.MustBegin(t, "host:7/x", SomeSlot(1))
			if dead {
				die(db, t) // and no instance has noticed
			}
			runs, err := db.InterruptRuns(t.Context(), []string{"unheard-of", Report})
			if err != nil || len(runs) != 1 || runs[0].Owner != run.Owner || runs[0].Fence != run.Fence {
				t.Fatalf("taken away are %+v, want %+v: %v", runs, run, err)
			}
			mustLeave(db, t, run)
			mustInterruptNothing(db, t)
		}
		run := db.MustBegin(t, "b/2", SomeSlot(1))
		if run.Attempt != 3 {
			t.Errorf("the third attempt is %+v", run)
		}
		Must(t, db.ConcludeRun(t.Context(), run, "", insert(run)))
		// A run that has ended and a run that has not begun have no owner.
		db.MustRequest(t, "key_1")
		mustInterruptNothing(db, t)
		db.MustCount(t, 1, "supply")
	}))
}

// takenOver is a run whose instance died, and its next attempt, which is under way.
func takenOver(db *Bench, t *testing.T) (late, run cronjob.Run) {
	t.Helper()
	db.Known(t, Report)
	late = db.MustBegin(t, "a/1", SomeSlot(1))
	die(db, t)
	return late, db.MustBegin(t, "b/2", SomeSlot(1))
}

// An instance whose run was taken over gets an error and changes nothing, during the new attempt and after it.
func TestFormerOwnerChangesNothing(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		late, run := takenOver(db, t)
		for _, ended := range []bool{false, true} {
			if ended {
				db.MustEnd(t, run, cronjob.Succeeded)
			}
			mustLeave(db, t, late)
		}
	})
}

// insert counts a region's supply under the run's slot.
func insert(run cronjob.Run) func(database.Tx) error {
	return func(tx database.Tx) error {
		return tx.Exec("INSERT INTO supply (at, region, on_duty, open) VALUES (?, ?, 1, 1)", database.Micros(run.Slot), run.Owner).Error
	}
}

// However often a slot is begun, its result is written once, in the transaction that ends the run.
func TestConcludeRun(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		late, run := takenOver(db, t)
		MustBeError(t, "the former owner", db.ConcludeRun(t.Context(), late, "late", insert(late)), dispatch.ErrNotLeased)
		Must(t, db.ConcludeRun(t.Context(), run, "done", insert(run)))
		job, row := only(db, t)
		if row.Status != cronjob.Succeeded || row.Result != "done" || row.Owner != "b/2" || row.EndedAt == nil || row.AliveUntil != nil {
			t.Errorf("the run is %+v", row)
		}
		if job.SucceededAt == nil || job.EndedAt == nil {
			t.Errorf("the job is %+v", job)
		}
		MustBeError(t, "again", db.ConcludeRun(t.Context(), run, "again", insert(run)), dispatch.ErrNotLeased)
		MustBeError(t, "the former owner", db.ConcludeRun(t.Context(), late, "late", insert(late)), dispatch.ErrNotLeased)
		db.MustCount(t, 1, "supply")
		db.MustCount(t, 1, "supply WHERE region = 'b/2'")
		// The schedule writes the end, too.
		Must(t, db.EndRun(t.Context(), run, cronjob.Outcome{Status: cronjob.Succeeded, Result: "done"}))
		MustBeError(t, "a failure after it", db.EndRun(t.Context(), run, cronjob.Outcome{Status: cronjob.Failed}), dispatch.ErrNotLeased)
		MustBeError(t, "the slot once more", ErrorOf(db.Begin(t, "c/3", SomeSlot(1))), cronjob.ErrNotDue)
	})
}

func TestConcludeRunIsAtomic(t *testing.T) {
	Each(t, withJob(func(t *testing.T, db *Bench) {
		run := db.MustBegin(t, "a/1", SomeSlot(1))
		before := ledgerOf(db, t)
		err := db.ConcludeRun(t.Context(), run, "", func(tx database.Tx) error {
			return errors.Join(insert(run)(tx), database.ErrConflict)
		})
		MustBeError(t, "work that fails", err, dispatch.ErrUnavailable)
		if !errors.Is(err, database.ErrConflict) {
			t.Errorf("the cause is lost: %v", err)
		}
		MustBeError(t, "SQL that fails", db.ConcludeRun(t.Context(), run, "", func(tx database.Tx) error {
			return tx.Exec("INSERT INTO nowhere VALUES (1)").Error
		}), dispatch.ErrUnavailable)
		mustBe(db, t, before)
		if n := db.Count(t, "supply"); n != 0 {
			t.Errorf("%d rows were written", n)
		}
		Must(t, db.ConcludeRun(t.Context(), run, "", insert(run)))
	}))
}

// Many instances conclude, begin, request and renew at once without a deadlock.
func TestRunsWithoutDeadlocks(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		var deadlocks atomic.Int32
		db = db.By(OpenWith(t, db.URL, repository.Options{Log: Quiet, Patience: testkit.Patience, Observer: func(ctx context.Context, _ database.Statement) (context.Context, func(error)) {
			return ctx, func(err error) {
				if database.Retryable(err) {
					deadlocks.Add(1)
				}
			}
		}}))
		db.Known(t, Report)
		const slots = 30
		for slot := range slots {
			run := db.MustBegin(t, "a/1", SomeSlot(slot))
			begin := func() error { return ErrorOf(db.Begin(t, "b/2", SomeSlot(slot))) }
			does := []func() error{
				func() error { return db.ConcludeRun(t.Context(), run, "", insert(run)) },
				begin, begin, begin,
				func() error { return db.RenewRun(t.Context(), run, Term) },
				func() error { return db.BlockJob(t.Context(), Report, "c", "no") },
			}
			testkit.Together(len(does), func(i int) {
				if err := does[i](); i == 0 && err != nil || errors.Is(err, dispatch.ErrUnavailable) {
					t.Errorf("%d: %v", i, err)
				}
			})
		}
		db.MustCount(t, slots, "supply")
		if n := deadlocks.Load(); n > 0 {
			t.Errorf("%d deadlocks", n)
		}
	})
}
