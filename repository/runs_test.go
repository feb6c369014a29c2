package repository

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/testkit"
)

// report is the job of these tests.
const report = "report"

// at says that a slot is due unless it, or a later one, was begun.
func at(slot time.Time) func(cronjob.JobState, time.Time) time.Time {
	return func(s cronjob.JobState, _ time.Time) time.Time {
		if s.Slot != nil && !slot.After(*s.Slot) {
			return time.Time{}
		}
		return slot
	}
}

// never is a schedule without a due slot.
var never = at(time.Time{})

// someSlot is one in the past, the n-th.
func someSlot(n int) time.Time {
	return time.Date(2021, 5, 4, 12, 0, n, 0, time.UTC)
}

func (db *database) known(t testing.TB, jobs ...string) {
	t.Helper()
	must(t, errorOf(db.RegisterJobs(t.Context(), jobs)))
}

// withJob is a test of a database that knows the job.
func withJob(test func(*testing.T, *database)) func(*testing.T, *database) {
	return func(t *testing.T, db *database) {
		t.Helper()
		db.known(t, report)
		test(t, db)
	}
}

func (s *Store) begin(t testing.TB, owner string, slot time.Time) (cronjob.Run, error) {
	t.Helper()
	return s.BeginRun(t.Context(), report, owner, term, at(slot))
}

func (s *Store) mustBegin(t testing.TB, owner string, slot time.Time) cronjob.Run {
	t.Helper()
	run, err := s.begin(t, owner, slot)
	must(t, err)
	return run
}

// mustBeginFirst fails the test unless the run that begins is the first attempt at the slot.
func (s *Store) mustBeginFirst(t testing.TB, owner string, slot time.Time) {
	t.Helper()
	if run := s.mustBegin(t, owner, slot); run.Attempt != 1 || !run.Slot.Equal(slot) {
		t.Errorf("%+v began, want the first attempt at %v", run, slot)
	}
}

func (s *Store) mustEnd(t testing.TB, run cronjob.Run, status cronjob.Status) {
	t.Helper()
	must(t, s.EndRun(t.Context(), run, cronjob.Outcome{Status: status}))
}

// ending ends a run so.
func (s *Store) ending(t testing.TB, o cronjob.Outcome) func(cronjob.Run) error {
	return func(run cronjob.Run) error { return s.EndRun(t.Context(), run, o) }
}

// die ends the lease of the running attempt.
func (db *database) die(t testing.TB) {
	t.Helper()
	db.exec(t, "UPDATE job_runs SET alive_until = 1 WHERE status = 'RUNNING'")
}

// ledger is all rows of jobs and runs.
type ledger struct {
	Jobs []jobRow
	Runs []runRow
}

func (db *database) ledger(t testing.TB) (l ledger) {
	t.Helper()
	read := db.serve.WithContext(t.Context())
	for _, err := range []error{read.Order("name").Find(&l.Jobs).Error, read.Order("job, slot").Find(&l.Runs).Error} {
		must(t, err)
	}
	return l
}

// only is the one job, and its latest run.
func (db *database) only(t testing.TB) (jobRow, runRow) {
	t.Helper()
	l := db.ledger(t)
	if len(l.Jobs) != 1 || len(l.Runs) == 0 {
		t.Fatalf("the ledger is %+v", l)
	}
	return l.Jobs[0], l.Runs[len(l.Runs)-1]
}

func (db *database) mustBe(t testing.TB, want ledger) {
	t.Helper()
	testkit.Equal(t, "the ledger", want, db.ledger(t))
}

func mustBeError(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
	// "No", "busy" and "don't know" are three.
	for _, other := range []error{dispatch.ErrUnavailable, dispatch.ErrUnknown} {
		if !errors.Is(want, other) && errors.Is(got, other) {
			t.Errorf("%s: %v is %v too", what, got, other)
		}
	}
}

// errorOf is the error of a call that has a result.
func errorOf[T any](_ T, err error) error { return err }

