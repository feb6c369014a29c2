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
	"github.com/google/uuid"

	"firsttap/lock"
	"firsttap/lock/gocronlock"
	"firsttap/servertest"
	"firsttap/testkit"
)

func TestOneRuns(t *testing.T) {
	each(t, func(t *testing.T, strategy lock.Strategy) {
		running, finish := make(chan struct{}), make(chan struct{})
		once(t, startLocked(t, newLocks(t, strategy, long)), "job", func() {
			close(running)
			<-finish
		})
		testkit.Await(t, "the first runs", running)

		listener, errs := refused()
		second := startLocked(t, newLocks(t, strategy, long))
		again := newJob()
		job := once(t, second, "job", again.run, listener)
		if err := testkit.Await(t, "the second is refused", errs); !errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("the second is refused with %v", err)
		}
		other := make(chan struct{})
		once(t, second, "other", func() { close(other) })
		testkit.Await(t, "a job of another name runs", other)

		close(finish)
		mustBecomeFree(t, newLocker(t, strategy), "job")
		runNow(t, job)
		testkit.Await(t, "the second runs after the first", again.ran)
	})
}

// However a run ends, its lease is released.
func TestReleased(t *testing.T) {
	const name = "job"
	wait := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	leave := func(*testing.T, gocron.Scheduler, gocron.Job) {}
	ways := []struct {
		name   string
		work   func(ctx context.Context) error
		end    func(t *testing.T, s gocron.Scheduler, job gocron.Job)
		option gocron.JobOption
	}{
		{name: "returns", work: func(context.Context) error { return nil }, end: leave},
		{name: "fails", work: func(context.Context) error { return errors.New("no") }, end: leave},
		{
			name: "panics", work: func(context.Context) error { panic("no") }, end: leave,
			option: gocron.WithEventListeners(gocron.AfterJobRunsWithPanic(func(uuid.UUID, string, any) {})),
		},
		{
			// gocron removes the job, and ends its context, around the time of Unlock.
			name: "was the last", work: func(context.Context) error { return nil }, end: leave,
			option: gocron.WithLimitedRuns(1),
		},
		{name: "is removed", work: wait, end: func(t *testing.T, s gocron.Scheduler, job gocron.Job) {
			if err := s.RemoveJob(job.ID()); err != nil {
				t.Error(err)
			}
		}},
		{name: "is replaced", work: wait, end: func(t *testing.T, s gocron.Scheduler, job gocron.Job) {
			if _, err := s.Update(job.ID(), gocron.DurationJob(time.Hour), gocron.NewTask(func() {})); err != nil {
				t.Error(err)
			}
		}},
		{name: "is stopped", work: wait, end: func(t *testing.T, s gocron.Scheduler, _ gocron.Job) {
			if err := s.StopJobs(); err != nil {
				t.Error(err)
			}
		}},
		{name: "is shut down", work: wait, end: func(t *testing.T, s gocron.Scheduler, _ gocron.Job) {
			if err := s.Shutdown(); err != nil {
				t.Error(err)
			}
		}},
	}
	each(t, func(t *testing.T, strategy lock.Strategy) {
		rival := newLocker(t, strategy)
		for _, way := range ways {
			for kind, bind := range map[string]bool{"plain": false, "bound": true} {
				t.Run(way.name+"/"+kind, func(t *testing.T) {
					locks := newLocks(t, strategy, long)
					running, goOn := make(chan struct{}), make(chan struct{})
					task := func(ctx context.Context) error {
						close(running)
						<-goOn
						return way.work(ctx)
					}
					if bind {
						task = locks.Bind(name, task)
					}
					var options []gocron.JobOption
					if way.option != nil {
						options = append(options, way.option)
					}
					s := startLocked(t, locks)
					job := once(t, s, name, task, options...)
					testkit.Await(t, "it runs", running)
					mustBeHeld(t, rival, name)
					close(goOn)
					way.end(t, s, job)
					mustBecomeFree(t, rival, name)
				})
			}
		}
	})
}

// A task that outlives its scheduler keeps its lease.
func TestHeldUntilTheTaskReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := lock.NewMemory()
		rival, locks := newLocker(t, memory), newLocks(t, memory, long)
		s := startLocked(t, locks)
		running, ended, finish := make(chan struct{}), make(chan error, 1), make(chan struct{})
		job := once(t, s, "job", locks.Bind("job", func(ctx context.Context) error {
			close(running)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			<-finish
			return nil
		}))
		testkit.Await(t, "it runs", running)
		if err := s.RemoveJob(job.ID()); err != nil {
			t.Fatal(err)
		}
		if cause := testkit.Await(t, "its context ends", ended); errors.Is(cause, lock.ErrLost) {
			t.Errorf("the context of a removed job ended with %v", cause)
		}
		<-time.After(2 * long.TTL)
		mustBeHeld(t, rival, "job")
		close(finish)
		mustBecomeFree(t, rival, "job")
	})
}

