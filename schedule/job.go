package schedule

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"firsttap/cronjob"
	"firsttap/lock"
)

const (
	// maxEarly is how long before its slot a run may begin: the instance and the database do not read their clocks at the
	// same moment.
	maxEarly = 100 * time.Millisecond
	// minTerm and maxTerm bound a run's term. A run that is not extended for its term may be taken over.
	minTerm = time.Second
	maxTerm = 10 * time.Second
	// maxStuck is how many runs of a job may ignore the end of their context before the instance stops running the job.
	maxStuck = 3
	// reportInterval limits how often the ledger is told that a job does not run.
	reportInterval = 10 * time.Second
	// lockAway is why a job does not run while its lock gives no answer.
	lockAway = "its lock is unavailable"
)

// job is a Job in a Scheduler. Its loop alone begins runs, one after the other.
type job struct {
	Job
	s          *Scheduler
	maxRun     time.Duration // how long a run may take
	runHold    lock.Hold     // how a run is held in the ledger
	early      time.Duration // how long before its slot a run may begin
	wake       chan struct{} // asks loop for a turn; has room for one request
	stuck      atomic.Int32  // runs that were abandoned and have not returned
	reportedAt time.Time     // when the ledger was last told that the job does not run
	blockedBy  string        // why the job does not run, as the log says; "" while it does
	blockedAt  time.Time     // since when it does not run
	metrics    *jobMetrics
	unanswered atomic.Bool // the job's lock has given no answer to the last turn, and the job is due
	lastPassed time.Time   // the last slot that this instance has run or left to another
	// workAt is from when on there is work by its Demand, and lastSlot the last slot that ran on any instance, in microseconds of the
	// database's clock; 0 if unknown.
	workAt, lastSlot atomic.Int64
}

func newJob(s *Scheduler, spec Job) (*job, error) {
	j := &job{Job: spec, s: s, wake: make(chan struct{}, 1)}
	switch {
	case slices.Contains(s.names, spec.Name):
		return nil, errors.New("another job has this name")
	case spec.Name == leaderLock || slices.Contains(s.OtherLocks, spec.Name):
		return nil, errors.New("another lock has this name")
	case spec.When == nil || spec.Work == nil:
		return nil, errors.New("When or Work is missing")
	case spec.Hold.Heartbeat != 0 || spec.Hold.Wait != 0:
		return nil, errors.New("Hold.Heartbeat and Hold.Wait must be 0")
	case (spec.Demand == nil) != (spec.MaxIdle == 0) || spec.MaxIdle < 0:
		return nil, errors.New("a Demand needs a positive MaxIdle, and a MaxIdle needs a Demand")
	case spec.MaxDelay < 0:
		return nil, fmt.Errorf("the delay of a slot is negative: %s", spec.MaxDelay)
	}
	if err := checkHold(spec.Name, spec.Hold); err != nil {
		return nil, err
	}
	var err error
	if j.When, err = spec.When.in(s.Zone); err != nil {
		return nil, err
	}
	if spec.Demand != nil && j.When.upcoming(s.clock.now()).IsZero() {
		return nil, errors.New("a job with a Demand must be a Cron")
	}
	j.early = min(maxEarly, j.When.period(s.clock.now())/10)
	j.maxRun = spec.Hold.AtMost
	if spec.Hold.RenewEvery == 0 {
		j.maxRun = spec.Hold.TTL
	}
	// The run is extended until its work has been canceled and has had GracePeriod to return, so that it ends as FAILED and is not
	// taken over.
	j.runHold = lock.Renewed(max(min(spec.Hold.TTL, maxTerm), minTerm), j.maxRun+2*s.GracePeriod)
	j.metrics = newJobMetrics(s, j)
	return j, nil
}

// checkHold reports whether the name can be held so.
func checkHold(name string, hold lock.Hold) error {
	l := lock.New(lock.NewMemory(), lock.Options{})
	defer l.Close()
	lease, err := l.Acquire(context.Background(), name, hold)
	if err != nil {
		return err
	}
	return lease.Release(context.Background())
}

// loop calls turn at each scheduled time of the job and whenever it is woken, until ctx ends.
func (j *job) loop(ctx context.Context) {
	var last time.Time
	for ctx.Err() == nil {
		now := j.s.clock.now()
		at := j.When.upcoming(now)
		if at.Equal(last) { // the timer was early
			at = j.When.upcoming(at)
		}
		var timer <-chan time.Time // only the ledger knows when an After is due, and catchUp reads it
		if !at.IsZero() {
			timer = time.After(at.Sub(now))
		}
		select {
		case <-timer:
			last = at
			if j.passesOver(at) {
				j.metrics.passed(at)
				continue
			}
		case <-j.wake:
		case <-ctx.Done():
			return
		}
		ran := j.turn(ctx)
		select {
		case <-j.wake: // the ledger was read before this turn ended
		default:
		}
		if ran {
			j.s.checkLedger() // for the next slot, if this one was late
		}
	}
}

