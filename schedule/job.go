package schedule

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"

	"firsttap/cronjob"
	"firsttap/lock"
	"firsttap/lock/gocronlock"
)

const (
	// mostEarly is how much before its slot a run may begin: clocks are not read at the same moment.
	mostEarly = 100 * time.Millisecond
	// longestTerm and shortestTerm bound how soon a run that is not heard of is taken over.
	longestTerm  = 10 * time.Second
	shortestTerm = time.Second
	// mostStuck is how many works of a job that did not return when they were told to an instance puts up with.
	mostStuck = 3
)

// job is a Job in a Scheduler, and its gocron.Locker.
type job struct {
	Job
	s       *Scheduler
	most    time.Duration // that a run may take
	hold    lock.Hold     // of a run
	early   time.Duration // before its slot, a run may begin
	locks   gocron.Locker // the job's lock, or the lead
	bind    func(task func(ctx context.Context) error) func(ctx context.Context) error
	cron    gocron.Job
	busy    sync.Mutex // held while this instance is at the job
	ran     bool       // in this turn; of whoever holds busy
	stuck   atomic.Int32
	started atomic.Bool // an AtStart has been seen to
	said    atomic.Pointer[time.Time]
	metrics *jobMetrics
}

func newJob(s *Scheduler, spec Job) (*job, error) {
	j := &job{Job: spec, s: s}
	switch {
	case slices.Contains(s.names, spec.Name):
		return nil, errors.New("there is another of that name")
	case spec.Name == leadName || slices.Contains(s.Others, spec.Name):
		return nil, errors.New("another lock has that name")
	case spec.When == nil || spec.Work == nil:
		return nil, errors.New("it needs When and Work")
	case spec.Hold.Beat != 0 || spec.Hold.Wait != 0:
		return nil, errors.New("its Hold has a Beat or a Wait")
	case spec.Late < 0:
		return nil, fmt.Errorf("it may begin %s late", spec.Late)
	}
	if err := possible(spec.Name, spec.Hold); err != nil {
		return nil, err
	}
	var err error
	if j.When, err = spec.When.in(s.Zone); err != nil {
		return nil, err
	}
	j.early = min(mostEarly, j.When.period(s.clock.Now())/10)
	j.most = spec.Hold.AtMost
	if spec.Hold.Every == 0 {
		j.most = spec.Hold.TTL
	}
	// A run is kept alive until the work has had its Grace: it has been cut by then, and not lost.
	j.hold = lock.Renewed(max(min(spec.Hold.TTL, longestTerm), shortestTerm), j.most+2*s.Grace)
	if spec.OnLeader {
		locks := gocronlock.NewLeading(s.leader)
		j.locks, j.bind = locks, locks.Bind
	} else {
		locks := gocronlock.NewLocker(s.locker, spec.Hold, nil) // what it would log is said by refused
		j.locks = locks
		j.bind = func(task func(ctx context.Context) error) func(ctx context.Context) error {
			return locks.Bind(j.Name, task)
		}
	}
	j.metrics = newJobMetrics(s, j)
	return j, nil
}

// possible reports whether a name can be held so.
func possible(name string, hold lock.Hold) error {
	l := lock.New(lock.NewMemory(), lock.Options{})
	defer l.Close()
	lease, err := l.Acquire(context.Background(), name, hold)
	if err != nil {
		return err
	}
	return lease.Release(context.Background())
}

func (j *job) add(ctx context.Context, cron gocron.Scheduler) (err error) {
	j.cron, err = cron.NewJob(j.When.definition(), gocron.NewTask(j.bind(j.work)),
		gocron.WithName(j.Name), gocron.WithDistributedJobLocker(j), gocron.WithContext(ctx))
	return err
}

var (
	errBusy  = errors.New("schedule: this instance is at it")
	errStuck = errors.New("schedule: works of this job don't return on this instance")
	errLeft  = errors.New("the work was left behind: it did not stop")
)

// Lock implements gocron.Locker. gocron takes any error for "not now".
func (j *job) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	if !j.busy.TryLock() {
		return nil, errBusy
	}
	j.ran = false
	held, err := j.lock(ctx, key)
	if err != nil {
		j.busy.Unlock()
		j.refused(ctx, err)
		return nil, err
	}
	return &turn{j, held}, nil
}

func (j *job) lock(ctx context.Context, key string) (gocron.Lock, error) {
	if j.stuck.Load() >= mostStuck {
		return nil, errStuck
	}
	// To ask for the lead would be to wait for it, which is done elsewhere.
	if why := j.s.follows.Load(); j.OnLeader && why != nil {
		return nil, *why
	}
	return j.locks.Lock(ctx, key)
}

// turn is a job's lock, held by this instance.
type turn struct {
	j    *job
	lock gocron.Lock
}

// Unlock implements gocron.Lock.
func (t *turn) Unlock(ctx context.Context) error {
	err := t.lock.Unlock(ctx)
	ran := t.j.ran
	t.j.busy.Unlock()
	if ran {
		t.j.s.look() // for the next slot, if this one was late
	}
	return err
}

// refused says why the job does not run here now.
func (j *job) refused(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, lock.ErrHeld):
		j.skip()
	case errors.Is(err, lock.ErrUnavailable):
		j.metrics.skips.WithLabelValues(j.Name, "unavailable").Inc()
		j.say("nobody can tell who holds its lock", err)
	case errors.Is(err, errStuck):
		j.metrics.skips.WithLabelValues(j.Name, "stuck").Inc()
		j.say("it does not run here", err)
	default:
		j.metrics.skips.WithLabelValues(j.Name, "invalid").Inc()
		j.say("it can't be locked", err)
	}
}

