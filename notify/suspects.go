package notify

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"firsttap/dispatch"
	"firsttap/notify/wakeup"
	"firsttap/outbox"
)

const (
	// suspectBacklog bounds each queue: in a longer one pushes would become stale.
	suspectBacklog = 16
	// suspectPace is how many suspects are sent within a gap, suspectsPerDriver how many of them one driver gets.
	suspectPace       = 1200
	suspectsPerDriver = 12
	// maxSuspects bounds the requests in flight.
	maxSuspects = 32
	// probesPerGap is how many suspects are sent within a gap at most while the push service accepts no token.
	probesPerGap = 3
)

// suspectQueue holds pushes to suspected tokens, which are sent without a place in the throttle: one request at a time, one
// more with each that succeeds, and one again after a failure. Tokens that worked recently go first. A push that finds no
// room is postponed until there is likely to be some.
type suspectQueue struct {
	gap                  time.Duration
	recentlyGood, others chan outbox.Push

	mu              sync.Mutex
	limit, inflight int
	lastRefused     time.Time
	lastTurn        time.Time // the latest turn that was assigned
	lastTurns       map[dispatch.DriverID]time.Time
	freed           wakeup.Signal
}

func newSuspectQueue(gap time.Duration) *suspectQueue {
	return &suspectQueue{
		gap: gap, recentlyGood: make(chan outbox.Push, suspectBacklog), others: make(chan outbox.Push, suspectBacklog), limit: 1,
		lastTurns: map[dispatch.DriverID]time.Time{}, freed: wakeup.New(),
	}
}

// put queues a push, and reports whether there was room.
func (q *suspectQueue) put(p outbox.Push, now time.Time) bool {
	queue := q.others
	if wasGood(p.Device, now) {
		queue = q.recentlyGood
	}
	select {
	case queue <- p:
		return true
	default:
		return false
	}
}

// postpone assigns a later turn to a driver's push and returns the wait for it, at least the given one. Ok is false if too
// many are before it.
func (q *suspectQueue) postpone(driver dispatch.DriverID, least time.Duration, now time.Time) (wait time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	end := latest(q.lastTurn, now).Add(q.gap / time.Duration(suspectPace*q.limit))
	own := latest(q.lastTurns[driver].Add(q.gap/suspectsPerDriver), latest(end, now.Add(least)))
	if wait = own.Sub(now); wait > least+q.gap {
		return least + q.gap + rand.N(q.gap/2), false
	}
	q.lastTurn, q.lastTurns[driver] = end, own
	for v, end := range q.lastTurns {
		if len(q.lastTurns) < 1024 || end.After(now) {
			break // past turns are forgotten a few at a time
		}
		delete(q.lastTurns, v)
	}
	return wait, true
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// next waits until a push may be sent and returns it. Ok is false when ctx has ended.
func (q *suspectQueue) next(ctx context.Context) (p outbox.Push, ok bool) {
	for !q.free() {
		select {
		case <-q.freed:
		case <-ctx.Done():
			return p, false
		}
	}
	select {
	case p = <-q.recentlyGood:
		return p, true
	default:
	}
	select {
	case p = <-q.recentlyGood:
	case p = <-q.others:
	case <-ctx.Done():
		return p, false
	}
	return p, true
}

func (q *suspectQueue) free() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inflight < q.limit
}

func (q *suspectQueue) start() {
	q.mu.Lock()
	q.inflight++
	q.mu.Unlock()
}

func (q *suspectQueue) done(o Outcome, now time.Time) {
	q.mu.Lock()
	q.inflight--
	if q.limit = min(q.limit+1, maxSuspects); o.Class != Sent {
		q.limit, q.lastRefused = 1, now
	}
	q.mu.Unlock()
	q.freed.Set()
}

// probed reports whether the push service did not accept a suspect so recently that another would prove nothing while it accepts no
// token.
func (q *suspectQueue) probed(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return now.Sub(q.lastRefused) < q.gap/probesPerGap
}

// queueSuspect moves a push from its place in the throttle to the queue of suspects.
func (r *Relay) queueSuspect(p outbox.Push, now time.Time) {
	r.throttle.release(1)
	if wait := r.deadTokens.retryWait(p, now); wait > 0 || !r.suspects.put(p, now) {
		r.postpone(p, wait, now)
	}
}

// postpone releases a suspect until a later turn. If too many are before it, it drops a push to a token that never worked,
// unless the push service accepts no token at all.
func (r *Relay) postpone(p outbox.Push, least time.Duration, now time.Time) {
	wait, ok := r.suspects.postpone(p.Driver, least, now)
	s := unsent(p, wait.Round(r.options.SuspicionGap/60))
	if !ok && !wasGood(p.Device, now) && r.deadTokens.reachesOthers(p.Driver, now) {
		s.Status, s.RetryAfter, s.Result = outbox.Dropped, 0, "suspected"
		r.metrics.countDropped(s.Result, 1)
	}
	r.results.addUncounted(s)
}

// sendSuspects sends suspects until ctx ends.
func (r *Relay) sendSuspects(ctx, lasting context.Context) {
	for {
		p, ok := r.suspects.next(ctx)
		if !ok {
			return
		}
		now := time.Now()
		channel := r.throttle.state(now)
		closed := max(r.platformClosedFor(p.Device.Platform, now), channel.paused)
		switch {
		case closed > 0:
			r.results.addUncounted(unsent(p, closed.Round(releaseRounding)))
		case channel.circuit == DeadToken && r.suspects.probed(now):
			r.results.addUncounted(unsent(p, jittered(r.suspects.gap).Round(r.suspects.gap/60)))
		case p.LeasedUntil.Sub(now) < r.options.AttemptTimeout || now.Sub(p.ReadAt) > maxReadAge:
			r.postpone(p, 0, now)
		default:
			r.suspects.start()
			r.attempts.Go(func() {
				r.metrics.observeDelay(p, time.Now())
				o := r.options.Sender.Send(lasting, p)
				r.suspects.done(o, time.Now())
				r.throttle.observe(o, time.Now())
				r.results.addUncounted(r.handleOutcome(p, o))
			})
		}
	}
}

// releaseSuspects releases the waiting suspects. sendSuspects has ended.
func (r *Relay) releaseSuspects() {
	for _, queue := range []chan outbox.Push{r.suspects.recentlyGood, r.suspects.others} {
		for len(queue) > 0 {
			r.results.addUncounted(unsent(<-queue, 0))
		}
	}
}
