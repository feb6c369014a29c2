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

	extending chan struct{} // holds a value during a renewal or an Extend, and for good once the release has begun

	mu           sync.Mutex
	trustedUntil time.Time   // the context ends then, before another owner can have the name
	expiryTimer  *time.Timer // calls expire at trustedUntil
	renewTimer   *time.Timer // starts a renewal; nil without renewal
	releasing    bool        // the release has begun
	lastBeat     time.Time
	renewErr     error // of the latest renewal
	lostErr      error // why the lease was lost; nil if it was not

	releaseOnce sync.Once
	releaseErr  error
}

// newLease returns the lease of a grant that was requested at sent. The TTL counts from sent; the server's began later.
func newLease(parent context.Context, l *Locker, grant Grant, name, owner string, hold Hold, sent time.Time) *Lease {
	lease := &Lease{
		locker: l, grant: grant, name: name, owner: owner, hold: hold, acquired: sent, lastBeat: sent,
		extending: make(chan struct{}, 1),
	}
	lease.ctx, lease.cancel = context.WithCancelCause(parent)
	l.metrics.holding.Inc()
	lease.mu.Lock()
	defer lease.mu.Unlock()
	lease.trustedUntil = lease.trustEnd(sent)
	lease.expiryTimer = time.AfterFunc(time.Until(lease.trustedUntil), lease.expire)
	if hold.RenewEvery > 0 {
		lease.renewTimer = time.AfterFunc(lease.renewDelay(), lease.renew)
	}
	return lease
}

// Context returns a context that ends when the lease is released or lost. If the lease was lost, its cause is an ErrLost,
// and it ends before another process can acquire the name.
func (l *Lease) Context() context.Context { return l.ctx }

// Name returns the name that is held.
func (l *Lease) Name() string { return l.name }

// Owner returns the identity of this acquisition.
func (l *Lease) Owner() string { return l.owner }

// Fence returns a number that is larger than that of every earlier lease of the name; see [Fences].
func (l *Lease) Fence() int64 { return l.grant.Fence() }

// TrustedUntil returns when the lease's context ends unless the lease is renewed: before another process can acquire the
// name. A renewal moves it on.
func (l *Lease) TrustedUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trustedUntil
}

// Heartbeat reports that the work makes progress; see [Hold.Heartbeat].
func (l *Lease) Heartbeat() {
	l.mu.Lock()
	l.lastBeat = time.Now()
	l.mu.Unlock()
}

// Extend lets the lease last until atMost from now, also if it ends earlier then than without Extend, and lets Release keep the name held
// until atLeast from now. A renewed lease goes on being renewed until then. ErrInvalid if atMost is too short, or shorter than atLeast.
// ErrLost if the lease has ended. ErrUnavailable if the server does not answer: the lease ends at the earlier of the two times, and
// Extend may be called again.
func (l *Lease) Extend(ctx context.Context, atMost, atLeast time.Duration) error {
	if atMost < minTTL || atLeast < 0 || atLeast > atMost {
		return fmt.Errorf("%w: an extension by %s at most and %s at least", ErrInvalid, atMost, atLeast)
	}
	select {
	case l.extending <- struct{}{}:
		defer func() { <-l.extending }()
	case <-l.ctx.Done():
		return l.whyEnded()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
	if l.ctx.Err() != nil {
		return l.whyEnded()
	}
	sent := time.Now()
	l.mu.Lock()
	hold, trusted := l.hold, l.trustedUntil
	l.mu.Unlock()
	hold.AtLeast = sent.Sub(l.acquired) + atLeast
	if hold.RenewEvery == 0 {
		hold.TTL, hold.AtMost = atMost, 0
	} else {
		hold.AtMost = sent.Sub(l.acquired) + atMost
	}
	bounded, cancel := context.WithDeadline(ctx, earlier(sent.Add(l.locker.timeout), trusted))
	defer cancel()
	err := l.grant.Extend(bounded, hold.TTL)
	if errors.Is(err, ErrLost) {
		l.lose(err)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.lostErr != nil:
		return l.lostErr
	case err == nil:
		l.hold = hold
		l.trustedUntil = l.trustEnd(sent)
		l.locker.log.Debug("lock extended", "name", l.name, "owner", l.owner, "locked_until", sent.Add(hold.TTL))
	case errors.Is(err, ErrUnavailable) && hold.RenewEvery == 0: // the server may have taken a shorter TTL
		l.trustedUntil = earlier(l.trustedUntil, sent.Add(hold.TTL-safetyMargin(hold.TTL)))
	}
	l.expiryTimer.Reset(time.Until(l.trustedUntil))
	return err
}

// whyEnded is the error of a lease whose context has ended.
func (l *Lease) whyEnded() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lostErr != nil {
		return l.lostErr
	}
	return fmt.Errorf("%w: released", ErrLost)
}

