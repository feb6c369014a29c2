package gocronlock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"firsttap/lock"
	"firsttap/lock/gocronlock"
	"firsttap/redisclient"
	"firsttap/servertest"
	"firsttap/testkit"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// long is a hold that is over within a test only when it is released.
var long = lock.Renewed(time.Minute, time.Hour)

// each runs test on every strategy, with nothing held.
func each(t *testing.T, test func(t *testing.T, strategy lock.Strategy)) {
	t.Run("memory", func(t *testing.T) { test(t, lock.NewMemory()) })
	t.Run("redis", func(t *testing.T) { test(t, redisAt(t, servertest.RedisURL(t))) })
}

func redisAt(t *testing.T, url string) *lock.Redis {
	t.Helper()
	client, err := redisclient.Dial(url, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return lock.NewRedis(client, lock.TaggedKeys("gocronlock:"+rand.Text()))
}

func newLocker(t *testing.T, strategy lock.Strategy) *lock.Locker {
	t.Helper()
	l := lock.New(strategy, lock.Options{Timeout: 5 * time.Second})
	t.Cleanup(l.Close)
	return l
}

func newLocks(t *testing.T, strategy lock.Strategy, hold lock.Hold) *gocronlock.Locker {
	t.Helper()
	return gocronlock.NewLocker(newLocker(t, strategy), hold, nil)
}

// scheduler may be shut down twice: gocron may hang in a second Shutdown right after the first.
type scheduler struct {
	gocron.Scheduler
	shutdown func() error
}

func (s scheduler) Shutdown() error { return s.shutdown() }

// start returns a scheduler that runs until the test ends.
func start(t *testing.T, options ...gocron.SchedulerOption) gocron.Scheduler {
	t.Helper()
	real, err := gocron.NewScheduler(options...)
	if err != nil {
		t.Fatal(err)
	}
	s := scheduler{real, sync.OnceValue(real.Shutdown)}
	s.Start()
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return s
}

func startLocked(t *testing.T, locks *gocronlock.Locker) gocron.Scheduler {
	t.Helper()
	return start(t, gocron.WithDistributedLocker(locks))
}

// once runs task once, now, as the job name.
func once(t *testing.T, s gocron.Scheduler, name string, task any, options ...gocron.JobOption) gocron.Job {
	t.Helper()
	return add(t, s, gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), name, task, options...)
}

func add(t *testing.T, s gocron.Scheduler, when gocron.JobDefinition, name string, task any, options ...gocron.JobOption) gocron.Job {
	t.Helper()
	job, err := s.NewJob(when, gocron.NewTask(task), append(options, gocron.WithName(name))...)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// refused returns a listener, and the errors with which runs are skipped.
func refused() (gocron.JobOption, <-chan error) {
	errs := make(chan error, 100)
	return gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { errs <- err })), errs
}

// failed returns a listener, and the errors of the runs.
func failed() (gocron.JobOption, <-chan error) {
	errs := make(chan error, 100)
	return gocron.WithEventListeners(gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { errs <- err })), errs
}

func mustBeHeld(t *testing.T, rival *lock.Locker, name string) {
	t.Helper()
	lease, err := rival.Acquire(t.Context(), name, lock.Fixed(time.Minute))
	if lease != nil {
		_ = lease.Release(t.Context())
	}
	if !errors.Is(err, lock.ErrHeld) {
		t.Fatalf("another owner of %s got %v, not that it is held", name, err)
	}
}

// mustBecomeFree waits for a release: the test's hold lasts longer than it waits.
func mustBecomeFree(t *testing.T, rival *lock.Locker, name string) {
	t.Helper()
	lease, err := rival.Acquire(t.Context(), name, lock.Hold{TTL: time.Minute, Wait: testkit.Patience})
	if err != nil {
		t.Fatalf("%s was not released: %v", name, err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// logged returns a log, and its lines at level or above.
func logged(level slog.Level) (*slog.Logger, <-chan string) {
	messages := make(chan string, 100)
	return slog.New(&handler{slog.DiscardHandler, level, messages}), messages
}

type handler struct {
	slog.Handler
	level    slog.Level
	messages chan<- string
}

func (h *handler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h *handler) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	h.messages <- text
	return nil
}
