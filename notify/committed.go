package notify

import (
	"context"
	"slices"
	"sync"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
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

// expandTimeout bounds one call that expands events.
const expandTimeout = 10 * time.Second

// expandEach expands the events of a queue, one by one, until ctx ends. Late says that this process may not have committed them.
func (r *Relay) expandEach(ctx, lasting context.Context, events <-chan dispatch.EventID, late bool) {
	for {
		select {
		case event := <-events:
			r.expand(lasting, []dispatch.EventID{event}, late)
		case <-ctx.Done():
			return // Run releases the others
		}
	}
}

// expandUrgent expands the urgent events until ctx ends, those that wait together by one call. Only one goroutine may call it.
func (r *Relay) expandUrgent(ctx, lasting context.Context) {
	var next time.Time
	for {
		var batch []dispatch.EventID
		select {
		case event := <-r.urgent:
			batch = append(batch, event)
		case <-ctx.Done():
			return // Run releases the others
		}
		if len(r.urgent) < urgentBatch-1 {
			time.Sleep(time.Until(next)) // most events find the database idle, and do not wait
		}
		next = time.Now().Add(gather)
		for range min(len(r.urgent), urgentBatch-1) {
			batch = append(batch, <-r.urgent)
		}
		r.expand(lasting, batch, false)
	}
}

// failedEvents are events that this process has failed to expand, and leases still. Safe for concurrent use.
type failedEvents struct {
	mu  sync.Mutex
	ids []dispatch.EventID
}

// maxFailed bounds them: the leases of the others end by themselves.
const maxFailed = 1000

func (f *failedEvents) any() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ids) > 0
}

func (f *failedEvents) add(events []dispatch.EventID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids = append(f.ids, events[:min(len(events), maxFailed-len(f.ids))]...)
}

func (f *failedEvents) take() (events []dispatch.EventID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	events, f.ids = f.ids, nil
	return events
}

// expand writes the pushes of events to the outbox and makes ready those that it leases, as soon as each large event is written. Late
// says that this process may not have committed the events itself.
func (r *Relay) expand(ctx context.Context, events []dispatch.EventID, late bool) {
	for len(events) > 0 {
		events = r.expandSome(ctx, events, late)
	}
}

// expandSome expands the first of the events, and returns the others.
func (r *Relay) expandSome(ctx context.Context, events []dispatch.EventID, late bool) (others []dispatch.EventID) {
	ctx, cancel := context.WithTimeout(ctx, expandTimeout)
	defer cancel()
	places := r.throttle.reserve(committedBatch, aheadCommitted, time.Now())
	x, err := r.options.Outbox.Expand(ctx, events, places)
	r.throttle.release(places - len(x.Pushes))
	if err != nil {
		failed := slices.DeleteFunc(slices.Clone(events), func(id dispatch.EventID) bool {
			return slices.Contains(x.Rest, id) || slices.ContainsFunc(x.Events, func(e outbox.Expanded) bool { return e.Event.ID == id })
		})
		r.failed.add(failed)
		r.options.Log.Error("events not expanded; they will be retried", "events", len(failed), "error", err)
	}
	superseding := map[dispatch.ID]*dispatch.Dispatch{}
	for i := range x.Events {
		e := &x.Events[i]
		if late {
			r.options.Publish(e.Dispatch, []dispatch.Event{e.Event})
		}
		if e.Event.Type != dispatch.EventCreated && e.Event.Type != dispatch.EventOpened {
			superseding[e.Dispatch.ID] = &e.Dispatch
		}
	}
	r.metrics.countDropped("superseded", x.Dropped)
	r.releaseSuperseded(superseding)
	r.ready.add(fromExpansion, x.Pushes)
	if len(superseding) > 0 {
		r.leasing.Lock() // a lease under way may have read its offers before the event
		r.releaseSuperseded(superseding)
		r.leasing.Unlock()
	}
	for i := range x.Events {
		if e := &x.Events[i]; e.More {
			enqueue(r, r.committed, e.Event.ID) // behind the other events
		} else {
			enqueue(r, r.completed, e.Event.ID)
		}
	}
	if x.Unleased > 0 {
		r.pushesDue.Set()
		r.options.WakeOthers()
	}
	return x.Rest
}