// askDemand asks from when on there is work, unless a poll has failed. While that can't be told, no slot is passed over.
func (j *job) askDemand(ctx context.Context, failed error) {
	if j.Demand == nil {
		return
	}
	var at time.Time
	if failed == nil {
		at, failed = j.Demand(ctx)
	}
	switch {
	case failed != nil:
		j.workAt.Store(0)
	case at.IsZero():
		j.workAt.Store(math.MaxInt64)
	default:
		j.workAt.Store(at.UnixMicro())
	}
}

// passesOver reports whether no instance is to run the job at the slot: it has no work then, and has run recently.
func (j *job) passesOver(slot time.Time) bool {
	at, last := slot.UnixMicro(), j.lastSlot.Load()
	return j.Demand != nil && at < j.workAt.Load() && last != 0 && last < at && at < last+j.MaxIdle.Microseconds()
}

// turn performs the run that is due, if this instance gets the job's lock. It reports whether there was one.
func (j *job) turn(ctx context.Context) (ran bool) {
	locked := false
	err := j.underLock(ctx, func(ctx context.Context) error {
		locked = true
		if ran = j.runDue(ctx); !ran && !j.OnLeader {
			lock.FromContext(ctx).Forgo()
		}
		return nil
	})
	j.unanswered.Store(!locked && ctx.Err() == nil && errors.Is(err, lock.ErrUnavailable))
	if !locked {
		j.refused(ctx, err)
	}
	return ran
}

var errStuck = fmt.Errorf("%d runs have not returned on this instance", maxStuck)

func (j *job) underLock(ctx context.Context, work func(ctx context.Context) error) error {
	if j.stuck.Load() >= maxStuck {
		return errStuck
	}
	if !j.OnLeader {
		return j.s.locker.Do(ctx, j.Name, j.Hold, work)
	}
	// A follower does not campaign here: campaign waits for the lead, for all jobs.
	if why := j.s.follows.Load(); why != nil {
		return *why
	}
	return j.s.leader.Campaign(ctx, work)
}

// refused counts that the job's lock was not acquired, and reports it unless another instance holds the lock.
func (j *job) refused(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, lock.ErrHeld):
		if j.blockedBy == lockAway {
			j.unblocked()
		}
		j.skip()
	case errors.Is(err, lock.ErrUnavailable):
		j.blocked("unavailable", lockAway, err)
	case errors.Is(err, errUnfit):
		j.blocked("unavailable", "its instance can't lead", err)
	case errors.Is(err, errStuck):
		j.blocked("stuck", "earlier runs are stuck", err)
	default:
		j.blocked("invalid", "its lock is invalid", err)
	}
}

// blocked counts that the job does not run. It reports why, to the log once and to the ledger now and then.
func (j *job) blocked(reason, why string, err error) {
	j.metrics.skips.WithLabelValues(j.Name, reason).Inc()
	now := time.Now()
	if now.Sub(j.reportedAt) < reportInterval {
		return
	}
	j.reportedAt = now
	if j.blockedBy == "" {
		j.blockedAt = now
	}
	if j.blockedBy != why {
		j.blockedBy = why
		j.s.Log.Error("job not run, because "+why+"; it is tried again until it runs", "job", j.Name, "error", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := j.s.Ledger.BlockJob(ctx, j.Name, j.s.Instance, why+": "+err.Error()); err != nil {
		j.s.Log.Debug("reason for a blocked job not written to the ledger; the next report will be written", "job", j.Name, "error", err)
	}
}

// unblocked reports that the job runs again, here or on another instance.
func (j *job) unblocked() {
	if j.blockedBy != "" {
		j.blockedBy = ""
		j.s.Log.Warn("job runs again", "job", j.Name, "outage", time.Since(j.blockedAt))
	}
}

// latest is the latest slot that may have begun, the zero time if only the ledger knows the slots.
func (j *job) latest() time.Time { return j.When.latest(j.s.clock.now().Add(j.early)) }

// skip counts that another instance has the slot, once for each, and none that this instance has run.
func (j *job) skip() {
	if slot := j.latest(); slot.IsZero() || j.passed(slot) {
		j.metrics.skips.WithLabelValues(j.Name, "held").Inc()
	}
}

// passed records that this instance has run a slot or left it to another. It reports whether the slot is later than those before.
func (j *job) passed(slot time.Time) bool {
	later := slot.After(j.lastPassed)
	if later {
		j.lastPassed = slot
	}
	return later
}

// due is the slot that may begin now, the zero time if none may.
func (j *job) due(state cronjob.JobState, now time.Time) time.Time {
	return j.dueBy(state, now, now.Add(j.early))
}

// dueBy is the slot that is due by end.
func (j *job) dueBy(state cronjob.JobState, now, end time.Time) time.Time {
	if state.Slot != nil {
		j.lastSlot.Store(state.Slot.UnixMicro())
	}
	maxDelay := j.MaxDelay
	if maxDelay == 0 {
		maxDelay = now.Sub(j.When.latest(now)) + 1 // the latest slot, and none before it
	}
	slot := j.When.next(state, now, maxDelay)
	if j.passesOver(slot) { // the first one that is not
		slot = j.When.upcoming(time.UnixMicro(min(j.workAt.Load(), j.lastSlot.Load()+j.MaxIdle.Microseconds()) - 1))
	}
	if slot.After(end) {
		return time.Time{}
	}
	return slot
}
