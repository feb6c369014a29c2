package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lease is a name that this process holds. It is safe for concurrent use.
type Lease struct {
	locker   *Locker
	grant    Grant
	name     string
	owner    string
	hold     Hold
	acquired time.Time

	ctx    context.Context
	cancel context.CancelCauseFunc

	renewing chan struct{} // has room for a renewal that is under way, or, for good, for the release; nil without renewal

	mu           sync.Mutex
	trustedUntil time.Time   // until then nobody else can have the name, and the context lasts
	expiryTimer  *time.Timer // ends the lease at trusted
	renewTimer   *time.Timer // begins a renewal; nil without renewal
	releasing    bool        // the release has begun
	lastBeat     time.Time
	renewErr     error // of the latest renewal; nil when it went well
	lostErr      error // why the lease ended without a release

	releaseOnce sync.Once
	releaseErr  error
}

// newLease returns the lease of a grant that was asked for at sent. From then on counts the TTL: the server's began later.
func newLease(parent context.Context, l *Locker, grant Grant, name, owner string, hold Hold, sent time.Time) *Lease {
	lease := &Lease{
		locker: l, grant: grant, name: name, owner: owner, hold: hold, acquired: sent, lastBeat: sent,
	}
	lease.ctx, lease.cancel = context.WithCancelCause(parent)
	l.metrics.holding.Inc()
	lease.mu.Lock()
	defer lease.mu.Unlock()
	lease.trustedUntil = lease.trustEnd(sent)
	lease.expiryTimer = time.AfterFunc(time.Until(lease.trustedUntil), lease.expire)
	if hold.Every > 0 {
		lease.renewing = make(chan struct{}, 1)
		lease.renewTimer = time.AfterFunc(lease.renewDelay(), lease.renew)
	}
	return lease
}

// Context ends, with an ErrLost for a cause, before somebody else can get the name, and when the lease is released.
func (l *Lease) Context() context.Context { return l.ctx }

// Name is what is held.
func (l *Lease) Name() string { return l.name }

// Owner is the identity of this acquisition, as an operator sees it.
func (l *Lease) Owner() string { return l.owner }

// Fence is larger than that of every earlier lease of the name; see [Fences].
func (l *Lease) Fence() int64 { return l.grant.Fence() }

// Beat says that the work makes progress; see [Hold.Beat].
func (l *Lease) Beat() {
	l.mu.Lock()
	l.lastBeat = time.Now()
	l.mu.Unlock()
}

// Release gives the name up, or leaves it taken for the rest of hold.AtLeast. ErrLost if the lease ended before, with
// the reason; then the work may not have been alone. ErrUnavailable if nobody can tell: the name is then released in the
// background, or ends by its TTL. It works after ctx has ended. Releasing again returns the same.
func (l *Lease) Release(ctx context.Context) error {
	l.releaseOnce.Do(func() { l.releaseErr = l.release(ctx) })
	return l.releaseErr
}

func (l *Lease) release(ctx context.Context) error {
	l.mu.Lock()
	l.releasing = true
	l.expiryTimer.Stop()
	if l.renewTimer != nil {
		l.renewTimer.Stop()
	}
	l.mu.Unlock()
	if l.renewing != nil {
		l.renewing <- struct{}{} // one that is under way is waited for: after the release it would find another's name
	}
	l.mu.Lock()
	now := time.Now()
	trusted, lost, end := now.Before(l.trustedUntil), l.lostErr, l.trustedUntil.Add(safetyMargin(l.hold.TTL))
	l.mu.Unlock()
	l.locker.metrics.release(now.Sub(l.acquired))
	l.cancel(context.Canceled) // before anybody else can get the name
	keep := max(l.acquired.Add(l.hold.AtLeast).Sub(now), 0)
	err := l.sendRelease(ctx, keep)
	switch {
	case lost != nil:
		return lost
	case errors.Is(err, ErrUnavailable):
		l.locker.log.Warn("lock not released yet", "name", l.name, "owner", l.owner, "error", err)
		if keep == 0 {
			l.locker.orphans.release(l.grant, end, true)
		}
	case errors.Is(err, ErrLost):
		l.locker.metrics.lose(err)
		l.locker.log.Error("lock was lost before its release", "name", l.name, "owner", l.owner, "error", err)
	case !trusted:
		return ErrExpired
	}
	return err
}

// sendRelease asks twice: a reply that was lost does not keep the name taken. Nothing to release is then what the first
// request left.
func (l *Lease) sendRelease(ctx context.Context, keep time.Duration) error {
	ctx = context.WithoutCancel(ctx) // a release that is given up keeps the name taken for the rest of its time
	once := func() error {
		bounded, cancel := context.WithTimeout(ctx, l.locker.timeout)
		defer cancel()
		return l.grant.Release(bounded, keep)
	}
	err := once()
	if !errors.Is(err, ErrUnavailable) {
		return err
	}
	if err = once(); errors.Is(err, ErrLost) {
		return nil
	}
	return err
}

// lose ends the lease without a release.
func (l *Lease) lose(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loseLocked(reason)
}

func (l *Lease) loseLocked(reason error) {
	if l.lostErr != nil {
		return
	}
	l.lostErr = reason
	l.expiryTimer.Stop()
	l.cancel(reason)
	l.locker.metrics.lose(reason)
	l.locker.log.Error("lock lost", "name", l.name, "owner", l.owner, "error", reason)
}

// trustEnd is until when a lease that was asked for at sent can be trusted.
func (l *Lease) trustEnd(sent time.Time) time.Time {
	end := sent.Add(l.hold.TTL - safetyMargin(l.hold.TTL))
	if limit := l.acquired.Add(l.hold.AtMost); l.hold.AtMost > 0 && limit.Before(end) {
		return limit
	}
	return end
}

// expire is called when the lease can no longer be trusted, unless it has been renewed in that moment.
func (l *Lease) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch {
	case l.releasing || now.Before(l.trustedUntil):
	case l.hold.AtMost > 0 && !now.Before(l.acquired.Add(l.hold.AtMost)):
		l.loseLocked(ErrMaxHold)
	case l.hold.Every == 0:
		l.loseLocked(ErrExpired)
	case l.renewErr != nil:
		l.loseLocked(fmt.Errorf("%w: %s", ErrUnreachable, l.renewErr.Error())) // lost, and not unavailable as well
	default:
		l.loseLocked(ErrUnreachable)
	}
}
