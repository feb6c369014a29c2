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
	// asideQueue is how many wait for their turn with what they were read to be about: longer ones would be out of date.
	asideQueue = 16
	// asidePace is how many turns fit into a gap, asideDriver how many of them one driver gets.
	asidePace   = 1200
	asideDriver = 12
	// mostAside bounds how many are under way at a time.
	mostAside = 32
)

// aside is the way of pushes whose tokens are under suspicion, apart from the others: one request at a time, and one
// more with each that is taken, until one is refused. Those whose token was good lately come first. Whoever finds no
// place comes back when there is likely to be one.
type aside struct {
	gap        time.Duration
	good, rest chan outbox.Push

	mu              sync.Mutex
	width, underWay int
	end             time.Time // of the turns that were given away
	ends            map[dispatch.DriverID]time.Time
	freed           chan struct{}
}

func newAside(gap time.Duration) *aside {
	return &aside{
		gap: gap, good: make(chan outbox.Push, asideQueue), rest: make(chan outbox.Push, asideQueue), width: 1,
		ends: map[dispatch.DriverID]time.Time{}, freed: make(chan struct{}, 1),
	}
}

// put has a push wait for its turn, and reports whether there is room.
func (a *aside) put(p outbox.Push, now time.Time) bool {
	queue := a.rest
	if wasGood(p.Device, now) {
		queue = a.good
	}
	select {
	case queue <- p:
		return true
	default:
		return false
	}
}

// later is when a driver's push that has no turn now is to come back, after the least wait; ok is false where there are
// too many before it.
func (a *aside) later(driver dispatch.DriverID, least time.Duration, now time.Time) (wait time.Duration, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	end := latest(a.end, now).Add(a.gap / time.Duration(asidePace*a.width))
	own := latest(a.ends[driver].Add(a.gap/asideDriver), latest(end, now.Add(least)))
	if wait = own.Sub(now); wait > least+a.gap {
		return least + a.gap + rand.N(a.gap/2), false
	}
	a.end, a.ends[driver] = end, own
	for v, end := range a.ends {
		if len(a.ends) < 1024 || end.After(now) {
			break // those that are over are forgotten little by little
		}
		delete(a.ends, v)
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
func (a *aside) next(ctx context.Context) (p outbox.Push, ok bool) {
	for !a.free() {
		select {
		case <-a.freed:
		case <-ctx.Done():
			return p, false
		}
	}
	select {
	case p = <-a.good:
		return p, true
	default:
	}
	select {
	case p = <-a.good:
	case p = <-a.rest:
	case <-ctx.Done():
		return p, false
	}
	return p, true
}

func (a *aside) free() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.underWay < a.width
}

func (a *aside) start() {
	a.mu.Lock()
	a.underWay++
	a.mu.Unlock()
}

func (a *aside) done(o Outcome) {
	a.mu.Lock()
	a.underWay--
	if a.width = min(a.width+1, mostAside); o.Class != Sent {
		a.width = 1
	}
	a.mu.Unlock()
	wakeUp(a.freed)
}

// setAside has a push that the channel has a place for go apart from the others.
func (r *Relay) setAside(p outbox.Push, now time.Time) {
	r.channel.release(1)
	if early := r.tokens.tooEarly(p, now); early > 0 || !r.aside.put(p, now) {
		r.comeBack(p, early, now)
	}
}

// comeBack has a push tried after the least wait or later, for which there is no turn now. One of a driver whose tokens have never been good is
// dropped where there are too many, unless nobody's are taken.
func (r *Relay) comeBack(p outbox.Push, least time.Duration, now time.Time) {
	wait, ok := r.aside.later(p.Driver, least, now)
	s := unsent(p, wait.Round(r.Suspicion/60))
	if !ok && !wasGood(p.Device, now) && r.tokens.worksFor(p.Driver, now) {
		s.Status, s.After, s.Result = outbox.Dropped, 0, "suspected"
		r.metrics.dropped(s.Result, 1)
	}
	r.settler.uncounted(s)
}

// try sends what is aside until ctx ends.
func (r *Relay) try(ctx, lasting context.Context) {
	for {
		p, ok := r.aside.next(ctx)
		if !ok {
			return
		}
		now := time.Now()
		closed := max(r.closedFor(p.Device.Platform, now), r.channel.state(now).paused)
		switch {
		case closed > 0:
			r.settler.uncounted(unsent(p, closed.Round(givenBackTogether)))
		case p.Leased.Sub(now) < r.Attempt || now.Sub(p.Read) > believed:
			r.comeBack(p, 0, now)
		default:
			r.aside.start()
			r.running.Go(func() {
				r.metrics.started(p, time.Now())
				o := r.Sender.Send(lasting, p)
				r.aside.done(o)
				r.channel.heard(o, time.Now())
				r.settler.uncounted(r.conclude(p, o))
			})
		}
	}
}

// leaveAside gives back what waits, now that try has ended.
func (r *Relay) leaveAside() {
	for _, queue := range []chan outbox.Push{r.aside.good, r.aside.rest} {
		for len(queue) > 0 {
			r.settler.uncounted(unsent(<-queue, 0))
		}
	}
}
