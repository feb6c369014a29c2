package runs_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/runs"
)

// never is a schedule without a due slot.
var never = At(time.Time{})

// withJob is a test of a database that knows the job.
func withJob(test func(*testing.T, *Bench)) func(*testing.T, *Bench) {
	return func(t *testing.T, db *Bench) {
		t.Helper()
		db.Known(t, Report)
		test(t, db)
	}
}

// mustBeginFirst fails the test unless the run that begins is the first attempt at the slot.
func mustBeginFirst(db *Bench, t testing.TB, owner string, slot time.Time) {
	t.Helper()
	if run := db.MustBegin(t, owner, slot); run.Attempt != 1 || !run.Slot.Equal(slot) {
		t.Errorf("%+v began, want the first attempt at %v", run, slot)
	}
}

// die ends the lease of the running attempt.
func die(db *Bench, t testing.TB) {
	t.Helper()
	db.Exec(t, "UPDATE job_runs SET alive_until = 1 WHERE status = 'RUNNING'")
}

// ledger is all rows of jobs and runs.
type ledger struct {
	Jobs []runs.JobRow
	Runs []runs.RunRow
}

func ledgerOf(db *Bench, t testing.TB) (l ledger) {
	t.Helper()
	read := db.Serve.With(t.Context())
	for _, err := range []error{read.Order("name").Find(&l.Jobs).Error, read.Order("job, slot").Find(&l.Runs).Error} {
		Must(t, err)
	}
	return l
}

// only is the one job, and its latest run.
func only(db *Bench, t testing.TB) (runs.JobRow, runs.RunRow) {
	t.Helper()
	l := ledgerOf(db, t)
	if len(l.Jobs) != 1 || len(l.Runs) == 0 {
		t.Fatalf("the ledger is %+v", l)
	}
	return l.Jobs[0], l.Runs[len(l.Runs)-1]
}

func mustBe(db *Bench, t testing.TB, want ledger) {
	t.Helper()
	testkit.Equal(t, "the ledger", want, ledgerOf(db, t))
}

func TestBeginRun(t *testing.T) {
	Each(t, withJob(func(t *testing.T, db *Bench) {
		db.Known(t, Report, "other")
		asked := 0
		run, err := db.BeginRun(t.Context(), Report, "a/1", Term, func(s cronjob.JobState, now time.Time) time.Time {
			asked++
			if s.Name != Report || s.Slot != nil || s.Unfinished != nil {
				t.Errorf("no state is stored, and due got %+v", s)
			}
			db.MustBeAbout(t, "now", database.Micros(now), 0)
			db.MustBeAbout(t, "the registration", database.Micros(s.RegisteredAt), 0)
			return SomeSlot(1)
		})
		if err != nil || asked != 1 {
			t.Fatalf("asked %d times: %v", asked, err)
		}
		row := ledgerOf(db, t).Runs[0]
		if got := row.Run(); !reflect.DeepEqual(got, run) {
			t.Errorf("stored %+v, returned %+v", got, run)
		}
		began := *row.BeganAt
		want := runs.RunRow{
			Job: Report, Slot: database.Micros(SomeSlot(1)), Status: cronjob.Running, Attempt: 1, Owner: "a/1", Fence: row.Fence,
			BeganAt: &began, AliveUntil: new(began + Term.Microseconds()),
		}
		if !reflect.DeepEqual(row, want) {
			t.Errorf("stored %+v, want %+v", row, want)
		}
		db.MustBeAbout(t, "began_at", began, 0)
		for _, job := range ledgerOf(db, t).Jobs {
			if job.Name == Report && (job.Slot == nil || *job.Slot != row.Slot || job.Fence != row.Fence) || job.Name != Report && job.Slot != nil {
				t.Errorf("of the job is remembered %+v", job)
			}
		}
		MustBeError(t, "an unknown job", ErrorOf(db.BeginRun(t.Context(), "unknown", "a/1", Term, At(SomeSlot(1)))), cronjob.ErrNotFound)
		MustBeError(t, "a job that is not due", ErrorOf(db.BeginRun(t.Context(), "other", "a/1", Term, never)), cronjob.ErrNotDue)
		db.MustCount(t, 1, "job_runs")
	}))
}

// Many instances at once, each with a slot of its own.
func TestOneRunOfAJobAtATime(t *testing.T) {
	Each(t, withJob(func(t *testing.T, db *Bench) {
		stores := []*repository.Store{db.Store, OpenPatient(t, db.URL), OpenPatient(t, db.URL)}
		const instances = 12
		var begun [instances]cronjob.Run
		var errs [instances]error
		testkit.Together(instances, func(i int) {
			begun[i], errs[i] = db.By(stores[i%len(stores)]).Begin(t, fmt.Sprintf("%d/x", i), SomeSlot(i))
		})
		winner := slices.Index(errs[:], nil)
		if winner < 0 {
			t.Fatal(errs)
		}
		for i, err := range errs {
			if i == winner {
				continue
			}
			var running *cronjob.RunningError
			if !errors.As(err, &running) || running.Owner != fmt.Sprintf("%d/x", winner) || running.Remaining <= 0 || running.Remaining > Term {
				t.Errorf("instance %d got %v", i, err)
			}
		}
		db.MustCount(t, 1, "job_runs")
	}))
}

