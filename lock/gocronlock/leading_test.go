package gocronlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"firsttap/lock"
	"firsttap/lock/gocronlock"
	"firsttap/servertest"
	"firsttap/testkit"
)

// candidate is a Leader whose lead ends within a test only when it is handed over.
func candidate(t *testing.T, strategy lock.Strategy) *lock.Leader {
	t.Helper()
	leader := newLocker(t, strategy).Leader("jobs", 30*time.Millisecond, time.Minute)
	t.Cleanup(func() { _ = leader.Resign(context.WithoutCancel(t.Context())) })
	return leader
}

// Only the leader's scheduler runs the job. Another job of the same scheduler has a lease of its own.
func TestLeading(t *testing.T) {
	each(t, func(t *testing.T, strategy lock.Strategy) {
		often := gocron.DurationJob(20 * time.Millisecond)
		leader, next := candidate(t, strategy), candidate(t, strategy)
		var runs, nextRuns atomic.Int32
		ran, nextRan, nextOwn := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)

		locks, nextLocks := gocronlock.NewLeaderLocker(leader), gocronlock.NewLeaderLocker(next)
		s := start(t)
		add(t, s, often, "led", locks.Bind(func(context.Context) error { runs.Add(1); tell(ran); return nil }),
			gocron.WithDistributedJobLocker(locks))
		testkit.Await(t, "the leader's job runs", ran)

		other := start(t)
		listener, errs := refused()
		add(t, other, often, "led", nextLocks.Bind(func(context.Context) error { nextRuns.Add(1); tell(nextRan); return nil }),
			gocron.WithDistributedJobLocker(nextLocks), listener)
		own := newLocks(t, strategy, long)
		add(t, other, often, "own", own.Bind("own", func(context.Context) error { tell(nextOwn); return nil }), gocron.WithDistributedJobLocker(own))
		for range 3 {
			if err := testkit.Await(t, "the other is refused", errs); !errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("it is refused with %v", err)
			}
			testkit.Await(t, "the leader's job runs", ran)
			testkit.Await(t, "a job with a lease of its own runs", nextOwn)
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

// The task keeps the lead while it runs, and its context ends with the lead.
func TestLeadingBindEndsWithTheLead(t *testing.T) {
	each(t, func(t *testing.T, strategy lock.Strategy) {
		leader := newLocker(t, strategy).Leader("jobs", 30*time.Millisecond, 300*time.Millisecond)
		locks := gocronlock.NewLeaderLocker(leader)
		listener, errs := failed()
		running, causes := make(chan int64, 1), make(chan error, 1)
		once(t, start(t), "job", locks.Bind(func(ctx context.Context) error {
			running <- lock.FromContext(ctx).Fence()
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return errNo
		}), listener, gocron.WithDistributedJobLocker(locks))
		fence := testkit.Await(t, "it runs", running)
		broken, err := strategy.(lock.Admin).Break(t.Context(), "jobs")
		if err != nil || broken.Fence <= fence {
			t.Fatalf("the task's fence was %d, and then broken: %+v, %v", fence, broken, err)
		}
		if cause := testkit.Await(t, "the context ends", causes); !errors.Is(cause, lock.ErrLost) {
			t.Errorf("the context's end is %v", cause)
		}
		if err := testkit.Await(t, "the run fails", errs); !errors.Is(err, lock.ErrLost) || !errors.Is(err, errNo) {
			t.Errorf("gocron got %v", err)
		}
	})
}

func TestLeadingOfLongRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := lock.NewMemory()
		var running, most, runs atomic.Int32
		for _, late := range []time.Duration{time.Second, 3 * time.Second} {
			leader := newLocker(t, memory).Leader("jobs", time.Second, 3*time.Second)
			t.Cleanup(func() { _ = leader.Resign(context.WithoutCancel(t.Context())) })
			locks := gocronlock.NewLeaderLocker(leader)
			add(t, start(t), gocron.DurationJob(5*time.Second), "job", locks.Bind(func(ctx context.Context) error {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				runs.Add(1)
				select {
				case <-time.After(17 * time.Second):
				case <-ctx.Done():
				}
				return nil
			}), gocron.WithDistributedJobLocker(locks), gocron.WithStartAt(gocron.WithStartDateTime(time.Now().Add(late))),
				gocron.WithSingletonMode(gocron.LimitModeReschedule))
		}
		<-time.After(10 * time.Minute)
		if runs.Load() < 10 || most.Load() != 1 {
			t.Errorf("of %d runs %d were at the same time", runs.Load(), most.Load())
		}
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
	locks := gocronlock.NewLeaderLocker(candidate(t, lock.NewMemory()))
	for _, want := range []error{nil, errNo} {
		held, err := locks.Lock(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
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
	leader := candidate(t, strategy)
	locks := gocronlock.NewLeaderLocker(leader)
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
