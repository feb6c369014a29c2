package repository

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/testkit"
)

func TestEndRun(t *testing.T) {
	each(t, withJob(func(t *testing.T, db *database) {
		for i, tt := range []struct {
			end       cronjob.Outcome
			succeeded bool
		}{
			{cronjob.Outcome{Status: cronjob.Succeeded, Result: "3 told"}, true},
			{cronjob.Outcome{Status: cronjob.Failed, Result: "2 told", Error: "no more"}, false},
		} {
			run := db.mustBegin(t, "a/1", someSlot(i))
			before, _ := db.only(t)
			must(t, db.EndRun(t.Context(), run, tt.end))
			job, row := db.only(t)
			if row.EndedAt == nil || row.AliveUntil != nil {
				t.Fatalf("stored %+v", row)
			}
			db.mustBeAbout(t, "ended_at", *row.EndedAt, 0)
			want := run
			want.Status, want.Result, want.Error = tt.end.Status, tt.end.Result, tt.end.Error
			want.LeasedUntil, want.EndedAt = nil, fromOptionalMicros(row.EndedAt)
			if got := row.run(); !reflect.DeepEqual(got, want) {
				t.Errorf("stored %+v, want %+v", got, want)
			}
			if !reflect.DeepEqual(job.EndedAt, row.EndedAt) || *row.EndedAt < *row.BeganAt {
				t.Errorf("the job is %+v", job)
			}
			if succeeded := !reflect.DeepEqual(job.SucceededAt, before.SucceededAt); succeeded != tt.succeeded {
				t.Errorf("%s: success at %v, before at %v", tt.end.Status, job.SucceededAt, before.SucceededAt)
			}
			// A reply may have been lost.
			must(t, db.EndRun(t.Context(), run, tt.end))
			after := db.ledger(t)
			other := cronjob.Outcome{Status: cronjob.Failed}
			if !tt.succeeded {
				other.Status = cronjob.Succeeded
			}
			mustBeError(t, "ended otherwise", db.EndRun(t.Context(), run, other), dispatch.ErrNotLeased)
			mustBeError(t, "extended", db.RenewRun(t.Context(), run, term), dispatch.ErrNotLeased)
			mustBeError(t, "given back", db.InterruptRun(t.Context(), report, run.Owner), dispatch.ErrNotLeased)
			db.mustBe(t, after)
		}
		db.mustCount(t, 2, "job_runs")
	}))
}

func TestRenewRun(t *testing.T) {
	each(t, withJob(func(t *testing.T, db *database) {
		run := db.mustBegin(t, "a/1", someSlot(1))
		for _, overdue := range []bool{false, true} {
			if overdue {
				db.die(t) // and no instance has noticed
			}
			must(t, db.RenewRun(t.Context(), run, time.Hour))
			_, row := db.only(t)
			db.mustBeAbout(t, "alive_until", *row.AliveUntil, time.Hour)
			row.AliveUntil = optionalMicros(run.LeasedUntil)
			if got := row.run(); !reflect.DeepEqual(got, run) {
				t.Errorf("%+v became %+v", run, got)
			}
			mustBeError(t, "another instance", errorOf(db.begin(t, "b/2", someSlot(2))), cronjob.ErrRunning)
		}
	}))
}

// Any instance may take over an interrupted run at once, and the attempt does not count as a death.
func TestInterruptRun(t *testing.T) {
	each(t, withJob(func(t *testing.T, db *database) {
		var last cronjob.Run
		for i := range 2 * cronjob.MaxAttempts {
			run := db.mustBegin(t, "host:7/x", someSlot(1))
			if run.Attempt != 1 || !run.Slot.Equal(someSlot(1)) || run.Fence <= last.Fence {
				t.Errorf("attempt %d is %+v after %+v", i, run, last)
			}
			must(t, db.InterruptRun(t.Context(), report, "host:7/x"))
			if _, row := db.only(t); row.Owner != "host:7" || row.Status != cronjob.Running || row.EndedAt != nil {
				t.Errorf("interrupted, the run is %+v", row)
			}
			before := db.ledger(t)
			mustBeError(t, "again", db.InterruptRun(t.Context(), report, "host:7/x"), dispatch.ErrNotLeased)
			db.mustBe(t, before)
			last = run
		}
		runs, _, err := db.Runs(t.Context(), report, dispatch.Page{Limit: 10})
		if err != nil || len(runs) != 1 || runs[0].Status != cronjob.Interrupted {
			t.Errorf("the runs are %+v: %v", runs, err)
		}
		// Those that have died count still.
		db.mustBegin(t, "a/1", someSlot(1))
		db.die(t)
		db.mustBegin(t, "b/2", someSlot(1))
		must(t, db.InterruptRun(t.Context(), report, "b/2"))
		if run := db.mustBegin(t, "c/3", someSlot(1)); run.Attempt != 2 {
			t.Errorf("one has died of it, and this is %+v", run)
		}
	}))
}

