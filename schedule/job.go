package schedule

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"firsttap/dispatch/cronjob"
	"firsttap/lock"
)

const (
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
	wake       chan struct{} // asks loop for a turn; has room for one request
	stuck      atomic.Int32  // runs that were abandoned and have not returned
	reportedAt time.Time     // when the ledger was last told that the job does not run
	blockedBy  string        // why the job does not run, as the log says; "" while it does
	blockedAt  time.Time     // since when it does not run
	metrics    *jobMetrics
	unanswered atomic.Bool  // the job's lock has given no answer to the last turn, and the job is due
	workAt     atomic.Int64 // from when on there is work by its Demand, in microseconds of the database's clock; 0 if unknown
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
	if spec.Demand != nil && j.When.upcoming(time.Now()).IsZero() {
		return nil, errors.New("a job with a Demand must be a Cron or an Every")
	}
	if e, ok := j.When.(every); ok && spec.Hold.AtLeast > time.Duration(e) {
		return nil, fmt.Errorf("its lock is kept for %s at least, longer than from one time to the next, %s",
			spec.Hold.AtLeast, time.Duration(e))
	}
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

// loop performs the run that is due, whenever the job is woken, until ctx ends.
func (j *job) loop(ctx context.Context) {
	for ctx.Err() == nil {
		select {
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
		j.metrics.skipped("held")
		j.s.Log.Debug("job not run here, because another instance runs it or leads", "job", j.Name, "error", err)
	case errors.Is(err, errStuck):
		j.blocked("stuck", "earlier runs are stuck", err)
	default:
		j.blocked("unavailable", lockAway, err)
	}
}

// blocked counts that the job does not run. It reports why, to the log once and to the ledger now and then.
func (j *job) blocked(reason, why string, err error) {
	j.metrics.skipped(reason)
	now := time.Now()
	if now.Sub(j.reportedAt) < reportInterval {
		return
	}
	if j.blockedBy == "" || now.Sub(j.reportedAt) > 2*reportInterval { // in between it was not due, or ran on another instance
		j.blockedBy, j.blockedAt = "", now
	}
	j.reportedAt = now
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

// due is the slot that may begin now, the zero time if none may.
func (j *job) due(state cronjob.JobState, now time.Time) time.Time {
	if j.Off {
		return time.Time{}
	}
	maxDelay := j.MaxDelay
	if maxDelay == 0 {
		maxDelay = now.Sub(j.When.latest(now)) + 1 // the latest slot, and none before it
	}
	slot := j.When.next(state, now, maxDelay)
	if j.Demand != nil && state.Slot != nil {
		idle := state.Slot.Add(j.MaxIdle).UnixMicro()
		if from := min(j.workAt.Load(), idle); slot.UnixMicro() < from {
			slot = j.When.upcoming(time.UnixMicro(from - 1))
		}
	}
	if slot.After(now) {
		return time.Time{}
	}
	return slot
}
