package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Leader is a candidate in an election: of all candidates for a name, one leads at a time. It is made for schedulers: the
// leader keeps the lead for a while after a run, so that an instance whose clock is late does not repeat the same slot.
//
// It is safe for concurrent use.
type Leader struct {
	locker *Locker
	name   string
	hold   Hold

	transition chan struct{} // holds a value while the lead is acquired or resigned

	mu        sync.Mutex
	lease     *Lease
	runs      int         // in progress
	keptUntil time.Time   // the lead is kept until then although no run is in progress
	idleTimer *time.Timer // resigns at keptUntil
	lastErr   error       // of the latest attempt to acquire the lead
}

// Leader returns a candidate for name. It waits for the lead for up to wait, and keeps the lead for lease after a run;
// usual values are 1 s and 3 s. If the leader dies, the lead is free within lease.
func (l *Locker) Leader(name string, wait, lease time.Duration) *Leader {
	return &Leader{
		locker: l, name: name, transition: make(chan struct{}, 1),
		// No AtMost: the lead lasts as long as the runs take.
		hold: Hold{TTL: lease, RenewEvery: lease / 3, Wait: wait},
	}
}

// Campaign acquires the lead and runs work, with a context that ends when the lead is lost. After work the lead is kept for
// a lease or, if ctx has ended, released at once. If Campaign returns an error of Acquire, work has not run. If it returns
// ErrLost, another leader may have run at the same time.
func (l *Leader) Campaign(ctx context.Context, work func(ctx context.Context) error) (err error) {
	lease, err := l.join(ctx)
	if err != nil {
		return err
	}
	bound, cancel := lease.Bind(ctx)
	defer cancel()
	defer func() {
		if lost := context.Cause(lease.Context()); errors.Is(lost, ErrLost) {
			err = errors.Join(lost, err)
		} else if lost != nil {
			err = errors.Join(fmt.Errorf("%w: resigned", ErrLost), err)
		}
		ended := ctx.Err() != nil
		l.runEnded(!ended)
		if ended {
			err = errors.Join(err, l.resign(ctx, true))
		}
	}()
	return work(bound)
}

// Resign releases the lead, so that another candidate can acquire it at once. It does nothing if this process does not
// lead. It returns ErrLost if the lead was lost, and ErrUnavailable if the server does not answer; then the lead expires.
// Right after a slot, an instance whose clock is late may become leader in time to repeat that slot; only a record of the
// slots that were run prevents that.
func (l *Leader) Resign(ctx context.Context) error { return l.resign(ctx, false) }

// resign releases the lead; with onlyIdle, only if no run is in progress and the time for which it is kept is over.
func (l *Leader) resign(ctx context.Context, onlyIdle bool) error {
	l.transition <- struct{}{} // no run starts from here on
	defer func() { <-l.transition }()
	l.mu.Lock()
	lease := l.lease
	if lease == nil || onlyIdle && (l.runs > 0 || time.Now().Before(l.keptUntil)) {
		l.mu.Unlock()
		return nil
	}
	l.lease = nil
	if l.idleTimer != nil {
		l.idleTimer.Stop()
	}
	l.mu.Unlock()
	return lease.Release(ctx)
}

// join returns the lease of the current lead, or of one that it acquires within hold.Wait, and counts a run. Concurrent
// calls wait no longer than a single one: a late answer would let a job run a slot that another instance has run.
func (l *Leader) join(ctx context.Context) (*Lease, error) {
	if l.hold.TTL < minTTL {
		return nil, fmt.Errorf("%w: a lead of %s is less than %s", ErrInvalid, l.hold.TTL, minTTL)
	}
	waitCtx, stop := context.WithTimeoutCause(ctx, cmp.Or(l.hold.Wait, l.locker.timeout), errWaitTimeout)
	defer stop()
	select {
	case l.transition <- struct{}{}:
		defer func() { <-l.transition }()
	case <-waitCtx.Done():
		return nil, l.waitError(ctx)
	}
	l.mu.Lock()
	lease := l.lease
	if lease != nil && lease.Context().Err() == nil {
		l.runs++
		l.mu.Unlock()
		return lease, nil
	}
	l.lease = nil
	l.mu.Unlock()
	if waitCtx.Err() != nil {
		return nil, l.waitError(ctx)
	}
	if lease != nil {
		_ = lease.Release(ctx) // it was lost, which has been logged
	}
	lease, err := l.locker.acquire(waitCtx, context.WithoutCancel(ctx), l.name, l.hold)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lastErr = err; err != nil {
		return nil, err
	}
	l.lease = lease
	l.runs++
	return lease, nil
}

// waitError returns the error of a call that did not get to ask the server.
func (l *Leader) waitError(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() == nil && l.lastErr != nil {
		return l.lastErr
	}
	return unavailable(ctx, errWaitTimeout)
}

// runEnded counts a run as ended. With keep, the lead is kept for a lease from now, otherwise until keptUntil.
func (l *Leader) runEnded(keep bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs--
	if keep {
		l.keptUntil = time.Now().Add(l.hold.TTL)
	}
	if l.idleTimer != nil {
		l.idleTimer.Stop()
	}
	l.idleTimer = time.AfterFunc(time.Until(l.keptUntil), func() {
		_ = l.resign(context.Background(), true) // the lease logs the error
	})
}

// Bind returns a context that ends with ctx or with the lease, for work that already has a context.
func (l *Lease) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	bound, cancel := context.WithCancelCause(withLease(ctx, l))
	if l.ctx.Err() != nil {
		cancel(context.Cause(l.ctx)) // AfterFunc would cancel a moment later
	}
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	return bound, func() {
		stop()
		cancel(context.Canceled)
	}
}
