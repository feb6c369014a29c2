package notify

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
)

// send starts an attempt for each push that is ready, as the channel allows: the one whose turn it is then.
func (r *Relay) send(ctx, lasting context.Context) {
	var looked time.Time
	for ctx.Err() == nil {
		if r.ready.empty() {
			r.wait(ctx, r.ready.arrived)
			continue
		}
		now := time.Now()
		ok, wait := r.throttle.start(now)
		switch {
		case ok:
			p := r.ready.next()
			if p == nil { // what waited has been given back meanwhile, with its place
				r.throttle.cancelStart()
				continue
			}
			r.startAttempt(lasting, p, now)
		case wait > 0:
			r.releaseAll(anyPush, wait)
		default:
			if now.Sub(looked) > maxReadAge/4 {
				looked = now
				r.releaseAll(stale(now, r.Attempt), 0)
			}
			r.wait(ctx, r.throttle.freed)
		}
	}
}

// startAttempt has the push attempted that the channel was started for, unless it is to go apart from the others, its platform
// can't be reached, or it is overdue.
func (r *Relay) startAttempt(lasting context.Context, p *outbox.Push, now time.Time) {
	apart, closed := r.deadTokens.suspected(*p, now), r.platformClosedFor(p.Device.Platform, now)
	if !apart && closed <= 0 && !stale(now, r.Attempt)(p) {
		r.attempts.Go(func() { r.attempt(lasting, *p) })
		return
	}
	r.throttle.cancelStart()
	if apart {
		r.queueSuspect(*p, now)
		return
	}
	r.release(p, max(0, closed))
}

// maxReadAge is for how long a dispatch is taken to be as it was read: an offer that is taken meanwhile is not to be sent.
const maxReadAge = time.Second

// release returns a push that was not attempted: it is due again after wait, or when it is its turn.
func (r *Relay) release(p *outbox.Push, wait time.Duration) {
	r.throttle.release(1)
	r.results.addUncounted(unsent(*p, wait.Round(releaseRounding)))
}

// unsent is what becomes of a push that was not attempted.
func unsent(p outbox.Push, wait time.Duration) outbox.SendResult {
	return outbox.SendResult{ID: p.ID, Status: outbox.Pending, After: wait, Attempts: p.Attempts}
}

// releaseAll returns those that wait and for which over says so.
func (r *Relay) releaseAll(over func(*outbox.Push) bool, wait time.Duration) {
	for _, p := range r.ready.remove(over) {
		r.release(p, wait)
	}
}

// releaseRounding lets pushes that are given back at almost the same time be settled by one statement.
const releaseRounding = 100 * time.Millisecond

func (r *Relay) attempt(ctx context.Context, p outbox.Push) {
	if p.Topic == "" {
		r.metrics.observeDelay(p, time.Now())
	}
	o := r.Sender.Send(ctx, p)
	r.throttle.done(o, time.Now())
	r.results.add(r.handleOutcome(p, o))
}

// handleOutcome says what becomes of a push after an attempt, and tells whoever has to know of it.
func (r *Relay) handleOutcome(p outbox.Push, o Outcome) outbox.SendResult {
	r.metrics.countAttempt(o)
	switch o.Class {
	case Sent:
		r.deadTokens.recordSent(p, time.Now())
	case DeadToken, BadToken, WrongSender:
		if p.Topic != "" {
			o.Class = Poison // no device's token was refused
			r.Log.Error("a push to a topic was refused and is dead until somebody looks at it", "notification", p.ID, "reason", o.Reason)
			break
		}
		return r.deadTokens.recordRefusal(p, o, time.Now())
	case PlatformAuth:
		r.closePlatform(p.Device.Platform, o)
	case Auth:
		r.Log.Error("ALERT: the push service refuses our credentials, nothing is pushed", "reason", o.Reason)
	case Poison:
		r.Log.Error("a push was refused and is dead until somebody looks at it", "notification", p.ID, "reason", o.Reason)
	}
	return r.resultOf(p, o)
}

const (
	// maxUnsure is how often a push is attempted whose outcome nobody knows.
	maxUnsure = 20
	// maxRetry bounds the wait between attempts.
	maxRetry = 5 * time.Minute
	// unreachedRetry is the wait after an attempt that the push service knows nothing of.
	unreachedRetry = time.Second
	// platformPause is how long a platform that can't be reached is left alone.
	platformPause = time.Minute
)

// resultOf says what becomes of a push after an attempt.
func (r *Relay) resultOf(p outbox.Push, o Outcome) outbox.SendResult {
	s := outbox.SendResult{
		ID: p.ID, Status: outbox.Pending, Attempts: p.Attempts, Result: string(o.Class), Reason: o.Reason,
	}
	switch o.Class {
	case Sent:
		s.Status, s.Reason = outbox.Sent, ""
	case Poison:
		s.Status = outbox.Dead
		s.Attempts++
	case Quota:
		s.After = jittered(cmp.Or(o.RetryAfter, r.throttle.pauses.quota))
	case Auth:
		s.After = jittered(r.throttle.pauses.auth)
	case PlatformAuth:
		s.After = jittered(platformPause)
	case Unreached:
		s.After = jittered(min(unreachedRetry, r.Retry))
	case Unavailable, Unsure:
		s.Attempts++
		s.After = max(o.RetryAfter, r.backoff(s.Attempts))
		if o.Class == Unsure && s.Attempts >= maxUnsure {
			s.Status = outbox.Dead
		}
	}
	return s
}

// backoff is the least wait and, on top of it, full jitter over a time that doubles with each attempt.
func (r *Relay) backoff(attempts int) time.Duration {
	most := min(maxRetry, r.Retry<<min(attempts-1, 10))
	return r.Retry + rand.N(most)
}

// jittered adds up to half, so that what was refused together does not come back together.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/2+1) }

func (r *Relay) platformClosedFor(p dispatch.Platform, now time.Time) time.Duration {
	r.platformsMu.Lock()
	defer r.platformsMu.Unlock()
	return r.closedPlatforms[p].Sub(now)
}

func (r *Relay) closePlatform(p dispatch.Platform, o Outcome) {
	r.platformsMu.Lock()
	r.closedPlatforms[p] = time.Now().Add(platformPause)
	r.platformsMu.Unlock()
	r.metrics.platformClosed(p)
	r.Log.Error("ALERT: the push service can't reach a platform with the credentials it has", "platform", p, "reason", o.Reason)
}
