// Package gocronlock runs the jobs of several gocron schedulers once: under a lease for each run ([Locker]), or on one
// leader.
//
// A [lock.Leader] is gocron's Elector as it is:
//
//	leader := locker.Leader("jobs", time.Second, 3*time.Second)
//	gocron.NewScheduler(gocron.WithDistributedElector(leader))
//
// gocron asks an Elector before each run and reports nothing back to it. So after the scheduler's Shutdown, call the leader's
// Resign, or the others wait until the lead has expired. A job that may take longer than the lead lasts calls
// [lock.Leader.Campaign], which keeps the lead while the work runs and cancels the work's context when the lead is lost.
// A scheduler that has an Elector does not ask its Locker; with [LeaderLocker], only some of its jobs run on the leader.
package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/go-co-op/gocron/v2"

	"firsttap/lock"
)

var (
	_ gocron.Locker  = (*Locker)(nil)
	_ gocron.Elector = (*lock.Leader)(nil)
)

// ErrNoLease says that a task of Bind did not run, as there was no lease of its key.
var ErrNoLease = errors.New("gocronlock: no lease for this run")

// Locker is gocron's Locker: a job runs on the scheduler that has the lease of the job's name, and on no other. Safe for
// concurrent use, also by several schedulers.
type Locker struct {
	locker *lock.Locker
	hold   lock.Hold
	log    *slog.Logger

	mu    sync.Mutex
	ready map[string]*run // acquired by Lock and not yet claimed by Bind
}

// NewLocker returns a Locker whose leases are held by hold; no log if log is nil.
//
// A job that takes less time than the schedulers' clocks differ runs on one after the other, unless hold has an AtLeast
// that is longer than the difference and shorter than the job's period.
//
// gocron releases a lease when the task and its listeners have returned. If one of them hangs, the lease ends by hold's
// AtMost, Heartbeat or, without renewal, TTL.
func NewLocker(l *lock.Locker, hold lock.Hold, log *slog.Logger) *Locker {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Locker{locker: l, hold: hold, log: log, ready: map[string]*run{}}
}

// Lock implements gocron.Locker. The errors are those of [lock.Locker.Acquire]. On any of them gocron skips the run, and
// passes the error to an AfterLockError listener only.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := l.locker.Acquire(ctx, key, l.hold)
	if err != nil {
		if errors.Is(err, lock.ErrInvalid) {
			// gocron would not log that it skips every run. A job without a name has its function's, which may be too long.
			l.log.Error("job can't be locked; none of its runs will begin", "job", key, "error", err)
		}
		return nil, err
	}
	r := &run{locker: l, lease: lease}
	l.mu.Lock()
	l.ready[key] = r
	l.mu.Unlock()
	return r, nil
}

// Bind returns a task for the job named key. The task's context ends with gocron's and when the lease is lost; its cause is
// then a lock.ErrLost, and the task should stop at once and write nothing more. lock.FromContext returns the lease, for its
// Fence and Heartbeat. (In the last run before gocron's WithStopDateTime, gocron's context has ended before the task begins.)
//
// The lease is released when the task returns or panics. gocron gets the task's error, joined with the reason if the lease
// was lost before. If the job has another name or does not use this Locker, the error is ErrNoLease and the task did not run.
//
//	s.NewJob(every, gocron.NewTask(locks.Bind("report", report)), gocron.WithName("report"))
func (l *Locker) Bind(key string, task func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) (err error) {
		lease := l.claim(key)
		if lease == nil {
			err = fmt.Errorf("%w: the job must have the name %q and use this Locker", ErrNoLease, key)
			l.log.Error("job not run, because its task has no lease; the next run will be tried", "job", key, "error", err)
			return err
		}
		defer func() {
			// ErrUnavailable is no failure of the work, which was done while the lease could be trusted.
			if lost := lease.Release(ctx); errors.Is(lost, lock.ErrLost) {
				err = errors.Join(lost, err)
			}
		}()
		bound, cancel := lease.Bind(ctx)
		defer cancel()
		if lease.Context().Err() != nil {
			return nil // the lease is lost already: Release returns why
		}
		return task(bound)
	}
}

// claim returns the lease of the run that is about to begin, nil if there is none. No two runs get the same: if a lease was
// lost before its run began, the next run's may have been acquired by then.
func (l *Locker) claim(key string) *lock.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.ready[key]
	if r == nil {
		return nil
	}
	delete(l.ready, key)
	r.claimed = true
	return r.lease
}

// run is the lease of one run.
type run struct {
	locker  *Locker
	lease   *lock.Lease
	claimed bool // by Bind, which releases it; guarded by Locker.mu
}

// Unlock implements gocron.Lock. It releases the lease also if ctx has ended, because the job was removed or the scheduler
// was shut down during the run.
func (r *run) Unlock(ctx context.Context) error {
	l, key := r.locker, r.lease.Name()
	l.mu.Lock()
	claimed := r.claimed
	if l.ready[key] == r {
		delete(l.ready, key)
	}
	l.mu.Unlock()
	if claimed {
		return nil
	}
	return r.lease.Release(ctx)
}

// LeaderLocker is a gocron Locker for jobs that run on the leader, while other jobs of the same scheduler have a lease each. An
// Elector is for all jobs of a scheduler. Safe for concurrent use.
type LeaderLocker struct{ leader *lock.Leader }

// NewLeaderLocker returns the Locker of jobs that run where leader leads.
func NewLeaderLocker(leader *lock.Leader) *LeaderLocker { return &LeaderLocker{leader} }

// Lock implements gocron.Locker. The errors are those of [lock.Leader.IsLeader].
func (l *LeaderLocker) Lock(ctx context.Context, _ string) (gocron.Lock, error) {
	if err := l.leader.IsLeader(ctx); err != nil {
		return nil, err
	}
	return lead{}, nil
}

// lead needs no Unlock: the leader keeps it.
type lead struct{}

func (lead) Unlock(context.Context) error { return nil }

// Bind returns a task that keeps the lead while it runs, and whose context ends with gocron's and with the lead; see
// [lock.Leader.Campaign].
func (l *LeaderLocker) Bind(task func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error { return l.leader.Campaign(ctx, task) }
}