// mustLeave fails the test unless the owner of the run, which is no longer its own, is refused whatever it does.
func (db *database) mustLeave(t *testing.T, run cronjob.Run) {
	t.Helper()
	before := db.ledger(t)
	mustBeError(t, "extends", db.RenewRun(t.Context(), run, time.Hour), dispatch.ErrNotLeased)
	for _, status := range []cronjob.Status{cronjob.Succeeded, cronjob.Failed} {
		mustBeError(t, string(status), db.EndRun(t.Context(), run, cronjob.Outcome{Status: status}), dispatch.ErrNotLeased)
	}
	mustBeError(t, "gives back", db.InterruptRun(t.Context(), report, run.Owner), dispatch.ErrNotLeased)
	mustBeError(t, "concludes", db.ConcludeRun(t.Context(), run, "", func(context.Context, Execer) error {
		t.Error("it writes")
		return nil
	}), dispatch.ErrNotLeased)
	db.mustBe(t, before)
}

func (db *database) mustInterruptNothing(t *testing.T) {
	t.Helper()
	before := db.ledger(t)
	if runs, err := db.InterruptRuns(t.Context(), []string{report}); err != nil || len(runs) > 0 {
		t.Errorf("taken away are %+v: %v", runs, err)
	}
	db.mustBe(t, before)
}

// The former owner of an interrupted run changes nothing, even before the next attempt begins; the attempt counts.
func TestInterruptRuns(t *testing.T) {
	each(t, withJob(func(t *testing.T, db *database) {
		for _, dead := range []bool{false, true} {
			run := db.mustBegin(t, "host:7/x", someSlot(1))
			if dead {
				db.die(t) // and no instance has noticed
			}
			runs, err := db.InterruptRuns(t.Context(), []string{"unheard-of", report})
			if err != nil || len(runs) != 1 || runs[0].Owner != run.Owner || runs[0].Fence != run.Fence {
				t.Fatalf("taken away are %+v, want %+v: %v", runs, run, err)
			}
			db.mustLeave(t, run)
			db.mustInterruptNothing(t)
		}
		run := db.mustBegin(t, "b/2", someSlot(1))
		if run.Attempt != 3 {
			t.Errorf("the third attempt is %+v", run)
		}
		must(t, db.ConcludeRun(t.Context(), run, "", insert(run)))
		// A run that has ended and a run that has not begun have no owner.
		db.mustRequest(t, "key_1")
		db.mustInterruptNothing(t)
		db.mustCount(t, 1, "supply")
	}))
}

// takenOver is a run whose instance died, and its next attempt, which is under way.
func (db *database) takenOver(t *testing.T) (late, run cronjob.Run) {
	t.Helper()
	db.known(t, report)
	late = db.mustBegin(t, "a/1", someSlot(1))
	db.die(t)
	return late, db.mustBegin(t, "b/2", someSlot(1))
}

// An instance whose run was taken over gets an error and changes nothing, during the new attempt and after it.
func TestFormerOwnerChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		late, run := db.takenOver(t)
		for _, ended := range []bool{false, true} {
			if ended {
				db.mustEnd(t, run, cronjob.Succeeded)
			}
			db.mustLeave(t, late)
		}
	})
}

// insert counts a region's supply under the run's slot.
func insert(run cronjob.Run) func(context.Context, Execer) error {
	return func(ctx context.Context, tx Execer) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO supply (at, region, on_duty, open) VALUES (?, ?, 1, 1)", micros(run.Slot), run.Owner)
		return err
	}
}

