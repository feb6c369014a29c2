package notify

import (
	"context"
	"log/slog"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
)

const (
	// checkBatch bounds the events that are checked for recipients together.
	checkBatch = 64
	// completeInterval is how long the completion of an event without recipients may wait for others: each write is a durable one.
	completeInterval = 200 * time.Millisecond
	completeBatch    = 512
	// completeQueue bounds the completions that wait. The lease of an event that does not fit ends by itself.
	completeQueue = 4096
)

// OnCommit hands over events that this process committed, with leases that it wrote in the same transaction. It never
// blocks.
func (r *Relay) OnCommit(d dispatch.Dispatch, events []dispatch.Event) {
	for _, e := range events {
		to := r.committed
		if deliveries := e.Deliveries(); len(deliveries) > 0 && deliveries[0].Audience == dispatch.AudienceClaimant {
			to = r.urgent
		}
		r.enqueue(to, outbox.Committed{Event: e, Dispatch: d})
	}
}

func (r *Relay) enqueue(to chan<- outbox.Committed, e outbox.Committed) {
	select {
	case to <- e:
	default:
		r.metrics.overflow.Inc()
	}
}

// expandCommitted expands events that this process committed: those that arrive while others are expanded are checked for
// recipients together.
func (r *Relay) expandCommitted(ctx, lasting context.Context, queue <-chan outbox.Committed) {
	for {
		select {
		case first := <-queue:
			for _, event := range r.withRecipients(lasting, drain(queue, first, checkBatch)) {
				r.expand(lasting, event, false)
			}
		case <-ctx.Done():
			return
		}
	}
}

// drain returns first and what waits in the queue, up to limit.
func drain[T any](queue <-chan T, first T, limit int) []T {
	batch := []T{first}
	for len(batch) < limit {
		select {
		case next := <-queue:
			batch = append(batch, next)
		default:
			return batch
		}
	}
	return batch
}

// withRecipients returns the events that are to be expanded, and has the others completed. It looks for recipients only since an
// event had none, and until all have: a push need not wait for the look.
func (r *Relay) withRecipients(ctx context.Context, batch []outbox.Committed) (left []dispatch.EventID) {
	without := map[dispatch.EventID]bool{}
	if r.lookForRecipients.Load() {
		for _, id := range r.withoutRecipients(ctx, batch) {
			without[id] = true
			r.completed.add(id)
		}
		r.lookForRecipients.Store(len(without) > 0)
	}
	for i := range batch {
		if id := batch[i].Event.ID; !without[id] {
			left = append(left, id)
		}
	}
	return left
}

func (r *Relay) withoutRecipients(ctx context.Context, batch []outbox.Committed) []dispatch.EventID {
	ctx, cancel := context.WithTimeout(ctx, expandTimeout)
	defer cancel()
	none, err := r.options.Outbox.WithoutRecipients(ctx, batch)
	if err != nil {
		r.options.Log.Warn("recipients of events not read; each event is expanded", "events", len(batch), "error", err)
	}
	return none
}

// completer completes events without recipients, many with one statement.
type completer struct {
	outbox Outbox
	log    *slog.Logger
	queue  chan dispatch.EventID
}

func newCompleter(o Outbox, log *slog.Logger) *completer {
	return &completer{outbox: o, log: log, queue: make(chan dispatch.EventID, completeQueue)}
}

// add hands over an event. It never blocks.
func (c *completer) add(event dispatch.EventID) {
	select {
	case c.queue <- event:
	default:
	}
}

// finish makes run return after it has completed the queue. Nothing may be added afterwards.
func (c *completer) finish() { close(c.queue) }

// run completes events until finish.
func (c *completer) run(ctx context.Context) {
	for open := true; open; {
		var batch []dispatch.EventID
		if batch, open = nextBatch(c.queue, completeBatch, completeInterval); len(batch) == 0 {
			return
		}
		bounded, cancel := context.WithTimeout(ctx, writeTimeout)
		if err := c.outbox.CompleteEvents(bounded, batch); err != nil {
			c.log.Warn("events without recipients not completed; a relay will expand them when their leases expire", "events", len(batch), "error", err)
		}
		cancel()
	}
}
