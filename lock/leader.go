package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Leader is this process's part in an election: of all that campaign for a name, one leads. It is made for schedulers:
// whoever led a slot keeps the lead for a while after it, so that an instance whose clock is a little late does not run
// the same slot again.
//
// Safe for concurrent use.
type Leader struct {
	locker *Locker
	name   string
	hold   Hold

	transition chan struct{} // held while the lead is taken or given up

	mu        sync.Mutex
	lease     *Lease
	runs      int         // under way
	keptUntil time.Time   // until then the lead was promised to a run that is over
	idleTimer *time.Timer // ends the lead at kept
	lastErr   error       // what the last attempt to take the lead was told
}

// Leader returns a candidate for name who waits for the lead, and keeps it for lease after a run; 1 s and 3 s are usual.
// Should the leader die, the lead is free after lease.
func (l *Locker) Leader(name string, wait, lease time.Duration) *Leader {
	return &Leader{
		locker: l, name: name, transition: make(chan struct{}, 1),
		// Renewed without an AtMost: a leader holds as long as its runs take, and a lease longer.
		hold: Hold{TTL: lease, Every: lease / 3, Wait: wait},
	}
}

// Campaign takes the lead and runs work, with a context that ends when the lead is lost. Then the lead is kept for a
// lease, or, if ctx has ended, handed over at once. Errors of Acquire mean that work has not run; ErrLost, that it may
// not have been the only one.
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
		over := ctx.Err() != nil
		l.runEnded(!over)
		if over {
			err = errors.Join(err, l.resign(ctx, true))
		}
	}()
	return work(bound)
}

// IsLeader returns nil if this process leads, having taken the lead if nobody had it, and keeps the lead for a lease from
// now, whatever takes longer; Campaign keeps it for as long as its work runs. Otherwise the errors of Acquire. It is
// gocron's Elector.
func (l *Leader) IsLeader(ctx context.Context) error {
	if _, err := l.join(ctx); err != nil {
		return err
	}
	l.runEnded(true)
	return nil
}

// Resign hands the lead over: whoever waits for it gets it now. It does nothing when this process does not lead. ErrLost
// if the lead had been lost, ErrUnavailable if nobody can tell; then it ends by itself. Right after a slot an instance
// whose clock is late may get it in time to run that slot again: only a record of the slots that were run prevents that.
func (l *Leader) Resign(ctx context.Context) error { return l.resign(ctx, false) }

// resign gives the lead up; if asked, only when nothing runs under it and nothing was promised it any more.
func (l *Leader) resign(ctx context.Context, onlyIdle bool) error {
	l.transition <- struct{}{} // from here on nobody begins a run
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

// join returns the lease of a lead that is there or was taken within hold.Wait, and counts a run. A crowd waits no longer
// than one: whoever is told late would run a slot that others have run.
func (l *Leader) join(ctx context.Context) (*Lease, error) {
	if l.hold.TTL < minTTL {
		return nil, fmt.Errorf("%w: a lead of %s is less than %s", ErrInvalid, l.hold.TTL, minTTL)
	}
	patience, stop := context.WithTimeoutCause(ctx, cmp.Or(l.hold.Wait, l.locker.timeout), errWaitTimeout)
	defer stop()
	select {
	case l.transition <- struct{}{}:
		defer func() { <-l.transition }()
	case <-patience.Done():
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
	if patience.Err() != nil {
		return nil, l.waitError(ctx)
	}
	if lease != nil {
		_ = lease.Release(ctx) // lost: why has been logged
	}
	lease, err := l.locker.acquire(patience, context.WithoutCancel(ctx), l.name, l.hold)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lastErr = err; err != nil {
		return nil, err
	}
	l.lease = lease
	l.runs++
	return lease, nil
}

// waitError is what whoever's turn did not come is told.
func (l *Leader) waitError(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() == nil && l.lastErr != nil {
		return l.lastErr
	}
	return unavailable(ctx, errWaitTimeout)
}

// runEnded keeps the lead for a lease from now, if that is wanted, and else for as long as it was promised.
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
		_ = l.resign(context.Background(), true) // logged by the lease
	})
}

// Bind returns a context that ends with ctx and with the lease, for work that has a context of its own already.
func (l *Lease) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	bound, cancel := context.WithCancelCause(context.WithValue(ctx, leaseKey{}, l))
	if l.ctx.Err() != nil {
		cancel(context.Cause(l.ctx)) // AfterFunc would do it a moment later
	}
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	return bound, func() {
		stop()
		cancel(context.Canceled)
	}
}