// sayEvery is how often it is said that a job does not run.
const sayEvery = 10 * time.Second

// say writes, for operators, why the job does not run.
func (j *job) say(why string, err error) {
	now, last := time.Now(), j.said.Load()
	if last != nil && now.Sub(*last) < sayEvery || !j.said.CompareAndSwap(last, &now) {
		return
	}
	j.s.Log.Error("job does not run: "+why, "job", j.Name, "error", err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := j.s.Ledger.BlockJob(ctx, j.Name, j.s.Who, why+": "+err.Error()); err != nil {
		j.s.Log.Warn("why a job does not run was not written", "job", j.Name, "error", err)
	}
}

// skip counts that this instance leaves the slot to another.
func (j *job) skip() {
	slot := j.When.slot(j.s.clock.Now().Add(j.early))
	if slot.IsZero() || j.s.skips.add(j.Name, slot) {
		j.metrics.skips.WithLabelValues(j.Name, "held").Inc()
	}
}

// once reports whether the job runs when the instances start, and not again.
func (j *job) once() bool {
	_, once := j.When.(atStart)
	return once
}

// due is the slot that may be begun now by what is remembered, the zero time if none may.
func (j *job) due(state cronjob.State, now time.Time) time.Time {
	return j.dueBy(state, now, now.Add(j.early))
}

// dueBy is the slot that is due by the end.
func (j *job) dueBy(state cronjob.State, now, end time.Time) time.Time {
	if j.once() && j.started.Load() {
		return time.Time{}
	}
	late := j.Late
	if late == 0 {
		late = now.Sub(j.When.slot(now)) + 1 // the latest slot, and none before
	}
	slot := j.When.next(state, now, late)
	if slot.IsZero() {
		j.started.Store(true) // by another
	}
	if slot.After(end) {
		return time.Time{}
	}
	return slot
}

// work begins what of the job is to run now, does it, and writes how it ended. ctx ends with the job's lock.
func (j *job) work(ctx context.Context) error {
	a := &attempt{due: j.due}
	err := j.s.runs.Do(context.WithValue(ctx, attemptKey{}, a), j.Name, j.hold, func(ctx context.Context) error {
		j.perform(ctx, a)
		return nil
	})
	switch {
	case j.ran || ctx.Err() != nil:
	case errors.Is(err, lock.ErrHeld) || errors.Is(err, cronjob.ErrNotDue):
		j.skip()
	default:
		j.metrics.skips.WithLabelValues(j.Name, "unavailable").Inc()
		j.say("its ledger can't be asked", err)
	}
	return err
}

func (j *job) perform(ctx context.Context, a *attempt) {
	ctx, cancel := context.WithTimeoutCause(ctx, j.most, lock.ErrMaxHold)
	defer cancel()
	began := time.Now()
	j.ran = true
	if a.run.RequestedBy == "" {
		j.started.Store(true)
	}
	j.s.skips.ran(j.Name, a.run.Slot)
	log := j.s.Log.With("job", j.Name, "slot", a.run.Slot, "attempt", a.run.Attempt)
	result, err := j.call(ctx, a.run)
	took := time.Since(began)
	a.end, a.left = j.endOf(ctx, result, err), errors.Is(err, errLeft)
	status := cronjob.Interrupted
	if a.end != nil {
		status = a.end.Status
	}
	j.metrics.ran(status, took)
	switch status {
	case cronjob.Succeeded:
		log.Debug("job done", "took", took, "result", result)
	case cronjob.Failed:
		log.Error("job failed", "took", took, "error", a.end.Error)
	default:
		log.Warn("job interrupted: another instance takes it over", "took", took, "cause", context.Cause(ctx), "error", err)
	}
}

// endOf is how a run has ended whose work returned that; nil for one that was interrupted.
func (j *job) endOf(ctx context.Context, result string, err error) *cronjob.End {
	switch {
	case err == nil:
		return &cronjob.End{Status: cronjob.Succeeded, Result: result}
	case ctx.Err() == nil || j.cut(context.Cause(ctx)):
		return &cronjob.End{Status: cronjob.Failed, Result: result, Error: err.Error()}
	}
	return nil
}

// cut reports whether a run was ended by that because it took too long.
func (j *job) cut(cause error) bool {
	return errors.Is(cause, lock.ErrMaxHold) || j.Hold.Every == 0 && errors.Is(cause, lock.ErrExpired)
}

// call lets the work do a run. It does not wait for ever for work that should stop.
func (j *job) call(ctx context.Context, run cronjob.Run) (string, error) {
	type returned struct {
		result string
		err    error
	}
	done := make(chan returned, 1)
	go func() {
		r := returned{err: errors.New("the work ended its goroutine")}
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
			done <- r
		}()
		r.result, r.err = j.Work(ctx, run)
	}()
	select {
	case r := <-done:
		return r.result, r.err
	case <-ctx.Done():
	}
	late := time.NewTimer(j.s.Grace)
	defer late.Stop()
	select {
	case r := <-done:
		if r.err != nil && j.cut(context.Cause(ctx)) {
			r.err = fmt.Errorf("%w: %w", context.Cause(ctx), r.err)
		}
		return r.result, r.err
	case <-late.C:
	}
	j.stuck.Add(1)
	go func() {
		<-done
		j.stuck.Add(-1)
	}()
	return "", fmt.Errorf("%w: %w within %s", context.Cause(ctx), errLeft, j.s.Grace)
}
