package notify

import (
	"context"
	"maps"
	"slices"
	"time"

	"firsttap/dispatch"
)

const (
	// committedQueue bounds the committed events that wait here for their expansion. Others wait until their lease ends.
	committedQueue = 4096
	// completeInterval is how long the completion of an event may wait for others: each is a durable write.
	completeInterval = 200 * time.Millisecond
	// completeQueue bounds the completions that wait. An event that does not fit is expanded when its lease has ended.
	completeQueue = 4096
	// maxUnreachable bounds the drivers without a device that are remembered.
	maxUnreachable = 4096
)

// completion is an event that most likely nobody is to be told about.
type completion struct {
	event dispatch.EventID
	// driver is the driver that the event is about, and who had no device lately; "" if the event's type is never told.
	driver dispatch.DriverID
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
			offer(r, r.completed, completion{event: e.ID})
		case deliveries[0].Audience != dispatch.AudienceClaimant:
			offer(r, r.committed, e.ID)
		case r.unreachable.Contains(e.Driver):
			offer(r, r.completed, completion{e.ID, e.Driver})
		default:
			offer(r, r.urgent, e.ID)
		}
	}
}

// offer adds to a queue, unless it is full.
func offer[T any](r *Relay, queue chan<- T, event T) {
	select {
	case queue <- event:
	default:
		r.metrics.overflow.Inc()
	}
}

// expandCommitted expands events that this process committed, until ctx ends.
func (r *Relay) expandCommitted(ctx, lasting context.Context, events <-chan dispatch.EventID) {
	for {
		select {
		case event := <-events:
			r.expand(lasting, event, false)
		case <-ctx.Done():
			return
		}
	}
}

// completeEvents completes events that nobody is to be told about, many together, until ctx ends; lasting bounds its statements.
func (r *Relay) completeEvents(ctx, lasting context.Context) {
	interval := time.NewTimer(completeInterval)
	defer interval.Stop()
	for ctx.Err() == nil {
		var batch []completion
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

// complete completes the events of the batch that nobody is to be told about, and has the others expanded.
func (r *Relay) complete(ctx context.Context, batch []completion) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var done []dispatch.EventID
	asked := map[dispatch.EventID]dispatch.DriverID{}
	for _, c := range batch {
		if c.driver == "" {
			done = append(done, c.event)
		} else {
			asked[c.event] = c.driver
		}
	}
	if len(asked) > 0 {
		none, err := r.options.Outbox.WithoutRecipients(ctx, slices.Collect(maps.Keys(asked)))
		if err != nil {
			r.options.Log.Warn("recipients of events not read; each event is expanded", "events", len(asked), "error", err)
		}
		for _, event := range none {
			done = append(done, event)
			delete(asked, event)
		}
	}
	for event, driver := range asked {
		r.unreachable.Remove(driver)
		offer(r, r.urgent, event)
	}
	if len(done) == 0 {
		return
	}
	if err := r.options.Outbox.CompleteEvents(ctx, done); err != nil {
		r.options.Log.Warn("events not completed; a relay will expand them when their leases have ended", "events", len(done), "error", err)
	}
}