// Forgo makes Release free the name at once, whatever hold.AtLeast says: the work was not begun, and may be tried again.
func (l *Lease) Forgo() {
	l.mu.Lock()
	l.hold.AtLeast = 0
	l.mu.Unlock()
}

// Release frees the name, or keeps it held for the rest of hold.AtLeast. It returns ErrLost with the reason if the lease
// was lost; then another process may have held the name during the work. It returns ErrUnavailable if the server does not
// answer; then the name is released in the background or expires. It returns both if a request got no answer and the next one found another
// owner. It works after ctx has ended. Later calls return the
// same error.
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
	l.extending <- struct{}{} // waits for a renewal: if it ran after the release, it would find another owner's name
	l.mu.Lock()
	now := time.Now()
	atLeast := l.hold.AtLeast
	trusted, lost, end := now.Before(l.trustedUntil), l.lostErr, l.trustedUntil.Add(safetyMargin(l.hold.TTL))
	l.mu.Unlock()
	l.locker.metrics.release(now.Sub(l.acquired))
	l.cancel(context.Canceled) // before another process can acquire the name
	keep := max(l.acquired.Add(atLeast).Sub(now), 0)
	err := l.sendRelease(ctx, keep)
	switch {
	case lost != nil:
		return lost
	case errors.Is(err, ErrUnavailable) && errors.Is(err, ErrLost):
		l.locker.log.Warn(
			"lock release unanswered, and the owner does not hold the name any more; another owner may have held it during the work",
			"name",
			l.name, "owner", l.owner, "error", err,
		)
	case errors.Is(err, ErrUnavailable):
		l.locker.log.Warn("lock release unanswered; the name may stay held until its TTL ends",
			"name", l.name, "owner", l.owner, "error", err)
		if keep == 0 {
			l.locker.orphans.release(l.grant, end, true)
		}
	case errors.Is(err, ErrLost):
		l.locker.metrics.lose(err)
		l.locker.log.Error("lock was lost before its release; another owner may have held it during the work",
			"name", l.name, "owner", l.owner, "error", err)
	case !trusted:
		return ErrExpired
	case err != nil:
	case keep > 0:
		l.locker.log.Debug("lock will be released when its least hold is over", "name", l.name, "owner", l.owner, "at", now.Add(keep))
	default:
		l.locker.log.Debug("lock released", "name", l.name, "owner", l.owner)
	}
	return err
}

// sendRelease sends the release, and repeats it once if there was no answer. If the second request finds the name free, the first one
// released it. If it finds another owner, that one may have acquired the name after the release, or during the work: the error is ErrLost
// and ErrUnavailable.
func (l *Lease) sendRelease(ctx context.Context, keep time.Duration) error {
	ctx = context.WithoutCancel(ctx) // a release that is not sent would keep the name held for the rest of the TTL
	once := func() error {
		bounded, cancel := context.WithTimeout(ctx, l.locker.timeout)
		defer cancel()
		return l.grant.Release(bounded, keep)
	}
	err := once()
	if !errors.Is(err, ErrUnavailable) {
		return err
	}
	second := once()
	switch {
	case errors.Is(second, ErrExpired):
		return nil
	case errors.Is(second, ErrLost):
		return fmt.Errorf("%w: %w", second, err)
	}
	return second
}

// lose ends the lease for a reason other than a release.
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
	l.locker.log.Error("lock lost; the work under it is canceled", "name", l.name, "owner", l.owner, "error", reason)
}

// trustEnd returns when a lease that was acquired or renewed by a request at sent has to end.
func (l *Lease) trustEnd(sent time.Time) time.Time {
	end := sent.Add(l.hold.TTL - safetyMargin(l.hold.TTL))
	if limit := l.acquired.Add(l.hold.AtMost); l.hold.AtMost > 0 && limit.Before(end) {
		return limit
	}
	return end
}

// expire ends the lease at trustedUntil. It does nothing if the lease was renewed in the meantime.
func (l *Lease) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch {
	case l.releasing || now.Before(l.trustedUntil):
	case l.hold.AtMost > 0 && !now.Before(l.acquired.Add(l.hold.AtMost)):
		l.loseLocked(ErrMaxHold)
	case l.hold.RenewEvery == 0:
		l.loseLocked(ErrExpired)
	case l.renewErr != nil:
		l.loseLocked(fmt.Errorf("%w: %s", ErrUnreachable, l.renewErr.Error())) // the text only: the error must not be ErrUnavailable too
	default:
		l.loseLocked(ErrUnreachable)
	}
}
