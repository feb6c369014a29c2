package notify

import (
	"sync"
	"time"

	"firsttap/dispatch/outbox"
	"firsttap/notify/wakeup"
)

// ready holds the leased pushes that wait for the throttle; each of them has a place reserved there. What an expansion has leased and what
// was leased from the backlog take turns, so that what was just committed waits for no backlog.
type ready struct {
	mu      sync.Mutex
	queues  [queueCount][]*outbox.Push
	last    int           // the queue of the latest push
	arrived wakeup.Signal // set when pushes were added
}

// The queues.
const (
	fromExpansion = iota
	fromBacklog
	queueCount
)

func newReady() *ready { return &ready{arrived: wakeup.New()} }

// add appends the pushes to a queue. It never blocks.
func (r *ready) add(queue int, pushes []outbox.Push) {
	if len(pushes) == 0 {
		return
	}
	r.mu.Lock()
	for i := range pushes {
		r.queues[queue] = append(r.queues[queue], &pushes[i])
	}
	r.mu.Unlock()
	r.arrived.Set()
}

// empty reports whether no push waits.
func (r *ready) empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queues[fromExpansion])+len(r.queues[fromBacklog]) == 0
}

// next removes and returns the next push, nil if none waits.
func (r *ready) next() *outbox.Push {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range queueCount {
		r.last = (r.last + 1) % queueCount
		if q := r.queues[r.last]; len(q) > 0 {
			p := q[0]
			q[0] = nil
			r.queues[r.last] = q[1:]
			return p
		}
	}
	return nil
}

// remove removes and returns the pushes that match.
func (r *ready) remove(match func(*outbox.Push) bool) (removed []*outbox.Push) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, q := range r.queues {
		wait := q[:0]
		for _, p := range q {
			if match(p) {
				removed = append(removed, p)
			} else {
				wait = append(wait, p)
			}
		}
		clear(q[len(wait):])
		r.queues[i] = wait
	}
	return removed
}

// anyPush matches every push.
func anyPush(*outbox.Push) bool { return true }

// stale matches pushes whose dispatch may have changed since it was read, or whose lease is too short for an attempt.
func stale(now time.Time, attempt time.Duration) func(*outbox.Push) bool {
	return func(p *outbox.Push) bool { return now.Sub(p.ReadAt) > maxReadAge || p.LeasedUntil.Sub(now) < attempt }
}