// However often a slot is begun, its result is written once, in the transaction that ends the run.
func TestConcludeRun(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		late, run := db.takenOver(t)
		mustBeError(t, "the former owner", db.ConcludeRun(t.Context(), late, "late", insert(late)), dispatch.ErrNotLeased)
		must(t, db.ConcludeRun(t.Context(), run, "done", insert(run)))
		job, row := db.only(t)
		if row.Status != cronjob.Succeeded || row.Result != "done" || row.Owner != "b/2" || row.EndedAt == nil || row.AliveUntil != nil {
			t.Errorf("the run is %+v", row)
		}
		if job.SucceededAt == nil || job.EndedAt == nil {
			t.Errorf("the job is %+v", job)
		}
		mustBeError(t, "again", db.ConcludeRun(t.Context(), run, "again", insert(run)), dispatch.ErrNotLeased)
		mustBeError(t, "the former owner", db.ConcludeRun(t.Context(), late, "late", insert(late)), dispatch.ErrNotLeased)
		db.mustCount(t, 1, "supply")
		db.mustCount(t, 1, "supply WHERE region = 'b/2'")
		// The schedule writes the end, too.
		must(t, db.EndRun(t.Context(), run, cronjob.Outcome{Status: cronjob.Succeeded, Result: "done"}))
		mustBeError(t, "a failure after it", db.EndRun(t.Context(), run, cronjob.Outcome{Status: cronjob.Failed}), dispatch.ErrNotLeased)
		mustBeError(t, "the slot once more", errorOf(db.begin(t, "c/3", someSlot(1))), cronjob.ErrNotDue)
	})
}

func TestConcludeRunIsAtomic(t *testing.T) {
	each(t, withJob(func(t *testing.T, db *database) {
		run := db.mustBegin(t, "a/1", someSlot(1))
		before := db.ledger(t)
		err := db.ConcludeRun(t.Context(), run, "", func(ctx context.Context, tx Execer) error {
			return errors.Join(insert(run)(ctx, tx), errConflict)
		})
		mustBeError(t, "work that fails", err, dispatch.ErrUnavailable)
		if !errors.Is(err, errConflict) {
			t.Errorf("the cause is lost: %v", err)
		}
		mustBeError(t, "SQL that fails", db.ConcludeRun(t.Context(), run, "", func(ctx context.Context, tx Execer) error {
			return errorOf(tx.ExecContext(ctx, "INSERT INTO nowhere VALUES (1)"))
		}), dispatch.ErrUnavailable)
		db.mustBe(t, before)
		if n := db.count(t, "supply"); n != 0 {
			t.Errorf("%d rows were written", n)
		}
		must(t, db.ConcludeRun(t.Context(), run, "", insert(run)))
	}))
}

// Many instances conclude, begin, request and renew at once without a deadlock.
func TestRunsWithoutDeadlocks(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		var deadlocks atomic.Int32
		db = db.by(openWith(t, db.url, Options{Log: quiet, Patience: testkit.Patience, Observer: func(ctx context.Context, _ Statement) (context.Context, func(error)) {
			return ctx, func(err error) {
				if retryable(err) {
					deadlocks.Add(1)
				}
			}
		}}))
		db.known(t, report)
		const slots = 30
		for slot := range slots {
			run := db.mustBegin(t, "a/1", someSlot(slot))
			begin := func() error { return errorOf(db.begin(t, "b/2", someSlot(slot))) }
			does := []func() error{
				func() error { return db.ConcludeRun(t.Context(), run, "", insert(run)) },
				begin, begin, begin,
				func() error { return db.RenewRun(t.Context(), run, term) },
				func() error { return db.BlockJob(t.Context(), report, "c", "no") },
			}
			testkit.Together(len(does), func(i int) {
				if err := does[i](); i == 0 && err != nil || errors.Is(err, dispatch.ErrUnavailable) {
					t.Errorf("%d: %v", i, err)
				}
			})
		}
		db.mustCount(t, slots, "supply")
		if n := deadlocks.Load(); n > 0 {
			t.Errorf("%d deadlocks", n)
		}
	})
}
