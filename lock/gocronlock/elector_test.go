package gocronlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"firsttap/lock"
	"firsttap/testkit"
)

// skips reports skipped runs: gocron reports an Elector's answer to its monitor only.
type skips chan struct{}

func (s skips) IncrementJob(_ uuid.UUID, _ string, _ []string, status gocron.JobStatus) {
	if status == gocron.Skip {
		select {
		case s <- struct{}{}:
		default:
		}
	}
}

func (s skips) RecordJobTiming(_, _ time.Time, _ uuid.UUID, _ string, _ []string) {}

func TestElector(t *testing.T) {
	each(t, func(t *testing.T, strategy lock.Strategy) {
		often := gocron.DurationJob(20 * time.Millisecond)
		candidate := func() *lock.Leader {
			// This lead is so long that it ends within the test only when it is handed over.
			return newLocker(t, strategy).Leader("jobs", 30*time.Millisecond, time.Minute)
		}
		leader, next := candidate(), candidate()
		var runs, nextRuns atomic.Int32
		ran, nextRan := make(chan struct{}, 1), make(chan struct{}, 1)
		s := start(t, gocron.WithDistributedElector(leader))
		add(t, s, often, "job", func() { runs.Add(1); tell(ran) })
		testkit.Await(t, "the leader's job runs", ran)

		skipped := make(skips, 1)
		add(t, start(t, gocron.WithDistributedElector(next), gocron.WithMonitor(skipped)), often, "job",
			func() { nextRuns.Add(1); tell(nextRan) })
		defer func() { _ = next.Resign(context.WithoutCancel(t.Context())) }()
		for range 3 {
			testkit.Await(t, "the other's run is skipped", skipped)
			testkit.Await(t, "the leader's job runs", ran)
		}
		if n := nextRuns.Load(); n > 0 {
			t.Errorf("%d runs beside the leader's", n)
		}

		if err := s.Shutdown(); err != nil {
			t.Fatal(err)
		}
		before := runs.Load()
		if err := leader.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		testkit.Await(t, "the other takes over", nextRan)
		if n := runs.Load(); n != before {
			t.Errorf("%d runs after the shutdown", n-before)
		}
	})
}

func tell(ran chan<- struct{}) {
	select {
	case ran <- struct{}{}:
	default:
	}
}

// No slot is run twice and none is left out while the lead is free between the slots and changes hands.
func TestElectorWithALateClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, every = 20, 10 * time.Second
		memory := lock.NewMemory()
		first := time.Now().Add(time.Second)
		var runs [slots + 1]atomic.Int32
		for _, late := range []time.Duration{0, 100 * time.Millisecond, 400 * time.Millisecond} {
			leader := newLocker(t, memory).Leader("jobs", time.Second, 3*time.Second)
			t.Cleanup(func() { _ = leader.Resign(context.WithoutCancel(t.Context())) })
			s := start(t, gocron.WithDistributedElector(leader))
			add(t, s, gocron.DurationJob(every), "job", func() { runs[time.Since(first)/every].Add(1) },
				gocron.WithStartAt(gocron.WithStartDateTime(first.Add(late))))
		}
		<-time.After(time.Until(first.Add((slots-1)*every)) + every/2)
		for slot := range slots {
			if n := runs[slot].Load(); n != 1 {
				t.Errorf("slot %d was run %d times", slot, n)
			}
		}
	})
}

// A run that takes longer than the lead lasts keeps it by Campaign.
func TestElectorOfLongRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := lock.NewMemory()
		var running, most, runs atomic.Int32
		work := func(ctx context.Context) error {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer running.Add(-1)
			runs.Add(1)
			select {
			case <-time.After(17 * time.Second):
			case <-ctx.Done():
			}
			return nil
		}
		for _, late := range []time.Duration{time.Second, 3 * time.Second} {
			leader := newLocker(t, memory).Leader("jobs", time.Second, 3*time.Second)
			t.Cleanup(func() { _ = leader.Resign(context.WithoutCancel(t.Context())) })
			s := start(t, gocron.WithDistributedElector(leader))
			add(t, s, gocron.DurationJob(5*time.Second), "job",
				func(ctx context.Context) error { return leader.Campaign(ctx, work) },
				gocron.WithStartAt(gocron.WithStartDateTime(time.Now().Add(late))),
				gocron.WithSingletonMode(gocron.LimitModeReschedule))
		}
		<-time.After(10 * time.Minute)
		if runs.Load() < 10 || most.Load() != 1 {
			t.Errorf("of %d runs %d were at the same time", runs.Load(), most.Load())
		}
	})
}
