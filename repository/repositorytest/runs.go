package repositorytest

import (
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// MustLose has the reply to the statement in do get lost, and fails the test unless do fails with want.
func MustLose(t *testing.T, proxy *servertest.Proxy, statement string, want error, do func() error) {
	t.Helper()
	cut := proxy.CutReply(statement)
	err := do()
	testkit.Await(t, "the cut of "+statement, cut.Done())
	MustBeError(t, "the reply to "+statement+" is lost", err, want)
}

// UntilCommit begins do, and returns when its COMMIT waits at the proxy.
func UntilCommit(t testing.TB, proxy *servertest.Proxy, do func() error) (commit *servertest.Hold, ended <-chan error) {
	t.Helper()
	commit = proxy.Hold("COMMIT")
	ended = Begin(do)
	testkit.Await(t, "the COMMIT", commit.Reached())
	return commit, ended
}

// MustRequest requests a run.
func (db *Bench) MustRequest(t testing.TB, actor string) cronjob.Run {
	t.Helper()
	run, err := db.RequestRun(t.Context(), Report, actor)
	Must(t, err)
	return run
}

// MustState returns the job's stored state.
func (db *Bench) MustState(t testing.TB) cronjob.JobState {
	t.Helper()
	states, _, err := db.JobStates(t.Context(), []string{Report})
	if err != nil || len(states) != 1 {
		t.Fatalf("%+v: %v", states, err)
	}
	return states[Report]
}

// Report is the job of these tests.
const Report = "report"

// At says that a slot is due unless it, or a later one, was begun.
func At(slot time.Time) func(cronjob.JobState, time.Time) time.Time {
	return func(s cronjob.JobState, _ time.Time) time.Time {
		if s.Slot != nil && !slot.After(*s.Slot) {
			return time.Time{}
		}
		return slot
	}
}

// SomeSlot is one in the past, the n-th.
func SomeSlot(n int) time.Time {
	return time.Date(2021, 5, 4, 12, 0, n, 0, time.UTC)
}

// Known registers jobs.
func (db *Bench) Known(t testing.TB, jobs ...string) {
	t.Helper()
	Must(t, ErrorOfPage(db.JobStates(t.Context(), jobs)))
}

// Begin begins a run of the slot.
func (db *Bench) Begin(t testing.TB, owner string, slot time.Time) (cronjob.Run, error) {
	t.Helper()
	return db.BeginRun(t.Context(), Report, owner, Term, At(slot))
}

// MustBegin is Begin of a run that begins.
func (db *Bench) MustBegin(t testing.TB, owner string, slot time.Time) cronjob.Run {
	t.Helper()
	run, err := db.Begin(t, owner, slot)
	Must(t, err)
	return run
}

// MustEnd ends a run.
func (db *Bench) MustEnd(t testing.TB, run cronjob.Run, status cronjob.Status) {
	t.Helper()
	Must(t, db.EndRun(t.Context(), run, cronjob.Outcome{Status: status}))
}

// Interrupt has the run be taken over by any instance.
func (db *Bench) Interrupt(t testing.TB, run cronjob.Run) error {
	return db.EndRun(t.Context(), run, cronjob.Outcome{Status: cronjob.Interrupted})
}

// LastRun returns the job's latest run that has ended, nil for none.
func (db *Bench) LastRun(t testing.TB, job string) *cronjob.Run {
	t.Helper()
	runs, _, err := db.Runs.Runs(t.Context(), job, dispatch.Page{Limit: 3})
	Must(t, err)
	for i := range runs {
		if runs[i].EndedAt != nil {
			return &runs[i]
		}
	}
	return nil
}

// Ending ends a run so.
func (db *Bench) Ending(t testing.TB, o cronjob.Outcome) func(cronjob.Run) error {
	return func(run cronjob.Run) error { return db.EndRun(t.Context(), run, o) }
}
