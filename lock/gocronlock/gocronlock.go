// Package gocronlock has the jobs of several gocron schedulers run once: by a lease for each run ([Locker]), or by one
// leader for all of them.
//
// The leader is a [lock.Leader], which is gocron's Elector as it is:
//
//	leader := locker.Leader("jobs", time.Second, 3*time.Second)
//	gocron.NewScheduler(gocron.WithDistributedElector(leader))
//
// gocron asks an Elector before each run and tells it nothing else. So whoever shuts the scheduler down calls Resign after
// it, or the others wait for the lead to end. And a job that may take longer than the lead is kept for runs its work by
// [lock.Leader.Campaign], which keeps the lead for as long as work takes and ends its context when the lead is lost.
// A scheduler that has an Elector does not ask its Locker.
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

// ErrNoLease says that a task of Bind was called without a lease of its key, and has not run.
var ErrNoLease = errors.New("gocronlock: no lease for this run")

// Locker is gocron's Locker: a job runs on the scheduler that has the lease of the job's name, and on no other. Safe for
// concurrent use, also by several schedulers.
type Locker struct {
	locker *lock.Locker
	hold   lock.Hold
	log    *slog.Logger

	mu    sync.Mutex
	ready map[string]*run // acquired by Lock, and not yet taken over by Bind
}

// NewLocker returns a Locker whose leases are held by hold; no log if log is nil.
//
// A job that takes less time than the schedulers' clocks are apart is run by one after the other, unless hold has an
// AtLeast: more than that, and less than from one run to the next.
//
// gocron ends a lease when the task returns and its listeners have. It does not when one of them hangs: then hold's
// AtMost, Beat or, if it is not renewed, TTL does.
func NewLocker(l *lock.Locker, hold lock.Hold, log *slog.Logger) *Locker {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Locker{locker: l, hold: hold, log: log, ready: map[string]*run{}}
}

// Lock implements gocron.Locker. The errors are those of [lock.Locker.Acquire]; for gocron each of them means that the
// run is skipped, and only an AfterLockError listener is told which it was.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := l.locker.Acquire(ctx, key, l.hold)
	if err != nil {
		if errors.Is(err, lock.ErrInvalid) {
			// Every run will be skipped, and gocron would not say so. A job without a name has its function's, which may
			// well be too long.
			l.log.Error("job can't be locked", "job", key, "error", err)
		}
		return nil, err
	}
	r := &run{locker: l, lease: lease}
	l.mu.Lock()
	l.ready[key] = r
	l.mu.Unlock()
	return r, nil
}

// Bind returns a task for the job named key, whose context ends with gocron's and when the lease is lost: its cause is
// then one of the errors that are lock.ErrLost. The task should stop at once and write nothing more. lock.FromContext
// returns the lease: for its Fence and Beat. (In the last run before gocron's WithStopDateTime, gocron's context has ended
// before the task begins.)
//
// The lease is released when the task returns or panics. Its error goes to gocron, with the reason if the lease was lost
// before; it is ErrNoLease, and the task has not run, if the job has another name, or no Locker, or another one than this.
//
//	s.NewJob(every, gocron.NewTask(locks.Bind("report", report)), gocron.WithName("report"))
func (l *Locker) Bind(key string, task func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) (err error) {
		lease := l.take(key)
		if lease == nil {
			err = fmt.Errorf("%w: is the job's name %q, and this its Locker?", ErrNoLease, key)
			l.log.Error("job has not run", "job", key, "error", err)
			return err
		}
		defer func() {
			// A release that got no answer does not undo the work, which was done while the lease could be trusted.
			if lost := lease.Release(ctx); errors.Is(lost, lock.ErrLost) {
				err = errors.Join(lost, err)
			}
		}()
		bound, cancel := lease.Bind(ctx)
		defer cancel()
		if lease.Context().Err() != nil {
			return nil // lost already, which is what Release is about to say
		}
		return task(bound)
	}
}

// take hands over the lease of the run that is about to begin, nil if there is none. No two runs get the same: when a
// lease is lost before its run has begun, the next run's may be acquired by then.
func (l *Locker) take(key string) *lock.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.ready[key]
	if r == nil {
		return nil
	}
	delete(l.ready, key)
	r.taken = true
	return r.lease
}

// run is the lease of one run.
type run struct {
	locker *Locker
	lease  *lock.Lease
	taken  bool // by Bind, which releases it; guarded by Locker.mu
}

// Unlock implements gocron.Lock. ctx has ended when the job was removed or the scheduler stopped in the middle of the run;
// the lease is released all the same.
func (r *run) Unlock(ctx context.Context) error {
	l, key := r.locker, r.lease.Name()
	l.mu.Lock()
	taken := r.taken
	if l.ready[key] == r {
		delete(l.ready, key)
	}
	l.mu.Unlock()
	if taken {
		return nil
	}
	return r.lease.Release(ctx) // it detaches itself from ctx
}