// Between Lock and the task gocron calls its listeners. If one refuses the run, gocron calls only Unlock.
func TestReleasedWhenSkipped(t *testing.T) {
	each(t, func(t *testing.T, strategy lock.Strategy) {
		locks := newLocks(t, strategy, long)
		asked := make(chan struct{})
		ran := false
		once(t, startLocked(t, locks), "job", locks.Bind("job", func(context.Context) error {
			ran = true
			return nil
		}), gocron.WithEventListeners(gocron.BeforeJobRunsSkipIfBeforeFuncErrors(func(uuid.UUID, string) error {
			close(asked)
			return errors.New("not now")
		})))
		testkit.Await(t, "the listener is asked", asked)
		mustBecomeFree(t, newLocker(t, strategy), "job")
		if ran {
			t.Error("the task ran")
		}
		if err := locks.Bind("job", func(context.Context) error { return nil })(t.Context()); !errors.Is(err, gocronlock.ErrNoLease) {
			t.Errorf("the lease that was released is left for another run: %v", err)
		}
	})
}

// gocron does not call Unlock for a task that hangs, but its lease ends.
func TestHangs(t *testing.T) {
	for kind, bind := range map[string]bool{"plain": false, "bound": true} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := lock.NewMemory()
				locks := newLocks(t, memory, lock.Renewed(3*time.Second, time.Minute))
				running, finish := make(chan struct{}), make(chan struct{})
				task := func(context.Context) error {
					close(running)
					<-finish
					return nil
				}
				if bind {
					task = locks.Bind("job", task)
				}
				once(t, startLocked(t, locks), "job", task)
				defer close(finish)
				testkit.Await(t, "it runs", running)

				began := time.Now()
				rival, err := newLocker(t, memory).Acquire(t.Context(), "job", lock.Hold{TTL: time.Second, Wait: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				defer rival.Release(t.Context())
				if took := time.Since(began); took < time.Minute || took > time.Minute+4*time.Second {
					t.Errorf("it was held for %s", took)
				}
			})
		})
	}
}

// A short job is not run again by a scheduler whose clock is a little late.
func TestAtLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := lock.NewMemory()
		mustRunSlotsOnce(t, time.Second, []time.Duration{0, 100 * time.Millisecond}, func() gocron.SchedulerOption {
			return gocron.WithDistributedLocker(newLocks(t, memory, lock.Between(500*time.Millisecond, 900*time.Millisecond)))
		})
	})
}

// A job that waits for its lease stops waiting when gocron removes it.
func TestRemovedWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := lock.NewMemory()
		rival, err := newLocker(t, memory).Acquire(t.Context(), "job", long)
		if err != nil {
			t.Fatal(err)
		}
		defer rival.Release(t.Context())
		listener, errs := refused()
		s := startLocked(t, newLocks(t, memory, lock.Hold{TTL: time.Minute, Wait: time.Hour}))
		job := once(t, s, "job", func() { t.Error("it ran") }, listener)
		synctest.Wait()
		if err := s.RemoveJob(job.ID()); err != nil {
			t.Fatal(err)
		}
		if err := testkit.Await(t, "it gives up", errs); !errors.Is(err, context.Canceled) || !errors.Is(err, lock.ErrHeld) {
			t.Errorf("it gives up with %v", err)
		}
	})
}

func TestOutage(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	log, messages := logged(slog.LevelWarn)
	l := lock.New(redisAt(t, server.URL()), lock.Options{Timeout: 5 * time.Second, Log: log})
	defer l.Close()
	s := startLocked(t, gocronlock.NewLocker(l, long, log))
	server.Freeze()

	listener, errs := refused()
	skipped := newJob()
	job := once(t, s, "job", skipped.run, listener)
	if err := testkit.Await(t, "the run is skipped", errs); !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrHeld) {
		t.Errorf("it is skipped with %v", err)
	}
	if m := testkit.Await(t, "it is logged", messages); !strings.Contains(m, "unavailable") || !strings.Contains(m, "job") {
		t.Errorf("logged: %s", m)
	}
	server.Thaw()
	mustBecomeFree(t, l, "job") // also after the attempt, which may have acquired it
	runNow(t, job)
	testkit.Await(t, "it runs after the outage", skipped.ran)
}

// A job that can never be locked never runs, which is logged.
func TestInvalid(t *testing.T) {
	for what, bad := range map[string]struct {
		name string
		hold lock.Hold
	}{
		"name": {strings.Repeat("x", lock.MaxNameLength+1), long},
		"hold": {"job", lock.Hold{TTL: time.Minute, RenewEvery: time.Second}},
	} {
		t.Run(what, func(t *testing.T) {
			log, messages := logged(slog.LevelError)
			listener, errs := refused()
			s := startLocked(t, gocronlock.NewLocker(newLocker(t, lock.NewMemory()), bad.hold, log))
			once(t, s, bad.name, func() { t.Error("it ran") }, listener)
			if err := testkit.Await(t, "the run is skipped", errs); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("it is skipped with %v", err)
			}
			if m := testkit.Await(t, "it is logged", messages); !strings.Contains(m, bad.name) {
				t.Errorf("logged: %s", m)
			}
		})
	}
}
