package gocronlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"firsttap/lock"
	"firsttap/lock/gocronlock"
	"firsttap/servertest"
	"firsttap/testkit"
)

// Only the leader's scheduler runs the job. Another job of the same scheduler has a lease of its own.
func TestLeading(t *testing.T) {
	each(t, func(t *testing.T, strategy lock.Strategy) {
		often := gocron.DurationJob(20 * time.Millisecond)
		leader, rival := candidate(t, strategy), candidate(t, strategy)
		led, next, own := newJob(), newJob(), newJob()
		s := start(t)
		locks := gocronlock.NewLeaderLocker(leader)
		add(t, s, often, "led", locks.Bind(led.run), gocron.WithDistributedJobLocker(locks))
		testkit.Await(t, "the leader's job runs", led.ran)

		other := start(t)
		listener, errs := refused()
		locks = gocronlock.NewLeaderLocker(rival)
		add(t, other, often, "led", locks.Bind(next.run), gocron.WithDistributedJobLocker(locks), listener)
		ownLocks := newLocks(t, strategy, long)
		add(t, other, often, "own", ownLocks.Bind("own", own.run), gocron.WithDistributedJobLocker(ownLocks))
		for range 3 {
			err := testkit.Await(t, "the other is refused", errs)
			for errors.Is(err, lock.ErrUnavailable) && !errors.Is(err, lock.ErrHeld) { // the server took longer than the candidate's wait
				err = testkit.Await(t, "the other is refused", errs)
			}
			if !errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("it is refused with %v", err)
			}
			testkit.Await(t, "the leader's job runs", led.ran)
			testkit.Await(t, "a job with a lease of its own runs", own.ran)
		}
		mustHandOver(t, s, leader, led, next)
	})
}

// The task keeps the lead while it runs, and its context ends with the lead.
func TestLeadingBindEndsWithTheLead(t *testing.T) {
	each(t, func(t *testing.T, strategy lock.Strategy) {
		locks := gocronlock.NewLeaderLocker(resigned(t, strategy, 5*time.Second, 6*time.Second))
		mustEndWithTheLease(t, strategy, "jobs", func(task func(context.Context) error, listener gocron.JobOption) {
			once(t, start(t), "job", locks.Bind(task), listener, gocron.WithDistributedJobLocker(locks))
		})
	})
}

func TestLeadingOfLongRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mustRunOneAtATime(t, func(leader *lock.Leader, work func(context.Context) error, options ...gocron.JobOption) {
			locks := gocronlock.NewLeaderLocker(leader)
			options = append(options, gocron.WithDistributedJobLocker(locks))
			add(t, start(t), gocron.DurationJob(5*time.Second), "job", locks.Bind(work), options...)
		})
	})
}

// An unavailable lock is another error than a held one.
func TestLeadingWithoutAServer(t *testing.T) {
	server := servertest.StartRedis(t)
	leader := candidate(t, redisAt(t, server.URL()))
	server.Freeze()
	held, err := gocronlock.NewLeaderLocker(leader).Lock(t.Context(), "job")
	if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrHeld) || held != nil {
		t.Errorf("got %v, %v", held, err)
	}
	server.Thaw()
}

func TestLeadingBindHandsOnTheResult(t *testing.T) {
	locks := gocronlock.NewLeaderLocker(alone(t, lock.NewMemory()))
	for _, want := range []error{nil, errNo} {
		held := mustLock(t, locks, "job")
		if err := locks.Bind(func(context.Context) error { return want })(t.Context()); !errors.Is(err, want) {
			t.Errorf("%v became %v", want, err)
		}
		if err := held.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// The task's context ends with gocron's too, and the leader keeps the lead until it hands it over.
func TestLeadingBindEndsWithTheScheduler(t *testing.T) {
	strategy := lock.NewMemory()
	locks := gocronlock.NewLeaderLocker(alone(t, strategy))
	running, causes := make(chan struct{}), make(chan error, 1)
	s := start(t)
	once(t, s, "job", locks.Bind(func(ctx context.Context) error {
		close(running)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil
	}), gocron.WithDistributedJobLocker(locks))
	testkit.Await(t, "it runs", running)
	if err := s.Shutdown(); err != nil {
		t.Fatal(err)
	}
	if cause := testkit.Await(t, "the context ends", causes); errors.Is(cause, lock.ErrLost) {
		t.Errorf("the lead is lost: %v", cause)
	}
	mustBeHeld(t, newLocker(t, strategy), "jobs")
}