func TestBeginRun(t *testing.T) {
	each(t, withJob(func(t *testing.T, db *database) {
		db.known(t, report, "other")
		asked := 0
		run, err := db.BeginRun(t.Context(), report, "a/1", term, func(s cronjob.JobState, now time.Time) time.Time {
			asked++
			if s.Name != report || s.Slot != nil || s.Unfinished != nil {
				t.Errorf("no state is stored, and due got %+v", s)
			}
			db.mustBeAbout(t, "now", micros(now), 0)
			db.mustBeAbout(t, "the registration", micros(s.RegisteredAt), 0)
			return someSlot(1)
		})
		if err != nil || asked != 1 {
			t.Fatalf("asked %d times: %v", asked, err)
		}
		row := db.ledger(t).Runs[0]
		if got := row.run(); !reflect.DeepEqual(got, run) {
			t.Errorf("stored %+v, returned %+v", got, run)
		}
		began := *row.BeganAt
		want := runRow{
			Job: report, Slot: micros(someSlot(1)), Status: cronjob.Running, Attempt: 1, Owner: "a/1", Fence: row.Fence,
			BeganAt: &began, AliveUntil: new(began + term.Microseconds()),
		}
		if !reflect.DeepEqual(row, want) {
			t.Errorf("stored %+v, want %+v", row, want)
		}
		db.mustBeAbout(t, "began_at", began, 0)
		for _, job := range db.ledger(t).Jobs {
			if job.Name == report && (job.Slot == nil || *job.Slot != row.Slot || job.Fence != row.Fence) || job.Name != report && job.Slot != nil {
				t.Errorf("of the job is remembered %+v", job)
			}
		}
		mustBeError(t, "an unknown job", errorOf(db.BeginRun(t.Context(), "unknown", "a/1", term, at(someSlot(1)))), cronjob.ErrNotFound)
		mustBeError(t, "a job that is not due", errorOf(db.BeginRun(t.Context(), "other", "a/1", term, never)), cronjob.ErrNotDue)
		db.mustCount(t, 1, "job_runs")
	}))
}

