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
		ok, wait := r.channel.start(now)
		switch {
		case ok:
			p := r.ready.next()
			if p == nil { // what waited has been given back meanwhile, with its place
				r.channel.unstart()
				continue
			}
			r.begin(lasting, p, now)
		case wait > 0:
			r.giveBackAll(all, wait)
		default:
			if now.Sub(looked) > believed/4 {
				looked = now
				r.giveBackAll(overdue(now, r.Attempt), 0)
			}
			r.wait(ctx, r.channel.freed)
		}
	}
}

// begin has the push attempted that the channel was started for, unless it is to go apart from the others, its platform
// can't be reached, or it is overdue.
func (r *Relay) begin(lasting context.Context, p *outbox.Push, now time.Time) {
	apart, closed := r.tokens.apart(*p, now), r.closedFor(p.Device.Platform, now)
	if !apart && closed <= 0 && !overdue(now, r.Attempt)(p) {
		r.running.Go(func() { r.attempt(lasting, *p) })
		return
	}
	r.channel.unstart()
	if apart {
		r.setAside(*p, now)
		return
	}
	r.giveBack(p, max(0, closed))
}

// believed is for how long a dispatch is taken to be as it was read: an offer that is taken meanwhile is not to be sent.
const believed = time.Second

// giveBack returns a push that was not attempted: it is due again after wait, or when it is its turn.
func (r *Relay) giveBack(p *outbox.Push, wait time.Duration) {
	r.channel.release(1)
	r.settler.uncounted(unsent(*p, wait.Round(givenBackTogether)))
}

// unsent is what becomes of a push that was not attempted.
func unsent(p outbox.Push, wait time.Duration) outbox.SendResult {
	return outbox.SendResult{ID: p.ID, Status: outbox.Pending, After: wait, Attempts: p.Attempts}
}

// giveBackAll returns those that wait and for which over says so.
func (r *Relay) giveBackAll(over func(*outbox.Push) bool, wait time.Duration) {
	for _, p := range r.ready.remove(over) {
		r.giveBack(p, wait)
	}
}

// givenBackTogether lets pushes that are given back at almost the same time be settled by one statement.
const givenBackTogether = 100 * time.Millisecond

func (r *Relay) attempt(ctx context.Context, p outbox.Push) {
	if p.Topic == "" {
		r.metrics.started(p, time.Now())
	}
	o := r.Sender.Send(ctx, p)
	r.channel.done(o, time.Now())
	r.settler.add(r.conclude(p, o))
}

// conclude says what becomes of a push after an attempt, and tells whoever has to know of it.
func (r *Relay) conclude(p outbox.Push, o Outcome) outbox.SendResult {
	r.metrics.attempted(o)
	switch o.Class {
	case Sent:
		r.tokens.accept(p, time.Now())
	case DeadToken, BadToken, WrongSender:
		if p.Topic != "" {
			o.Class = Poison // no device's token was refused
			r.Log.Error("a push to a topic was refused and is dead until somebody looks at it", "notification", p.ID, "reason", o.Reason)
			break
		}
		return r.tokens.judge(p, o, time.Now())
	case PlatformAuth:
		r.close(p.Device.Platform, o)
	case Auth:
		r.Log.Error("ALERT: the push service refuses our credentials, nothing is pushed", "reason", o.Reason)
	case Poison:
		r.Log.Error("a push was refused and is dead until somebody looks at it", "notification", p.ID, "reason", o.Reason)
	}
	return r.decide(p, o)
}

const (
	// mostUnsure is how often a push is attempted whose outcome nobody knows.
	mostUnsure = 20
	// longestRetry bounds the wait between attempts.
	longestRetry = 5 * time.Minute
	// unreachedRetry is the wait after an attempt that the push service knows nothing of.
	unreachedRetry = time.Second
	// platformPause is how long a platform that can't be reached is left alone.
	platformPause = time.Minute
)

// decide says what becomes of a push after an attempt.
func (r *Relay) decide(p outbox.Push, o Outcome) outbox.SendResult {
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
		s.After = jittered(cmp.Or(o.RetryAfter, r.channel.pauses.quota))
	case Auth:
		s.After = jittered(r.channel.pauses.auth)
	case PlatformAuth:
		s.After = jittered(platformPause)
	case Unreached:
		s.After = jittered(min(unreachedRetry, r.Retry))
	case Unavailable, Unsure:
		s.Attempts++
		s.After = max(o.RetryAfter, r.backoff(s.Attempts))
		if o.Class == Unsure && s.Attempts >= mostUnsure {
			s.Status = outbox.Dead
		}
	}
	return s
}

// backoff is the least wait and, on top of it, full jitter over a time that doubles with each attempt.
func (r *Relay) backoff(attempts int) time.Duration {
	most := min(longestRetry, r.Retry<<min(attempts-1, 10))
	return r.Retry + rand.N(most)
}

// jittered adds up to half, so that what was refused together does not come back together.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/2+1) }

func (r *Relay) closedFor(p dispatch.Platform, now time.Time) time.Duration {
	r.platformsMu.Lock()
	defer r.platformsMu.Unlock()
	return r.platforms[p].Sub(now)
}

func (r *Relay) close(p dispatch.Platform, o Outcome) {
	r.platformsMu.Lock()
	r.platforms[p] = time.Now().Add(platformPause)
	r.platformsMu.Unlock()
	r.metrics.platformClosed(p)
	r.Log.Error("ALERT: the push service can't reach a platform with the credentials it has", "platform", p, "reason", o.Reason)
}
