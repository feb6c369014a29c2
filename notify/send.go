package notify

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
)

// send starts attempts for the pushes that are ready, as fast as the throttle allows.
func (r *Relay) send(ctx, lasting context.Context) {
	var checked time.Time
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
			if p == nil { // the push was released meanwhile, and its place with it
				r.throttle.cancelStart()
				continue
			}
			r.startAttempt(lasting, p, now)
		case wait > 0:
			r.releaseAll(anyPush, wait)
		default:
			if now.Sub(checked) > maxReadAge/4 {
				checked = now
				r.releaseAll(stale(now, r.options.AttemptTimeout), 0)
			}
			r.wait(ctx, r.throttle.freed)
		}
	}
}

// startAttempt sends the push whose place in the throttle was started. If it is stale or its platform is closed, it is released instead.
func (r *Relay) startAttempt(lasting context.Context, p *outbox.Push, now time.Time) {
	closed := r.platformClosedFor(p.Device.Platform, now)
	if closed <= 0 && !stale(now, r.options.AttemptTimeout)(p) {
		select {
		case r.handOver <- p:
		default:
			r.attempts.Go(func() { r.makeAttempts(lasting, p) })
		}
		return
	}
	r.throttle.cancelStart()
	r.release(p, max(0, closed))
}

// maxReadAge is how old the state of a push's dispatch may be: an offer is not to be sent long after it was accepted.
const maxReadAge = time.Second

// release ends the lease of a push that was not attempted. The push is due again after wait.
func (r *Relay) release(p *outbox.Push, wait time.Duration) {
	r.throttle.release(1)
	r.results.addUncounted(unsent(*p, wait.Round(releaseRounding)))
}

// unsent is the result of a push that was not attempted.
func unsent(p outbox.Push, wait time.Duration) outbox.SendResult {
	return outbox.SendResult{ID: p.ID, Status: outbox.Pending, RetryAfter: wait, Attempts: p.Attempts}
}

// releaseAll releases the waiting pushes that match.
func (r *Relay) releaseAll(match func(*outbox.Push) bool, wait time.Duration) {
	for _, p := range r.ready.remove(match) {
		r.release(p, wait)
	}
}

// releaseRounding rounds the waits of released pushes, so that one statement can record many.
const releaseRounding = 100 * time.Millisecond

// keepIdle is how long a goroutine that has made an attempt waits for the next push.
const keepIdle = time.Second

// makeAttempts attempts to send p, and then each push that is handed over to it. An attempt needs a large stack: a new goroutine would
// have to grow its own, and a goroutine that has just made an attempt has one already.
func (r *Relay) makeAttempts(ctx context.Context, p *outbox.Push) {
	idle := time.NewTimer(keepIdle)
	defer idle.Stop()
	for {
		r.attempt(ctx, *p)
		idle.Reset(keepIdle)
		select {
		case p = <-r.handOver:
		case <-idle.C:
			return
		case <-r.noMore:
			return
		}
	}
}

func (r *Relay) attempt(ctx context.Context, p outbox.Push) {
	if p.Topic == "" {
		r.metrics.observeDelay(p, time.Now())
	}
	o := r.options.Sender.Send(ctx, p)
	r.throttle.done(o, time.Now())
	r.results.add(r.bounded(p, o, r.handleOutcome(p, o)))
}

// bounded is the result of an attempt with that outcome, dead if it was the last that the push may have. What did not reach the push
// service was no request.
func (r *Relay) bounded(p outbox.Push, o Outcome, s outbox.SendResult) outbox.SendResult {
	if r.options.MaxAttempts == 0 || o.Class == Unreached || s.Status != outbox.Pending {
		return s
	}
	if s.Attempts = p.Attempts + 1; s.Attempts >= r.options.MaxAttempts {
		s.Status = outbox.Dead
	}
	return s
}

// handleOutcome returns the result of an attempt, and passes on what it says about tokens, platforms and credentials.
func (r *Relay) handleOutcome(p outbox.Push, o Outcome) outbox.SendResult {
	r.metrics.countAttempt(o)
	switch o.Class {
	case Sent:
		r.tokens.recordSent(p, time.Now())
	case DeadToken, BadToken, WrongSender:
		if p.Topic != "" {
			o.Class = Poison // the refusal is not about a device's token
			r.options.Log.Error("push to a topic refused; it stays dead until an operator redrives it", "notification", p.ID,
				"reason", o.Reason)
			break
		}
		return r.tokens.recordRefusal(p, o, time.Now())
	case PlatformAuth:
		r.closePlatform(p.Device.Platform, o)
	case Auth:
		r.options.Log.Error("ALERT: push service refuses our credentials; nothing is pushed until it accepts them", "reason", o.Reason)
	case Poison:
		r.options.Log.Error("push refused; it stays dead until an operator redrives it", "notification", p.ID, "reason", o.Reason)
	}
	return r.resultOf(p, o)
}

const (
	// maxUnsure is how many attempts with an unknown outcome a push gets before it is dead.
	maxUnsure = 20
	// maxRetry bounds the wait between attempts.
	maxRetry = 5 * time.Minute
	// unreachedRetry is the wait after an attempt that did not reach the push service.
	unreachedRetry = time.Second
	// platformPause is how long nothing is sent to a platform that the push service can't reach.
	platformPause = time.Minute
)

// resultOf returns the result of an attempt with that outcome.
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
		s.RetryAfter = jittered(cmp.Or(o.RetryAfter, r.throttle.pauses.quota))
	case Auth:
		s.RetryAfter = jittered(r.throttle.pauses.auth)
	case PlatformAuth:
		s.RetryAfter = jittered(platformPause)
	case Unreached:
		s.RetryAfter = jittered(min(unreachedRetry, r.options.RetryDelay))
	case Unavailable, Unsure:
		s.Attempts++
		s.RetryAfter = max(o.RetryAfter, r.backoff(s.Attempts))
		if o.Class == Unsure && s.Attempts >= maxUnsure {
			s.Status = outbox.Dead
		}
	}
	return s
}

// backoff is RetryDelay plus full jitter over a time that doubles with each attempt.
func (r *Relay) backoff(attempts int) time.Duration {
	most := min(maxRetry, r.options.RetryDelay<<min(attempts-1, 10))
	return r.options.RetryDelay + rand.N(most)
}

// jittered adds up to half of d, so that pushes refused together are not retried together.
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
	r.options.Log.Error("ALERT: push service lacks valid credentials for a platform; its pushes will be retried",
		"platform", p, "retry_after", platformPause, "reason", o.Reason)
}
