package notify

import (
	"slices"
	"sync"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
)

// lanes hold what is leased and waits for the channel: as much as was reserved there. Each lane has its share of what
// leaves it, and within a lane one event after the other has one push sent.
type lanes struct {
	mu      sync.Mutex
	rings   [outbox.Lanes]eventRing
	turns   outbox.LaneTurns
	size    int
	arrived chan struct{} // says that it is not empty any more
}

// eventRing is a lane: the events of which something waits, and which of them is next.
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
	l := &lanes{arrived: make(chan struct{}, 1)}
	for i := range l.rings {
		l.rings[i].byEvent = map[dispatch.EventID]*eventQueue{}
	}
	return l
}

// add puts pushes behind those of the same event. It never blocks.
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
	wakeUp(l.arrived)
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

// empty reports whether nothing waits.
func (l *lanes) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size == 0
}

// next removes and returns the push whose turn it is, nil where nothing waits.
func (l *lanes) next() *outbox.Push {
	l.mu.Lock()
	defer l.mu.Unlock()
	var waiting [outbox.Lanes]bool
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

// remove removes and returns the pushes for which over says so.
func (l *lanes) remove(over func(*outbox.Push) bool) (removed []*outbox.Push) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.rings {
		removed = l.rings[i].remove(over, removed)
	}
	l.size -= len(removed)
	return removed
}

func (r *eventRing) remove(over func(*outbox.Push) bool, removed []*outbox.Push) []*outbox.Push {
	ring := r.ring[:0]
	for _, e := range r.ring {
		wait := e.pushes[:0]
		for _, p := range e.pushes {
			if over(p) {
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

// anyPush is what remove takes to empty the lanes.
func anyPush(*outbox.Push) bool { return true }

// stale is what remove takes to give back what its dispatch may have overtaken, and what has a lease that runs short.
func stale(now time.Time, attempt time.Duration) func(*outbox.Push) bool {
	return func(p *outbox.Push) bool { return now.Sub(p.Read) > maxReadAge || p.Leased.Sub(now) < attempt }
}