// Many instances at once, again and again, and the same slots.
func TestASlotIsBegunOnce(t *testing.T) {
	Each(t, withJob(func(t *testing.T, db *Bench) {
		stores := []*repository.Store{db.Store, OpenPatient(t, db.URL), OpenPatient(t, db.URL)}
		const slots, instances = 4, 9
		var begun [slots]atomic.Int32
		var atIt atomic.Int32
		testkit.Together(instances, func(i int) {
			for slot := range slots {
				for try := 0; ; try++ {
					s := stores[i%len(stores)]
					run, err := db.By(s).Begin(t, fmt.Sprintf("%d.%d/%d", i, slot, try), SomeSlot(slot))
					if errors.Is(err, cronjob.ErrRunning) || errors.Is(err, dispatch.ErrUnavailable) {
						continue // at it, or waited for
					}
					if err == nil {
						begun[slot].Add(1)
						if atIt.Add(1) > 1 {
							t.Error("two at a time")
						}
						atIt.Add(-1)
						db.By(s).MustEnd(t, run, cronjob.Succeeded)
					} else if !errors.Is(err, cronjob.ErrNotDue) {
						t.Errorf("%d: %v", i, err)
					}
					break
				}
			}
		})
		for slot := range slots {
			if n := begun[slot].Load(); n != 1 {
				t.Errorf("slot %d was begun %d times", slot, n)
			}
		}
		db.MustCount(t, slots, "job_runs WHERE status = 'SUCCEEDED' AND attempt = 1")
	}))
}

// Each job has a row of its own to wait for.
func TestJobsDoNotWaitForEachOther(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		db.Known(t, Report, "other")
		db.Begun(t, "SELECT * FROM jobs WHERE name = 'other' FOR UPDATE",
			"INSERT INTO job_runs SELECT 'other', 1, 'RUNNING', 1, 'x', 1, 1, '', 1, NULL, '', ''")
		db.MustEnd(t, db.MustBegin(t, "a/1", SomeSlot(1)), cronjob.Failed)
		MustBeError(t, "a job whose row is locked", ErrorOf(db.Usual(t).BeginRun(t.Context(), "other", "a/1", Term, At(SomeSlot(1)))), dispatch.ErrUnavailable)
	})
}

func TestExpiredRunIsTakenOver(t *testing.T) {
	Each(t, withJob(func(t *testing.T, db *Bench) {
		first := db.MustBegin(t, "a/1", SomeSlot(1))
		die(db, t)
		second := db.MustBegin(t, "b/2", SomeSlot(2))
		_, row := only(db, t)
		want := first
		want.Attempt, want.Owner, want.Fence = 2, "b/2", second.Fence
		want.BeganAt, want.LeasedUntil = second.BeganAt, second.LeasedUntil
		if got := row.Run(); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(got, second) {
			t.Errorf("stored %+v, returned %+v, want %+v", got, second, want)
		}
		if second.Fence <= first.Fence || second.LeasedUntil.Sub(*second.BeganAt) != Term || second.BeganAt.Before(*first.BeganAt) {
			t.Errorf("first %+v, then %+v", first, second)
		}
		MustBeError(t, "a third", ErrorOf(db.Begin(t, "c/3", SomeSlot(2))), cronjob.ErrRunning)
		db.MustEnd(t, second, cronjob.Succeeded)
		mustBeginFirst(db, t, "c/3", SomeSlot(2))
	}))
}

// A run that kills each instance is given up, and the next slot begins.
func TestARunIsGivenUp(t *testing.T) {
	Each(t, withJob(func(t *testing.T, db *Bench) {
		for i := range cronjob.MaxAttempts {
			if run := db.MustBegin(t, fmt.Sprintf("%d/x", i), SomeSlot(1)); run.Attempt != i+1 {
				t.Errorf("attempt %d is %+v", i+1, run)
			}
			die(db, t)
		}
		MustBeError(t, "nothing else is due", ErrorOf(db.BeginRun(t.Context(), Report, "z/1", Term, never)), cronjob.ErrNotDue)
		job, row := only(db, t)
		if row.Status != cronjob.Failed || row.AliveUntil != nil || row.EndedAt == nil || row.Attempt != cronjob.MaxAttempts || !strings.Contains(row.Error, "abandoned") {
			t.Errorf("it is %+v", row)
		}
		if job.SucceededAt != nil || !reflect.DeepEqual(job.EndedAt, row.EndedAt) {
			t.Errorf("the job is %+v", job)
		}
		for range cronjob.MaxAttempts {
			db.MustBegin(t, "a/1", SomeSlot(2))
			die(db, t)
		}
		mustBeginFirst(db, t, "b/2", SomeSlot(3))
		db.MustCount(t, 2, "job_runs WHERE status = 'FAILED'")
	}))
}

// The fence of a run is larger than any before it, whatever the database's clock says.
func TestFencesGrow(t *testing.T) {
	Each(t, withJob(func(t *testing.T, db *Bench) {
		last := db.MustBegin(t, "a/1", SomeSlot(1))
		db.MustBeAbout(t, "the fence", last.Fence, 0)
		db.MustEnd(t, last, cronjob.Succeeded)
		ahead := last.Fence + time.Hour.Microseconds()
		db.Exec(t, "UPDATE jobs SET fence = ?", ahead)
		for i := range 3 {
			next := db.MustBegin(t, "a/1", SomeSlot(2))
			if want := ahead + int64(i) + 1; next.Fence != want {
				t.Errorf("the fence is %d, want %d", next.Fence, want)
			}
			die(db, t)
		}
	}))
}