// Many instances at once, each with a slot of its own.
func TestOneRunOfAJobAtATime(t *testing.T) {
	each(t, withJob(func(t *testing.T, db *database) {
		stores := []*Store{db.Store, open(t, db.url), open(t, db.url)}
		const instances = 12
		var begun [instances]cronjob.Run
		var errs [instances]error
		testkit.Together(instances, func(i int) {
			begun[i], errs[i] = stores[i%len(stores)].begin(t, fmt.Sprintf("%d/x", i), someSlot(i))
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
			if !errors.As(err, &running) || running.Owner != fmt.Sprintf("%d/x", winner) || running.Remaining <= 0 || running.Remaining > term {
				t.Errorf("instance %d got %v", i, err)
			}
		}
		db.mustCount(t, 1, "job_runs")
	}))
}

// Many instances at once, again and again, and the same slots.
func TestASlotIsBegunOnce(t *testing.T) {
	each(t, withJob(func(t *testing.T, db *database) {
		stores := []*Store{db.Store, open(t, db.url), open(t, db.url)}
		const slots, instances = 4, 9
		var begun [slots]atomic.Int32
		var atIt atomic.Int32
		testkit.Together(instances, func(i int) {
			for slot := range slots {
				for try := 0; ; try++ {
					s := stores[i%len(stores)]
					run, err := s.begin(t, fmt.Sprintf("%d.%d/%d", i, slot, try), someSlot(slot))
					if errors.Is(err, cronjob.ErrRunning) || errors.Is(err, dispatch.ErrUnavailable) {
						continue // at it, or waited for
					}
					if err == nil {
						begun[slot].Add(1)
						if atIt.Add(1) > 1 {
							t.Error("two at a time")
						}
						atIt.Add(-1)
						s.mustEnd(t, run, cronjob.Succeeded)
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
		db.mustCount(t, slots, "job_runs WHERE status = 'SUCCEEDED' AND attempt = 1")
	}))
}

// Each job has a row of its own to wait for.
func TestJobsDoNotWaitForEachOther(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		db.known(t, report, "other")
		db.begun(t, "SELECT * FROM jobs WHERE name = 'other' FOR UPDATE",
			"INSERT INTO job_runs SELECT 'other', 1, 'RUNNING', 1, 'x', 1, 1, '', 1, NULL, '', ''")
		db.mustEnd(t, db.mustBegin(t, "a/1", someSlot(1)), cronjob.Failed)
		mustBeError(t, "a job whose row is locked", errorOf(db.usual(t).BeginRun(t.Context(), "other", "a/1", term, at(someSlot(1)))), dispatch.ErrUnavailable)
	})
}

func TestExpiredRunIsTakenOver(t *testing.T) {
	each(t, withJob(func(t *testing.T, db *database) {
		first := db.mustBegin(t, "a/1", someSlot(1))
		db.die(t)
		second := db.mustBegin(t, "b/2", someSlot(2))
		_, row := db.only(t)
		want := first
		want.Attempt, want.Owner, want.Fence = 2, "b/2", second.Fence
		want.BeganAt, want.LeasedUntil = second.BeganAt, second.LeasedUntil
		if got := row.run(); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(got, second) {
			t.Errorf("stored %+v, returned %+v, want %+v", got, second, want)
		}
		if second.Fence <= first.Fence || second.LeasedUntil.Sub(*second.BeganAt) != term || second.BeganAt.Before(*first.BeganAt) {
			t.Errorf("first %+v, then %+v", first, second)
		}
		mustBeError(t, "a third", errorOf(db.begin(t, "c/3", someSlot(2))), cronjob.ErrRunning)
		db.mustEnd(t, second, cronjob.Succeeded)
		db.mustBeginFirst(t, "c/3", someSlot(2))
	}))
}

// A run that kills each instance is given up, and the next slot begins.
func TestARunIsGivenUp(t *testing.T) {
	each(t, withJob(func(t *testing.T, db *database) {
		for i := range cronjob.MaxAttempts {
			if run := db.mustBegin(t, fmt.Sprintf("%d/x", i), someSlot(1)); run.Attempt != i+1 {
				t.Errorf("attempt %d is %+v", i+1, run)
			}
			db.die(t)
		}
		mustBeError(t, "nothing else is due", errorOf(db.BeginRun(t.Context(), report, "z/1", term, never)), cronjob.ErrNotDue)
		job, row := db.only(t)
		if row.Status != cronjob.Failed || row.AliveUntil != nil || row.EndedAt == nil || row.Attempt != cronjob.MaxAttempts || !strings.Contains(row.Error, "abandoned") {
			t.Errorf("it is %+v", row)
		}
		if job.SucceededAt != nil || !reflect.DeepEqual(job.EndedAt, row.EndedAt) {
			t.Errorf("the job is %+v", job)
		}
		for range cronjob.MaxAttempts {
			db.mustBegin(t, "a/1", someSlot(2))
			db.die(t)
		}
		db.mustBeginFirst(t, "b/2", someSlot(3))
		db.mustCount(t, 2, "job_runs WHERE status = 'FAILED'")
	}))
}

// The fence of a run is larger than any before it, whatever the database's clock says.
func TestFencesGrow(t *testing.T) {
	each(t, withJob(func(t *testing.T, db *database) {
		last := db.mustBegin(t, "a/1", someSlot(1))
		db.mustBeAbout(t, "the fence", last.Fence, 0)
		db.mustEnd(t, last, cronjob.Succeeded)
		ahead := last.Fence + time.Hour.Microseconds()
		db.exec(t, "UPDATE jobs SET fence = ?", ahead)
		for i := range 3 {
			next := db.mustBegin(t, "a/1", someSlot(2))
			if want := ahead + int64(i) + 1; next.Fence != want {
				t.Errorf("the fence is %d, want %d", next.Fence, want)
			}
			db.die(t)
		}
	}))
}
