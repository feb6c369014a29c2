package notify

import (
	"slices"
	"sync"
	"time"

	"firsttap/dispatch"
	"firsttap/notify/wakeup"
	"firsttap/outbox"
)

// lanes hold the leased pushes that wait for the throttle; each of them has a place reserved there. Every lane gets its
// share of the throttle, and within a lane the events take turns, one push each.
type lanes struct {
	mu      sync.Mutex
	rings   [outbox.LaneCount]eventRing
	turns   outbox.LaneRotation
	size    int
	arrived wakeup.Signal // set when pushes were added
}

// eventRing is one lane: the events that have pushes waiting, and the position of the next event.
type eventRing struct {
	byEvent  map[dispatch.EventID]*eventQueue
	ring     []*eventQueue
	position int
}

type eventQueue struct {
	event  dispatch.EventID
	pushes []*outbox.Push
}

func newLanes() *lanes {
	l := &lanes{arrived: wakeup.New()}
	for i := range l.rings {
		l.rings[i].byEvent = map[dispatch.EventID]*eventQueue{}
	}
	return l
}

// add appends each push to the queue of its event. It never blocks.
func (l *lanes) add(pushes []outbox.Push) {
	if len(pushes) == 0 {
		return
	}
	l.mu.Lock()
	for i := range pushes {
		p := &pushes[i]
		l.rings[outbox.LaneOf(p.Type, p.Silent)].add(p)
	}
	l.size += len(pushes)
	l.mu.Unlock()
	l.arrived.Set()
}

func (r *eventRing) add(p *outbox.Push) {
	e := r.byEvent[p.Event]
	if e == nil {
		e = &eventQueue{event: p.Event}
		r.byEvent[p.Event] = e
		r.ring = append(r.ring, e)
	}
	e.pushes = append(e.pushes, p)
}

// empty reports whether no push waits.
func (l *lanes) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size == 0
}

// next removes and returns the next push, nil if none waits.
func (l *lanes) next() *outbox.Push {
	l.mu.Lock()
	defer l.mu.Unlock()
	var waiting [outbox.LaneCount]bool
	for i := range l.rings {
		waiting[i] = len(l.rings[i].ring) > 0
	}
	lane, ok := l.turns.Next(waiting)
	if !ok {
		return nil
	}
	l.size--
	return l.rings[lane].next()
}

func (r *eventRing) next() *outbox.Push {
	r.position %= len(r.ring)
	e := r.ring[r.position]
	p := e.pushes[0]
	e.pushes[0] = nil
	if e.pushes = e.pushes[1:]; len(e.pushes) > 0 {
		r.position++
	} else {
		delete(r.byEvent, e.event)
		r.ring = slices.Delete(r.ring, r.position, r.position+1)
	}
	return p
}

// remove removes and returns the pushes that match.
func (l *lanes) remove(match func(*outbox.Push) bool) (removed []*outbox.Push) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.rings {
		removed = l.rings[i].remove(match, removed)
	}
	l.size -= len(removed)
	return removed
}

func (r *eventRing) remove(match func(*outbox.Push) bool, removed []*outbox.Push) []*outbox.Push {
	ring := r.ring[:0]
	for _, e := range r.ring {
		wait := e.pushes[:0]
		for _, p := range e.pushes {
			if match(p) {
				removed = append(removed, p)
			} else {
				wait = append(wait, p)
			}
		}
		clear(e.pushes[len(wait):])
		if e.pushes = wait; len(wait) > 0 {
			ring = append(ring, e)
		} else {
			delete(r.byEvent, e.event)
		}
	}
	clear(r.ring[len(ring):])
	r.ring = ring
	return removed
}

// anyPush matches every push.
func anyPush(*outbox.Push) bool { return true }

// stale matches pushes whose dispatch may have changed since it was read, or whose lease is too short for an attempt.
func stale(now time.Time, attempt time.Duration) func(*outbox.Push) bool {
	return func(p *outbox.Push) bool { return now.Sub(p.ReadAt) > maxReadAge || p.LeasedUntil.Sub(now) < attempt }
}
