package cronjob_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch/cronjob"
	"firsttap/internal/testkit"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// running is the run of a slot, under way at that attempt, that may be taken over at alive.
func running(slot time.Time, attempt int, alive time.Time) cronjob.Run {
	return cronjob.Run{Job: "report", Slot: slot, Status: cronjob.Running, Attempt: attempt, Owner: "a/1", LeasedUntil: &alive}
}

func queued(slot time.Time) cronjob.Run {
	return cronjob.Run{Job: "report", Slot: slot, Status: cronjob.Queued, RequestedBy: "key"}
}

func TestNextRun(t *testing.T) {
	var (
		due          = noon
		before       = noon.Add(-time.Minute)
		alive        = running(before, 1, noon.Add(time.Microsecond))
		dead         = running(before, 1, noon)
		givenBack    = running(before, 0, noon)
		deadTwice    = running(before, cronjob.MaxAttempts-1, noon)
		deadForGood  = running(before, cronjob.MaxAttempts, noon.Add(-time.Hour))
		aliveForGood = running(before, cronjob.MaxAttempts, noon.Add(time.Second))
		asked        = queued(noon.Add(-time.Second))
		askedBefore  = queued(before.Add(-time.Second))
		slot         = cronjob.Run{Job: "report", Slot: due}
	)
	tests := []struct {
		name string
		open []cronjob.Run
		due  time.Time
		next cronjob.Run
		lost []cronjob.Run
		err  error
	}{
		{name: "nothing", err: cronjob.ErrNotDue},
		{name: "a slot", due: due, next: slot},
		{name: "a run that is alive, and a slot", open: []cronjob.Run{alive}, due: due, err: cronjob.ErrRunning},
		{name: "a run that is alive, and one asked for before", open: []cronjob.Run{askedBefore, alive}, err: cronjob.ErrRunning},
		{name: "a last attempt that is alive", open: []cronjob.Run{aliveForGood}, due: due, err: cronjob.ErrRunning},
		{name: "a dead run", open: []cronjob.Run{dead}, next: dead},
		{name: "a dead run, and a slot", open: []cronjob.Run{dead}, due: due, next: dead},
		{name: "a run that was given back", open: []cronjob.Run{givenBack}, due: due, next: givenBack},
		{name: "two instances died of it", open: []cronjob.Run{deadTwice}, due: due, next: deadTwice},
		{name: "as many as may died of it", open: []cronjob.Run{deadForGood}, lost: []cronjob.Run{deadForGood}, err: cronjob.ErrNotDue},
		{name: "and a slot", open: []cronjob.Run{deadForGood}, due: due, lost: []cronjob.Run{deadForGood}, next: slot},
		{name: "and one asked for", open: []cronjob.Run{deadForGood, asked}, due: due, lost: []cronjob.Run{deadForGood}, next: asked},
		{name: "one asked for", open: []cronjob.Run{asked}, next: asked},
		{name: "one asked for, and a slot", open: []cronjob.Run{asked}, due: due, next: asked},
		{name: "a dead run, and one asked for after", open: []cronjob.Run{dead, asked}, due: due, next: dead},
		{name: "one asked for, and a dead run", open: []cronjob.Run{askedBefore, dead}, due: due, next: askedBefore},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := cronjob.JobState{Name: "report", Unfinished: tt.open}
			next, lost, err := s.Next(noon, tt.due)
			if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
				t.Errorf("got %v, want %v", err, tt.err)
			}
			testkit.Equal(t, "the next run", tt.next, next)
			testkit.Equal(t, "the runs given up", tt.lost, lost)
		})
	}
}

func TestRunningError(t *testing.T) {
	s := cronjob.JobState{Name: "report", Unfinished: []cronjob.Run{running(noon, 1, noon.Add(1500*time.Millisecond))}}
	_, _, err := s.Next(noon, noon)
	var at *cronjob.RunningError
	if !errors.As(err, &at) || at.Owner != "a/1" || at.Remaining != 1500*time.Millisecond {
		t.Fatalf("got %#v", err)
	}
	if !strings.Contains(err.Error(), "a/1") || !strings.Contains(err.Error(), "1.5s") {
		t.Errorf("%q does not say who runs it and for how long", err)
	}
}

func TestStatusAtATime(t *testing.T) {
	for _, tt := range []struct {
		run  cronjob.Run
		want cronjob.Status
	}{
		{running(noon, 1, noon.Add(time.Microsecond)), cronjob.Running},
		{running(noon, 1, noon), cronjob.Interrupted},
		{running(noon, 1, noon.Add(-time.Hour)), cronjob.Interrupted},
		{queued(noon), cronjob.Queued},
		{cronjob.Run{Status: cronjob.Succeeded}, cronjob.Succeeded},
		{cronjob.Run{Status: cronjob.Failed}, cronjob.Failed},
	} {
		want := tt.run
		want.Status = tt.want
		testkit.Equal(t, string(tt.run.Status), want, tt.run.At(noon))
	}
}
