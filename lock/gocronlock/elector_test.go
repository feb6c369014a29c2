package gocronlock_test

import (
	"context"
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
		leader, rival, led, next := candidate(t, strategy), candidate(t, strategy), newJob(), newJob()
		s := start(t, gocron.WithDistributedElector(leader))
		add(t, s, often, "job", led.run)
		testkit.Await(t, "the leader's job runs", led.ran)

		skipped := make(skips, 1)
		add(t, start(t, gocron.WithDistributedElector(rival), gocron.WithMonitor(skipped)), often, "job", next.run)
		for range 3 {
			testkit.Await(t, "the other's run is skipped", skipped)
			testkit.Await(t, "the leader's job runs", led.ran)
		}
		mustHandOver(t, s, leader, led, next)
	})
}

// No slot is run twice and none is left out while the lead is free between the slots and changes hands.
func TestElectorWithALateClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := lock.NewMemory()
		mustRunSlotsOnce(t, 10*time.Second, []time.Duration{0, 100 * time.Millisecond, 400 * time.Millisecond}, func() gocron.SchedulerOption {
			return gocron.WithDistributedElector(resigned(t, memory, time.Second, 3*time.Second))
		})
	})
}

// A run that takes longer than the lead lasts keeps it by Campaign.
func TestElectorOfLongRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mustRunOneAtATime(t, func(leader *lock.Leader, work func(context.Context) error, options ...gocron.JobOption) {
			add(t, start(t, gocron.WithDistributedElector(leader)), gocron.DurationJob(5*time.Second), "job",
				func(ctx context.Context) error { return leader.Campaign(ctx, work) }, options...)
		})
	})
}
