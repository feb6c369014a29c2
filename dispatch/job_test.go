package dispatch_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	. "firsttap/dispatch"
)

// running is the run of a slot that an instance is at, for the attempt-th time, and that is taken over at alive.
func running(slot time.Time, attempt int, alive time.Time) JobRun {
	return JobRun{Job: "report", Slot: slot, Status: RunRunning, Attempt: attempt, Owner: "a/1", AliveUntil: &alive}
}

func queued(slot time.Time) JobRun {
	return JobRun{Job: "report", Slot: slot, Status: RunQueued, RequestedBy: "key"}
}

func TestNextRun(t *testing.T) {
	var (
		due          = noon
		before       = noon.Add(-time.Minute)
		alive        = running(before, 1, noon.Add(time.Microsecond))
		dead         = running(before, 1, noon)
		givenBack    = running(before, 0, noon)
		deadTwice    = running(before, MaxAttempts-1, noon)
		deadForGood  = running(before, MaxAttempts, noon.Add(-time.Hour))
		aliveForGood = running(before, MaxAttempts, noon.Add(time.Second))
		asked        = queued(noon.Add(-time.Second))
		askedBefore  = queued(before.Add(-time.Second))
		slot         = JobRun{Job: "report", Slot: due}
	)
	tests := []struct {
		name string
		open []JobRun
		due  time.Time
		next JobRun
		lost []JobRun
		err  error
	}{
		{name: "nothing", err: ErrNothingDue},
		{name: "a slot", due: due, next: slot},
		{name: "a run that is alive, and a slot", open: []JobRun{alive}, due: due, err: ErrRunning},
		{name: "a run that is alive, and one asked for before", open: []JobRun{askedBefore, alive}, err: ErrRunning},
		{name: "a last attempt that is alive", open: []JobRun{aliveForGood}, due: due, err: ErrRunning},
		{name: "a dead run", open: []JobRun{dead}, next: dead},
		{name: "a dead run, and a slot", open: []JobRun{dead}, due: due, next: dead},
		{name: "a run that was given back", open: []JobRun{givenBack}, due: due, next: givenBack},
		{name: "two instances died of it", open: []JobRun{deadTwice}, due: due, next: deadTwice},
		{name: "as many as may died of it", open: []JobRun{deadForGood}, lost: []JobRun{deadForGood}, err: ErrNothingDue},
		{name: "and a slot", open: []JobRun{deadForGood}, due: due, lost: []JobRun{deadForGood}, next: slot},
		{name: "and one asked for", open: []JobRun{deadForGood, asked}, due: due, lost: []JobRun{deadForGood}, next: asked},
		{name: "one asked for", open: []JobRun{asked}, next: asked},
		{name: "one asked for, and a slot", open: []JobRun{asked}, due: due, next: asked},
		{name: "a dead run, and one asked for after", open: []JobRun{dead, asked}, due: due, next: dead},
		{name: "one asked for, and a dead run", open: []JobRun{askedBefore, dead}, due: due, next: askedBefore},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := JobState{Name: "report", Open: tt.open}
			next, lost, err := s.Next(noon, tt.due)
			if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
				t.Errorf("got %v, want %v", err, tt.err)
			}
			if !reflect.DeepEqual(next, tt.next) {
				t.Errorf("next is %+v, want %+v", next, tt.next)
			}
			if !reflect.DeepEqual(lost, tt.lost) {
				t.Errorf("given up is %+v, want %+v", lost, tt.lost)
			}
		})
	}
}

func TestWhoIsAtIt(t *testing.T) {
	s := JobState{Name: "report", Open: []JobRun{running(noon, 1, noon.Add(1500*time.Millisecond))}}
	_, _, err := s.Next(noon, noon)
	var at *RunningError
	if !errors.As(err, &at) || at.Owner != "a/1" || at.Left != 1500*time.Millisecond {
		t.Fatalf("got %#v", err)
	}
	for _, word := range []string{"a/1", "1.5s"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %s", err, word)
		}
	}
}

func TestARunAsTheClockHasIt(t *testing.T) {
	for _, tt := range []struct {
		run  JobRun
		want RunStatus
	}{
		{running(noon, 1, noon.Add(time.Microsecond)), RunRunning},
		{running(noon, 1, noon), RunInterrupted},
		{running(noon, 1, noon.Add(-time.Hour)), RunInterrupted},
		{queued(noon), RunQueued},
		{JobRun{Status: RunSucceeded}, RunSucceeded},
		{JobRun{Status: RunFailed}, RunFailed},
	} {
		got := tt.run.At(noon)
		if got.Status != tt.want {
			t.Errorf("%s is %s, want %s", tt.run.Status, got.Status, tt.want)
		}
		if got.Status = tt.run.Status; !reflect.DeepEqual(got, tt.run) {
			t.Errorf("%+v became %+v", tt.run, got)
		}
	}
}
