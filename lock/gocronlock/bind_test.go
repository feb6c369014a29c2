package gocronlock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"firsttap/lock"
	"firsttap/lock/gocronlock"
	"firsttap/servertest"
	"firsttap/testkit"
)

// watchful is renewed so often that a loss is noticed soon.
var watchful = lock.Hold{TTL: time.Minute, RenewEvery: 50 * time.Millisecond, AtMost: time.Hour}

func TestBindEndsWithTheLease(t *testing.T) {
	each(t, func(t *testing.T, strategy lock.Strategy) {
		locks := newLocks(t, strategy, watchful)
		mustEndWithTheLease(t, strategy, "job", func(task func(context.Context) error, listener gocron.JobOption) {
			once(t, startLocked(t, locks), "job", locks.Bind("job", task), listener)
		})
	})
}

// mustEndWithTheLease begins a task, breaks the name of its lease, and fails the test unless the task's context and run end.
func mustEndWithTheLease(t *testing.T, strategy lock.Strategy, name string, begin func(task func(context.Context) error, listener gocron.JobOption)) {
	t.Helper()
	listener, errs := failed()
	running, causes := make(chan int64, 1), make(chan error, 1)
	begin(func(ctx context.Context) error {
		running <- lock.FromContext(ctx).Fence()
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return errNo
	}, listener)
	fence := testkit.Await(t, "it runs", running)
	broken, err := strategy.(lock.Admin).Break(t.Context(), name)
	if err != nil || broken.Owner == "" || broken.Fence <= fence {
		t.Fatalf("the task's fence was %d, and then broken: %+v, %v", fence, broken, err)
	}
	if cause := testkit.Await(t, "the context ends", causes); !errors.Is(cause, lock.ErrLost) {
		t.Errorf("the context's end is %v", cause)
	}
	if err := testkit.Await(t, "the run fails", errs); !errors.Is(err, lock.ErrLost) || !errors.Is(err, errNo) {
		t.Errorf("gocron got %v", err)
	}
}

var errNo = errors.New("no")

func TestBindEndsWhenTheServerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	locks := newLocks(t, redisAt(t, server.URL()), lock.Renewed(6*time.Second, time.Hour)) // longer than a busy machine stands still
	listener, errs := failed()
	running := make(chan struct{})
	once(t, startLocked(t, locks), "job", locks.Bind("job", func(ctx context.Context) error {
		close(running)
		<-ctx.Done()
		server.Thaw() // for the release
		return nil
	}), listener)
	testkit.Await(t, "it runs", running)
	server.Freeze()
	if err := testkit.Await(t, "the run fails", errs); !errors.Is(err, lock.ErrUnreachable) {
		t.Errorf("gocron got %v", err)
	}
}

func TestBindHandsOnTheResult(t *testing.T) {
	locks := newLocks(t, lock.NewMemory(), long)
	for _, want := range []error{nil, errNo} {
		mustLock(t, locks, "job")
		if err := locks.Bind("job", func(context.Context) error { return want })(t.Context()); !errors.Is(err, want) {
			t.Errorf("%v became %v", want, err)
		}
	}
}

// A task does not run without the lease that it is bound to.
func TestBindWithoutLease(t *testing.T) {
	l := newLocker(t, lock.NewMemory())
	log, messages := logged(slog.LevelError)
	locks := gocronlock.NewLocker(l, long, log)
	for what, option := range map[string]gocron.SchedulerOption{
		"another name": gocron.WithDistributedLocker(locks),
		"no locker":    gocron.WithLocation(time.UTC),
		"an elector":   gocron.WithDistributedElector(alwaysLeader{}),
	} {
		t.Run(what, func(t *testing.T) {
			listener, errs := failed()
			once(t, start(t, option), "this", locks.Bind("that", func(context.Context) error {
				t.Error("it ran")
				return nil
			}), listener)
			if err := testkit.Await(t, "the run fails", errs); !errors.Is(err, gocronlock.ErrNoLease) {
				t.Errorf("gocron got %v", err)
			}
			if m := testkit.Await(t, "it is logged", messages); !strings.Contains(m, "that") {
				t.Errorf("logged: %s", m)
			}
		})
	}
}

type alwaysLeader struct{}

func (alwaysLeader) IsLeader(context.Context) error { return nil }

// The process stands still between Lock and the task for longer than the lease. When it goes on, the next run has begun.
func TestBindRunsOncePerLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := lock.NewMemory()
		locks := newLocks(t, memory, lock.Fixed(time.Second))
		first := mustLock(t, locks, "job")
		<-time.After(2 * time.Second)
		second := mustLock(t, locks, "job")
		rival, runs := newLocker(t, memory), 0
		task := locks.Bind("job", func(ctx context.Context) error {
			runs++
			if err := locks.Bind("job", func(context.Context) error { return nil })(t.Context()); !errors.Is(err, gocronlock.ErrNoLease) {
				t.Errorf("another run beside this one: %v", err)
			}
			// The run that found no lease ends first.
			_ = second.Unlock(t.Context())
			mustBeHeld(t, rival, "job")
			return ctx.Err()
		})
		if err := task(t.Context()); err != nil || runs != 1 {
			t.Errorf("%d runs: %v", runs, err)
		}
		_ = first.Unlock(t.Context())
		mustBecomeFree(t, rival, "job")
	})
}

// The Unlock of a run whose lease was lost does not release the next run's lease.
func TestUnlockOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, lock.NewMemory(), lock.Fixed(time.Second))
		first := mustLock(t, locks, "job")
		<-time.After(2 * time.Second)
		mustLock(t, locks, "job")
		if err := first.Unlock(t.Context()); !errors.Is(err, lock.ErrExpired) {
			t.Errorf("the lost lease ends with %v", err)
		}
		if err := locks.Bind("job", func(ctx context.Context) error { return ctx.Err() })(t.Context()); err != nil {
			t.Errorf("the next run: %v", err)
		}
	})
}

// A task does not run with a lease that was lost before.
func TestBindToALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, lock.NewMemory(), lock.Fixed(time.Second))
		held := mustLock(t, locks, "job")
		<-time.After(2 * time.Second)
		err := locks.Bind("job", func(context.Context) error {
			t.Error("it ran")
			return nil
		})(t.Context())
		if !errors.Is(err, lock.ErrExpired) {
			t.Errorf("it ends with %v", err)
		}
		_ = held.Unlock(t.Context())
	})
}
