package webhooks

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"firsttap/dispatch/webhook"
)

const (
	// resultInterval is how long a result may wait to be recorded with others. A process that is killed leaves its delivery to be sent
	// again.
	resultInterval = 10 * time.Millisecond
	writeTimeout   = 5 * time.Second
	writeRetry     = 200 * time.Millisecond
	// leaseEnd is how long before the end of its lease a result is given up: another process may send the delivery then.
	leaseEnd = time.Second
)

// resultWriter ends leases with their results, many in one transaction.
type resultWriter struct {
	outbox Outbox
	log    *slog.Logger
	// recorded is called with results that are recorded or given up, and with the endpoints that they paused.
	recorded func([]webhook.Result, []webhook.Endpoint)
	queue    chan webhook.Result
}

func newResultWriter(o Outbox, log *slog.Logger, recorded func([]webhook.Result, []webhook.Endpoint)) *resultWriter {
	return &resultWriter{outbox: o, log: log, recorded: recorded, queue: make(chan webhook.Result, maxInFlight)}
}

// add hands over a result. It does not block: the queue has room for each delivery that is leased.
func (w *resultWriter) add(r webhook.Result) { w.queue <- r }

// finish makes run return after it has written the queue. Nothing may be added afterwards.
func (w *resultWriter) finish() { close(w.queue) }

// run writes until finish. Once ctx has ended, each write is tried once only.
func (w *resultWriter) run(ctx context.Context) {
	for first := range w.queue {
		batch := w.collect(first)
		w.recorded(batch, w.write(ctx, batch))
	}
}

// collect returns the result with those that follow within resultInterval.
func (w *resultWriter) collect(first webhook.Result) []webhook.Result {
	batch := []webhook.Result{first}
	t := time.NewTimer(resultInterval)
	defer t.Stop()
	for len(batch) < maxBatch {
		select {
		case next, open := <-w.queue:
			if !open {
				return batch
			}
			batch = append(batch, next)
		case <-t.C:
			return batch
		}
	}
	return batch
}

// write records the batch, and returns the endpoints that this paused. It tries until the first lease of the batch is about to end, or ctx
// has ended, and once at least. If it gives up, the deliveries are sent again when their leases end.
func (w *resultWriter) write(ctx context.Context, batch []webhook.Result) (paused []webhook.Endpoint) {
	first := slices.MinFunc(batch, func(a, b webhook.Result) int { return a.Lease.LeasedUntil.Compare(b.Lease.LeasedUntil) })
	end := first.Lease.LeasedUntil.Add(-leaseEnd)
	for {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
		some, err := w.outbox.CompleteDeliveries(bounded, batch)
		cancel()
		paused = append(paused, some...) // also with an error: some of the results may be recorded
		if err == nil {
			return paused
		}
		if time.Now().After(end) || ctx.Err() != nil {
			w.log.Error("results of webhook deliveries not recorded; they may be sent again when their leases end",
				"deliveries", len(batch), "error", err)
			return paused
		}
		sleep(ctx, writeRetry)
	}
}
