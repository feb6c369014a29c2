package notify

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"firsttap/dispatch"
)

const (
	// committedQueueSize bounds the committed events that wait here for their expansion. Others wait until their lease ends.
	committedQueueSize = 4096
	// lookBatch bounds the events of one look for recipients: those that have some are expanded one after the other.
	lookBatch   = 32
	lookTimeout = time.Second
	// completeInterval is how long the completion of an event may wait for others: each is a durable write.
	completeInterval = 200 * time.Millisecond
	// completeQueueSize bounds the completions that wait. An event that does not fit is expanded when its lease has ended.
	completeQueueSize = 4096
)

// committedQueue holds events that this process has committed and leases.
type committedQueue struct {
	events chan committedEvent
	// look says that an event of the queue had no recipients lately. As long as all have some, a look would only delay their pushes.
	look atomic.Bool
}

type committedEvent struct {
	id dispatch.EventID
	// offer says that the event concerns all drivers who may accept.
	offer bool
}

func newCommittedQueue() *committedQueue {
	return &committedQueue{events: make(chan committedEvent, committedQueueSize)}
}

// next waits for an event and returns it, with others that wait if they are looked at together. It returns none when ctx has ended.
func (q *committedQueue) next(ctx context.Context) (batch []committedEvent) {
	select {
	case event := <-q.events:
		batch = append(batch, event)
	case <-ctx.Done():
		return nil
	}
	for q.look.Load() && len(batch) < lookBatch {
		select {
		case event := <-q.events:
			batch = append(batch, event)
		default:
			return batch
		}
	}
	return batch
}

// OnCommit hands over events that this process committed, with leases that it wrote in the same transaction. It never
// blocks.
func (r *Relay) OnCommit(_ dispatch.Dispatch, events []dispatch.Event) {
	for _, e := range events {
		deliveries := e.Deliveries()
		switch {
		case e.PushAt.After(e.At):
			// This process does not lease it.
		case len(deliveries) == 0:
			r.complete(e.ID)
		case deliveries[0].Audience == dispatch.AudienceClaimant:
			r.enqueue(r.urgent, committedEvent{id: e.ID})
		default:
			r.enqueue(r.committed, committedEvent{id: e.ID, offer: deliveries[0].Audience == dispatch.AudienceEligible})
		}
	}
}

func (r *Relay) enqueue(to *committedQueue, event committedEvent) {
	select {
	case to.events <- event:
	default:
		r.metrics.overflow.Inc()
	}
}

// complete hands over an event that nobody is to be told about. It never blocks.
func (r *Relay) complete(event dispatch.EventID) {
	select {
	case r.completed <- event:
	default:
		r.metrics.overflow.Inc()
	}
}

// expandCommitted expands the events of a queue until ctx ends.
func (r *Relay) expandCommitted(ctx, lasting context.Context, queue *committedQueue) {
	for {
		batch := queue.next(ctx)
		if len(batch) == 0 {
			return
		}
		for i, event := range r.withRecipients(lasting, queue, batch) {
			if i > 0 && ctx.Err() != nil {
				return // Run releases the others
			}
			if none := r.expand(lasting, event.id, false); none && !event.offer {
				queue.look.Store(true)
			}
		}
	}
}

// withRecipients returns the events that are to be expanded. If the queue is looked at, it has those completed that have no
// recipients.
func (r *Relay) withRecipients(ctx context.Context, queue *committedQueue, batch []committedEvent) []committedEvent {
	if !queue.look.Load() {
		return batch
	}
	var ids []dispatch.EventID // an offer has to be expanded to know its recipients
	for _, e := range batch {
		if !e.offer {
			ids = append(ids, e.id)
		}
	}
	if len(ids) == 0 {
		return batch
	}
	none := r.withoutRecipients(ctx, ids)
	for _, id := range none {
		r.complete(id)
	}
	queue.look.Store(len(none) > 0)
	return slices.DeleteFunc(batch, func(e committedEvent) bool { return slices.Contains(none, e.id) })
}

// withoutRecipients returns the events that have no recipients for sure.
func (r *Relay) withoutRecipients(ctx context.Context, events []dispatch.EventID) []dispatch.EventID {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	none, err := r.options.Outbox.WithoutRecipients(ctx, events)
	if err != nil {
		r.options.Log.Warn("recipients of events not read; each event is expanded", "events", len(events), "error", err)
	}
	return none
}

// completeEvents completes the events that were handed to complete, until ctx ends; lasting bounds its writes.
func (r *Relay) completeEvents(ctx, lasting context.Context) {
	interval := time.NewTimer(completeInterval)
	defer interval.Stop()
	for ctx.Err() == nil {
		var batch []dispatch.EventID
		select {
		case event := <-r.completed:
			batch = append(batch, event)
			interval.Reset(completeInterval)
			select {
			case <-interval.C:
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
		for range len(r.completed) {
			batch = append(batch, <-r.completed)
		}
		if len(batch) > 0 {
			r.writeCompletions(lasting, batch)
		}
	}
}

func (r *Relay) writeCompletions(ctx context.Context, batch []dispatch.EventID) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := r.options.Outbox.CompleteEvents(ctx, batch); err != nil {
		r.options.Log.Warn("events without recipients not completed; a relay will expand them when their leases have ended", "events", len(batch), "error", err)
	}
}
