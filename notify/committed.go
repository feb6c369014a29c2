package notify

import (
	"context"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
)

const (
	// committedQueue bounds the committed events that wait here for their expansion. Others wait until their lease ends.
	committedQueue = 4096
	// lookBatch bounds the events of one look for recipients: those that have some are expanded one after the other.
	lookBatch   = 32
	lookTimeout = time.Second
	// completeInterval is how long the completion of an event may wait for others: each is a durable write.
	completeInterval = 200 * time.Millisecond
	// completeQueue bounds the completions that wait. An event that does not fit is expanded when its lease has ended.
	completeQueue = 4096
	// maxUnreachable bounds the drivers without a device that are remembered.
	maxUnreachable = 4096
)

// committedEvent is an event that this process has committed and leases.
type committedEvent struct {
	id     dispatch.EventID
	driver dispatch.DriverID // that it is about; "" for none
	// nobody says that the event has no recipients for sure, notified that its commit wrote pushes, most likely all.
	nobody, notified bool
}

// Room returns how many pushes OnCommit can take now. It is 0 while the Relay is not running.
func (r *Relay) Room() int {
	if !r.running.Load() {
		return 0
	}
	return r.throttle.roomFor(committedBatch, aheadCommitted, time.Now())
}

// OnCommit hands over events that this process committed, and pushes of one of them, with leases that it wrote in the same
// transaction. It never blocks.
func (r *Relay) OnCommit(_ dispatch.Dispatch, events []dispatch.Event, pushes []outbox.Push) {
	r.throttle.take(len(pushes))
	r.ready.add(pushes)
	for _, e := range events {
		deliveries := e.Deliveries()
		switch {
		case len(pushes) > 0 && pushes[0].Event == e.ID:
			enqueue(r, r.completed, committedEvent{id: e.ID, notified: true})
		case e.PushAt.After(e.At):
			// This process does not lease it.
		case len(deliveries) == 0:
			enqueue(r, r.completed, committedEvent{id: e.ID, nobody: true})
		case deliveries[0].Audience != dispatch.AudienceClaimant:
			enqueue(r, r.committed, e.ID)
		case r.unreachable.Contains(e.Driver) && len(r.completed) < cap(r.completed):
			enqueue(r, r.completed, committedEvent{id: e.ID, driver: e.Driver})
		default:
			enqueue(r, r.urgent, committedEvent{id: e.ID, driver: e.Driver})
		}
	}
}

// enqueue adds an event to a queue. If the queue is full, the event waits until its lease ends.
func enqueue[T any](r *Relay, queue chan<- T, event T) {
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
		var batch []committedEvent
		select {
		case event := <-r.urgent:
			batch = append(batch, event)
		case <-ctx.Done():
			return
		}
		for range min(len(r.urgent), lookBatch-1) {
			batch = append(batch, <-r.urgent)
		}
		if len(batch) > 1 {
			batch = r.completeUnreachable(lasting, batch)
		}
		for i, event := range batch {
			if i > 0 && ctx.Err() != nil {
				return // Run releases the others
			}
			r.expand(lasting, event.id, false)
		}
	}
}

// completeUnreachable has the events without recipients completed, and returns the others.
func (r *Relay) completeUnreachable(ctx context.Context, batch []committedEvent) []committedEvent {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	none := r.without(ctx, batch, r.options.Outbox.WithoutRecipients)
	return slices.DeleteFunc(batch, func(e committedEvent) bool {
		if none[e.id] {
			r.remember(e.driver)
			enqueue(r, r.completed, committedEvent{id: e.id, nobody: true})
		}
		return none[e.id]
	})
}

// remember records that the driver, "" for none, had no device.
func (r *Relay) remember(driver dispatch.DriverID) {
	if driver != "" {
		r.unreachable.Add(driver, struct{}{})
	}
}

// without returns those of the events that find finds: nobody is left to be notified of them.
func (r *Relay) without(ctx context.Context, events []committedEvent,
	find func(context.Context, []dispatch.EventID) ([]dispatch.EventID, error),
) map[dispatch.EventID]bool {
	if len(events) == 0 {
		return nil
	}
	ids := make([]dispatch.EventID, len(events))
	for i := range events {
		ids[i] = events[i].id
	}
	found, err := find(ctx, ids)
	if err != nil {
		r.options.Log.Warn("recipients of events not read; each event is expanded", "events", len(events), "error", err)
	}
	none := make(map[dispatch.EventID]bool, len(found))
	for _, id := range found {
		none[id] = true
	}
	return none
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
		var batch []committedEvent
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

// complete completes the events of the batch that have no recipients, or none without a notification, and has the others expanded.
func (r *Relay) complete(ctx context.Context, batch []committedEvent) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var done []dispatch.EventID
	var urgent, notified []committedEvent
	for _, e := range batch {
		switch {
		case e.nobody:
			done = append(done, e.id)
		case e.notified:
			notified = append(notified, e)
		default:
			urgent = append(urgent, e)
		}
	}
	none := r.without(ctx, urgent, r.options.Outbox.WithoutRecipients)
	for _, e := range urgent {
		if none[e.id] {
			done = append(done, e.id)
			continue
		}
		r.unreachable.Remove(e.driver)
		enqueue(r, r.urgent, e)
	}
	all := r.without(ctx, notified, r.options.Outbox.Notified)
	for _, e := range notified {
		if all[e.id] {
			done = append(done, e.id)
			continue
		}
		enqueue(r, r.committed, e.id)
	}
	if len(done) == 0 {
		return
	}
	if err := r.options.Outbox.CompleteEvents(ctx, done); err != nil {
		r.expandFailed.Store(true)
		r.options.Log.Warn("events not completed; a relay will expand them when they are released", "events", len(done), "error", err)
	}
}
