package notify

import (
	"context"
	"slices"
	"time"

	"firsttap/dispatch"
)

const (
	// committedQueue bounds the committed events that wait here for their expansion, or for their completion. Others wait until
	// their lease ends.
	committedQueue = 4096
	// recipientsBatch bounds the events of one read of recipients: those that have some are expanded one after the other.
	recipientsBatch = 32
	lookTimeout     = time.Second
	// completeInterval is how long the completion of an event may wait for others: each is a durable write.
	completeInterval = 200 * time.Millisecond
)

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

// expandUrgent expands events about a driver's own claim, until ctx ends. It asks for the recipients of those that wait together: on a
// busy instance, an event without recipients costs no expansion.
func (r *Relay) expandUrgent(ctx, lasting context.Context) {
	for {
		var batch []dispatch.EventID
		select {
		case event := <-r.urgent:
			batch = append(batch, event)
		case <-ctx.Done():
			return
		}
		for range min(len(r.urgent), recipientsBatch-1) {
			batch = append(batch, <-r.urgent)
		}
		if len(batch) > 1 {
			batch = r.completeUnreachable(lasting, batch)
		}
		for i, event := range batch {
			if i > 0 && ctx.Err() != nil {
				return // Run releases the others
			}
			r.expand(lasting, event, false)
		}
	}
}

// completeUnreachable has the events without recipients completed, and returns the others.
func (r *Relay) completeUnreachable(ctx context.Context, batch []dispatch.EventID) []dispatch.EventID {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	none, err := r.options.Outbox.WithoutRecipients(ctx, batch)
	if err != nil {
		r.options.Log.Warn("recipients of events not read; each event is expanded", "events", len(batch), "error", err)
		return batch
	}
	for _, event := range none {
		enqueue(r, r.completed, event)
	}
	return slices.DeleteFunc(batch, func(event dispatch.EventID) bool { return slices.Contains(none, event) })
}

// expandEach expands events until ctx ends. Late says that this process may not have committed them.
func (r *Relay) expandEach(ctx, lasting context.Context, events <-chan dispatch.EventID, late bool) {
	for {
		select {
		case event := <-events:
			r.expand(lasting, event, late)
		case <-ctx.Done():
			return
		}
	}
}

// completeEvents completes events without recipients, many together, until ctx ends; lasting bounds its statements.
func (r *Relay) completeEvents(ctx, lasting context.Context) {
	interval := time.NewTimer(completeInterval)
	defer interval.Stop()
	for ctx.Err() == nil {
		var batch []dispatch.EventID
		select {
		case first := <-r.completed:
			batch = append(batch, first)
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
			r.complete(lasting, batch)
		}
	}
}

func (r *Relay) complete(ctx context.Context, batch []dispatch.EventID) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := r.options.Outbox.CompleteEvents(ctx, batch); err != nil {
		r.expandFailed.Store(true)
		r.options.Log.Warn("events not completed; a relay will expand them when they are released", "events", len(batch), "error", err)
	}
}
