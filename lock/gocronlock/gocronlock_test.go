package gocronlock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
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
	t.Helper()
	t.Parallel()
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
	return gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { keep(errs, err) })), errs
}

// failed returns a listener, and the errors of the runs.
func failed() (gocron.JobOption, <-chan error) {
	errs := make(chan error, 100)
	return gocron.WithEventListeners(gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { keep(errs, err) })), errs
}

// keep drops the error if nobody has received the many before it: a listener that waited would stop its job.
func keep(errs chan<- error, err error) {
	select {
	case errs <- err:
	default:
	}
}

// runNow asks for a run until the scheduler takes the request, for which gocron waits for a tenth of a second.
func runNow(t *testing.T, job gocron.Job) {
	t.Helper()
	testkit.Retry(t, job.RunNow)
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

// mustLock is Lock of a free name.
func mustLock(t *testing.T, locks gocron.Locker, name string) gocron.Lock {
	t.Helper()
	held, err := locks.Lock(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// resigned is a Leader of "jobs" that hands over the lead at the latest when the test ends.
func resigned(t *testing.T, strategy lock.Strategy, wait, lease time.Duration) *lock.Leader {
	t.Helper()
	leader := newLocker(t, strategy).Leader("jobs", wait, lease)
	t.Cleanup(func() { _ = leader.Resign(context.WithoutCancel(t.Context())) })
	return leader
}

// candidate returns a Leader of "jobs" whose lease is longer than a test: its lead ends when it resigns. It waits
// for 30 ms while another Leader leads.
func candidate(t *testing.T, strategy lock.Strategy) *lock.Leader {
	t.Helper()
	return resigned(t, strategy, 30*time.Millisecond, time.Minute)
}

// alone is a candidate without a rival. It waits for longer than a busy machine needs, as it has one attempt only.
func alone(t *testing.T, strategy lock.Strategy) *lock.Leader {
	t.Helper()
	return resigned(t, strategy, 5*time.Second, time.Minute)
}

// job counts its runs.
type job struct {
	runs atomic.Int32
	ran  chan struct{}
}

func newJob() *job { return &job{ran: make(chan struct{}, 1)} }

func (j *job) run(context.Context) error {
	j.runs.Add(1)
	select {
	case j.ran <- struct{}{}:
	default:
	}
	return nil
}

// mustHandOver stops the leader's scheduler and resigns: then next runs, and led does not run any more.
func mustHandOver(t *testing.T, s gocron.Scheduler, leader *lock.Leader, led, next *job) {
	t.Helper()
	if n := next.runs.Load(); n > 0 {
		t.Errorf("%d runs beside the leader's", n)
	}
	if err := s.Shutdown(); err != nil {
		t.Fatal(err)
	}
	before := led.runs.Load()
	if err := leader.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the other takes over", next.ran)
	if n := led.runs.Load(); n != before {
		t.Errorf("%d runs after the shutdown", n-before)
	}
}

// mustRunSlotsOnce begins the schedule of a job for each delay of a scheduler's clock, in a bubble. It fails the test unless
// each of 20 slots is run once.
func mustRunSlotsOnce(t *testing.T, every time.Duration, clocks []time.Duration, option func() gocron.SchedulerOption) {
	t.Helper()
	const slots = 20
	first := time.Now().Add(time.Second)
	var runs [slots + 1]atomic.Int32
	for _, late := range clocks {
		add(t, start(t, option()), gocron.DurationJob(every), "job", func() { runs[time.Since(first)/every].Add(1) },
			gocron.WithStartAt(gocron.WithStartDateTime(first.Add(late))))
	}
	<-time.After(time.Until(first.Add((slots-1)*every)) + every/2)
	for slot := range slots {
		if n := runs[slot].Load(); n != 1 {
			t.Errorf("slot %d was run %d times", slot, n)
		}
	}
}

// mustRunOneAtATime begins, in a bubble, a job for each of two leaders, whose leads last for 3 s. It fails the test unless the
// runs, of 17 s each, never overlap.
func mustRunOneAtATime(t *testing.T, begin func(leader *lock.Leader, work func(context.Context) error, options ...gocron.JobOption)) {
	t.Helper()
	memory := lock.NewMemory()
	var running, most, runs atomic.Int32
	work := func(ctx context.Context) error {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		runs.Add(1)
		select {
		case <-time.After(17 * time.Second):
		case <-ctx.Done():
		}
		return nil
	}
	for _, late := range []time.Duration{time.Second, 3 * time.Second} {
		begin(resigned(t, memory, time.Second, 3*time.Second), work,
			gocron.WithStartAt(gocron.WithStartDateTime(time.Now().Add(late))), gocron.WithSingletonMode(gocron.LimitModeReschedule))
	}
	<-time.After(10 * time.Minute)
	if runs.Load() < 10 || most.Load() != 1 {
		t.Errorf("of %d runs %d were at the same time", runs.Load(), most.Load())
	}
}
