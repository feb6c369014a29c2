package lock

import (
	"context"
	"errors"
	"time"
)

// renew is called when the lease is due, and arranges for the next time.
func (l *Lease) renew() {
	select {
	case l.renewing <- struct{}{}:
		defer func() { <-l.renewing }()
	default:
		return // it is being released
	}
	pause, goOn := l.renewOnce()
	l.mu.Lock()
	defer l.mu.Unlock()
	if goOn && !l.releasing {
		l.renewTimer.Reset(pause)
	}
}

// nextRenewal is when the lease is due. The dues of a Locker fall on a grid, so that leases that are renewed as often are
// renewed in one go.
func (l *Lease) nextRenewal() time.Time {
	start, grid := l.locker.started, l.hold.Every/8
	return start.Add(time.Since(start).Truncate(grid) + l.hold.Every)
}

func (l *Lease) renewOnce() (pause time.Duration, goOn bool) {
	l.mu.Lock()
	trusted, beat, lost, over := l.trustedUntil, l.lastBeat, l.lostErr, l.releasing
	l.mu.Unlock()
	sent := time.Now()
	switch {
	case lost != nil || over:
		return 0, false
	case l.hold.Beat > 0 && sent.Sub(beat) >= l.hold.Beat:
		l.lose(ErrStalled)
		return 0, false
	case !sent.Before(trusted):
		l.expire() // the process stood still: what the server still says is too late
		return 0, false
	}
	// Bounded by the end of the trust, or a call that hangs would be waited for beyond it.
	ctx, cancel := context.WithDeadline(context.Background(), earlier(sent.Add(l.locker.timeout), trusted))
	defer cancel()
	err := l.grant.Extend(ctx, l.hold.TTL)
	if errors.Is(err, ErrLost) {
		l.expire() // a session that was given up at the end of the trust is lost for the reason that ended it
		l.lose(err)
		return 0, false
	}
	return l.applyRenewal(sent, err), true
}

// applyRenewal takes over what a renewal came to, and returns how long to wait for the next.
func (l *Lease) applyRenewal(sent time.Time, err error) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	slack := time.Until(l.trustedUntil)
	if l.renewErr = err; err != nil {
		l.locker.log.Warn("lock not renewed", "name", l.name, "owner", l.owner, "left", slack, "error", err)
		return min(l.hold.Every/4, max(slack/4, time.Millisecond))
	}
	l.locker.metrics.renewed(slack, l.hold.TTL)
	if slack <= 0 {
		return 0 // too late: runOut has been called, or is about to be
	}
	l.trustedUntil = l.trustEnd(sent)
	l.expiryTimer.Reset(time.Until(l.trustedUntil))
	return l.renewDelay()
}

// renewDelay is the pause until the next renewal, or until the next Beat has to have come.
func (l *Lease) renewDelay() time.Duration {
	due := l.nextRenewal()
	if l.hold.Beat > 0 {
		due = earlier(due, l.lastBeat.Add(l.hold.Beat))
	}
	return max(time.Until(due), time.Millisecond)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
