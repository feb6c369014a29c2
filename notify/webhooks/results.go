package webhooks

import (
	"context"
	"log/slog"
	"time"

	"firsttap/webhook"
)

const (
	// resultInterval is how long a result may wait to be recorded with others: a process that is killed leaves its delivery to be sent again.
	resultInterval = 10 * time.Millisecond
	writeTimeout   = 5 * time.Second
	writeRetry     = 200 * time.Millisecond
	// leaseEnd is how long before the end of its lease a result is given up: another process may send the delivery then.
	leaseEnd = time.Second
)

// result is what came of a lease. Unsent says that the endpoint has nothing to do with it: the lease is released.
type result struct {
	webhook.Result
	unsent bool
}

// resultWriter records the results of attempts, many in one transaction, and releases the leases of what was not sent.
type resultWriter struct {
	outbox Outbox
	log    *slog.Logger
	// recorded is called with results that are recorded or given up, and with the endpoints that they paused.
	recorded func([]result, []webhook.Endpoint)
	queue    chan result
}

func newResultWriter(o Outbox, log *slog.Logger, recorded func([]result, []webhook.Endpoint)) *resultWriter {
	return &resultWriter{outbox: o, log: log, recorded: recorded, queue: make(chan result, maxInFlight)}
}

// add hands over a result. It does not block: the queue has room for each delivery that is leased.
func (w *resultWriter) add(r result) { w.queue <- r }

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
func (w *resultWriter) collect(first result) []result {
	batch := []result{first}
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

// write records the batch. It tries again until the first lease of the batch is about to end, or ctx has ended.
func (w *resultWriter) write(ctx context.Context, batch []result) (paused []webhook.Endpoint) {
	var sent []webhook.Result
	var unsent []webhook.Lease
	end := batch[0].Lease.LeasedUntil
	for _, r := range batch {
		if end.After(r.Lease.LeasedUntil) {
			end = r.Lease.LeasedUntil
		}
		if r.unsent {
			unsent = append(unsent, r.Lease)
		} else {
			sent = append(sent, r.Result)
		}
	}
	end = end.Add(-leaseEnd)
	if len(sent) > 0 {
		const failure = "results of webhook deliveries not recorded; they may be sent again when their leases end"
		w.retry(ctx, end, failure, len(sent), func(ctx context.Context) error {
			more, err := w.outbox.CompleteDeliveries(ctx, sent)
			paused = append(paused, more...) // also with an error: some of the results may be recorded
			return err
		})
	}
	if len(unsent) > 0 {
		const failure = "leased webhook deliveries not released; they will be sent when their leases end"
		w.retry(ctx, end, failure, len(unsent), func(ctx context.Context) error {
			return w.outbox.ReleaseDeliveries(ctx, unsent)
		})
	}
	return paused
}

// retry calls write until it succeeds, and once at least. After end, or once ctx has ended, it logs that it gave up.
func (w *resultWriter) retry(ctx context.Context, end time.Time, failure string, deliveries int, write func(context.Context) error) {
	for {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
		err := write(bounded)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) || ctx.Err() != nil {
			w.log.Error(failure, "deliveries", deliveries, "error", err)
			return
		}
		sleep(ctx, writeRetry)
	}
}
