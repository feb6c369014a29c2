package notify

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
)

const (
	// suspectBacklog is how many wait for their turn with what they were read to be about: longer ones would be out of date.
	suspectBacklog = 16
	// suspectPace is how many turns fit into a gap, asideDriver how many of them one driver gets.
	suspectPace       = 1200
	suspectsPerDriver = 12
	// maxSuspects bounds how many are under way at a time.
	maxSuspects = 32
)

// suspectQueue is the way of pushes whose tokens are under suspicion, apart from the others: one request at a time, and one
// more with each that is taken, until one is refused. Those whose token was good lately come first. Whoever finds no
// place comes back when there is likely to be one.
type suspectQueue struct {
	gap                  time.Duration
	recentlyGood, others chan outbox.Push

	mu              sync.Mutex
	limit, inflight int
	lastTurn        time.Time // of the turns that were given away
	lastTurns       map[dispatch.DriverID]time.Time
	freed           chan struct{}
}

func newSuspectQueue(gap time.Duration) *suspectQueue {
	return &suspectQueue{
		gap: gap, recentlyGood: make(chan outbox.Push, suspectBacklog), others: make(chan outbox.Push, suspectBacklog), limit: 1,
		lastTurns: map[dispatch.DriverID]time.Time{}, freed: make(chan struct{}, 1),
	}
}

// put has a push wait for its turn, and reports whether there is room.
func (a *suspectQueue) put(p outbox.Push, now time.Time) bool {
	queue := a.others
	if wasGood(p.Device, now) {
		queue = a.recentlyGood
	}
	select {
	case queue <- p:
		return true
	default:
		return false
	}
}

// postpone is when a driver's push that has no turn now is to come back, after the least wait; ok is false where there are
// too many before it.
func (a *suspectQueue) postpone(driver dispatch.DriverID, least time.Duration, now time.Time) (wait time.Duration, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	end := latest(a.lastTurn, now).Add(a.gap / time.Duration(suspectPace*a.limit))
	own := latest(a.lastTurns[driver].Add(a.gap/suspectsPerDriver), latest(end, now.Add(least)))
	if wait = own.Sub(now); wait > least+a.gap {
		return least + a.gap + rand.N(a.gap/2), false
	}
	a.lastTurn, a.lastTurns[driver] = end, own
	for v, end := range a.lastTurns {
		if len(a.lastTurns) < 1024 || end.After(now) {
			break // those that are over are forgotten little by little
		}
		delete(a.lastTurns, v)
	}
	return wait, true
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// next waits for the next push and for its turn; ok is false when ctx has ended.
func (a *suspectQueue) next(ctx context.Context) (p outbox.Push, ok bool) {
	for !a.free() {
		select {
		case <-a.freed:
		case <-ctx.Done():
			return p, false
		}
	}
	select {
	case p = <-a.recentlyGood:
		return p, true
	default:
	}
	select {
	case p = <-a.recentlyGood:
	case p = <-a.others:
	case <-ctx.Done():
		return p, false
	}
	return p, true
}

func (a *suspectQueue) free() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inflight < a.limit
}

func (a *suspectQueue) start() {
	a.mu.Lock()
	a.inflight++
	a.mu.Unlock()
}

func (a *suspectQueue) done(o Outcome) {
	a.mu.Lock()
	a.inflight--
	if a.limit = min(a.limit+1, maxSuspects); o.Class != Sent {
		a.limit = 1
	}
	a.mu.Unlock()
	wakeUp(a.freed)
}

// queueSuspect has a push that the channel has a place for go apart from the others.
func (r *Relay) queueSuspect(p outbox.Push, now time.Time) {
	r.throttle.release(1)
	if early := r.deadTokens.retryWait(p, now); early > 0 || !r.suspects.put(p, now) {
		r.postpone(p, early, now)
	}
}

// postpone has a push tried after the least wait or later, for which there is no turn now. One of a driver whose tokens have never been good is
// dropped where there are too many, unless nobody's are taken.
func (r *Relay) postpone(p outbox.Push, least time.Duration, now time.Time) {
	wait, ok := r.suspects.postpone(p.Driver, least, now)
	s := unsent(p, wait.Round(r.Suspicion/60))
	if !ok && !wasGood(p.Device, now) && r.deadTokens.reachesOthers(p.Driver, now) {
		s.Status, s.After, s.Result = outbox.Dropped, 0, "suspected"
		r.metrics.countDropped(s.Result, 1)
	}
	r.results.addUncounted(s)
}

// sendSuspects sends what is aside until ctx ends.
func (r *Relay) sendSuspects(ctx, lasting context.Context) {
	for {
		p, ok := r.suspects.next(ctx)
		if !ok {
			return
		}
		now := time.Now()
		closed := max(r.platformClosedFor(p.Device.Platform, now), r.throttle.state(now).paused)
		switch {
		case closed > 0:
			r.results.addUncounted(unsent(p, closed.Round(releaseRounding)))
		case p.Leased.Sub(now) < r.Attempt || now.Sub(p.Read) > maxReadAge:
			r.postpone(p, 0, now)
		default:
			r.suspects.start()
			r.attempts.Go(func() {
				r.metrics.observeDelay(p, time.Now())
				o := r.Sender.Send(lasting, p)
				r.suspects.done(o)
				r.throttle.observe(o, time.Now())
				r.results.addUncounted(r.handleOutcome(p, o))
			})
		}
	}
}

// releaseSuspects gives back what waits, now that try has ended.
func (r *Relay) releaseSuspects() {
	for _, queue := range []chan outbox.Push{r.suspects.recentlyGood, r.suspects.others} {
		for len(queue) > 0 {
			r.results.addUncounted(unsent(<-queue, 0))
		}
	}
}
