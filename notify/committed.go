package notify

import (
	"firsttap/dispatch"
)

// committedQueue bounds the events that wait here for their expansion, or for their completion. Others wait until their lease ends.
const committedQueue = 4096

// OnCommit hands over events that this process committed, and leases unless they are to be pushed later. It never blocks.
func (r *Relay) OnCommit(_ dispatch.Dispatch, events []dispatch.Event) {
	for _, e := range events {
		deliveries := e.Deliveries()
		switch {
		case e.PushAt.After(e.At):
			// This process does not lease it.
		case len(deliveries) == 0:
			enqueue(r, r.completed, e.ID)
		case deliveries[0].Audience == dispatch.AudienceClaimant:
			enqueue(r, r.urgent, e.ID)
		default:
			enqueue(r, r.committed, e.ID)
		}
	}
}

// enqueue adds an event to a queue. If the queue is full, the event waits until its lease ends.
func enqueue(r *Relay, queue chan<- dispatch.EventID, event dispatch.EventID) {
	select {
	case queue <- event:
	default:
		r.metrics.overflow.Inc()
	}
}
