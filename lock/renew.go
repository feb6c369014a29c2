package lock

import (
	"context"
	"errors"
	"time"
)

// renew is called by renewTimer. It renews the lease and sets the timer again.
func (l *Lease) renew() {
	select {
	case l.extending <- struct{}{}:
		defer func() { <-l.extending }()
	default:
		return // the release has begun
	}
	pause, goOn := l.renewOnce()
	l.mu.Lock()
	defer l.mu.Unlock()
	if goOn && !l.releasing {
		l.renewTimer.Reset(pause)
	}
}

// nextRenewal returns when the lease is renewed next. A Locker aligns the renewals of leases with the same interval, so
// that they share requests.
func (l *Lease) nextRenewal() time.Time {
	start, grid := l.locker.started, l.hold.RenewEvery/8
	return start.Add(time.Since(start).Truncate(grid) + l.hold.RenewEvery)
}

func (l *Lease) renewOnce() (pause time.Duration, goOn bool) {
	l.mu.Lock()
	trusted, beat, lost, releasing := l.trustedUntil, l.lastBeat, l.lostErr, l.releasing
	l.mu.Unlock()
	sent := time.Now()
	switch {
	case lost != nil || releasing:
		return 0, false
	case l.hold.Heartbeat > 0 && sent.Sub(beat) >= l.hold.Heartbeat:
		l.lose(ErrStalled)
		return 0, false
	case !sent.Before(trusted):
		l.expire() // the process was suspended: an answer of the server would be too late
		return 0, false
	}
	// The deadline is trustedUntil at the latest, or a request that hangs would delay the release.
	ctx, cancel := context.WithDeadline(context.Background(), earlier(sent.Add(l.locker.timeout), trusted))
	defer cancel()
	err := l.grant.Extend(ctx, l.hold.TTL)
	if errors.Is(err, ErrLost) {
		l.expire() // a session that was closed at trustedUntil is lost for the reason that expire gives
		l.lose(err)
		return 0, false
	}
	return l.applyRenewal(sent, err), true
}

// applyRenewal applies the result of a renewal, and returns the pause until the next.
func (l *Lease) applyRenewal(sent time.Time, err error) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	slack := time.Until(l.trustedUntil)
	before := l.renewErr
	if l.renewErr = err; err != nil {
		if before == nil {
			l.locker.log.Warn(
				"lock not renewed; the renewal is retried until the lease ends", "name", l.name, "owner", l.owner, "left", slack,
				"error", err,
			)
		}
		return min(l.hold.RenewEvery/4, max(slack/4, time.Millisecond))
	}
	l.locker.metrics.renewed(slack, l.hold.TTL)
	if slack <= 0 {
		return 0 // too late: expire has been called, or is about to be
	}
	l.trustedUntil = l.trustEnd(sent)
	l.locker.log.Debug("lock extended", "name", l.name, "owner", l.owner, "locked_until", sent.Add(l.hold.TTL))
	l.expiryTimer.Reset(time.Until(l.trustedUntil))
	return l.renewDelay()
}

// renewDelay returns the pause until the next renewal, or until the deadline of the next Heartbeat if that is earlier.
func (l *Lease) renewDelay() time.Duration {
	due := l.nextRenewal()
	if l.hold.Heartbeat > 0 {
		due = earlier(due, l.lastBeat.Add(l.hold.Heartbeat))
	}
	return max(time.Until(due), time.Millisecond)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
