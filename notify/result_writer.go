package notify

import (
	"context"
	"log/slog"
	"time"

	"firsttap/outbox"
)

const (
	// resultInterval is how long a result may wait to be recorded: a process that is killed leaves its push to be sent again.
	resultInterval = 10 * time.Millisecond
	resultBatch    = 256
	// resultQueue bounds the results that wait. While it is full, attempts wait to hand theirs over.
	resultQueue  = 2048
	writeTimeout = 5 * time.Second
	writeRetry   = 200 * time.Millisecond
	// writePatience is how long the writer repeats a write that fails. If the lease of a push ends before, the push is sent again.
	writePatience = 15 * time.Second
)

// resultWriter records the results of attempts, many with one statement.
type resultWriter struct {
	outbox   Outbox
	throttle *throttle
	log      *slog.Logger
	queue    chan result
}

// result is the result of a push. Throttled says that its attempt counts as unrecorded in the throttle.
type result struct {
	outbox.SendResult
	throttled bool
}

func newResultWriter(o Outbox, t *throttle, log *slog.Logger) *resultWriter {
	return &resultWriter{outbox: o, throttle: t, log: log, queue: make(chan result, resultQueue)}
}

// add hands over the result of an attempt that went through the throttle. It blocks while the queue is full.
func (w *resultWriter) add(r outbox.SendResult) { w.queue <- result{r, true} }

// addUncounted hands over the result of a push that was not attempted, or not through the throttle. It blocks while the
// queue is full.
func (w *resultWriter) addUncounted(r outbox.SendResult) { w.queue <- result{r, false} }

// finish makes run return after it has written the queue. Nothing may be added afterwards.
func (w *resultWriter) finish() { close(w.queue) }

// run writes until finish.
func (w *resultWriter) run(ctx context.Context) {
	for open := true; open; {
		var queued []result
		queued, open = nextBatch(w.queue, resultBatch, resultInterval)
		if len(queued) == 0 {
			return
		}
		results, throttled := make([]outbox.SendResult, len(queued)), 0
		for i, r := range queued {
			results[i] = r.SendResult
			if r.throttled {
				throttled++
			}
		}
		w.write(ctx, results)
		w.throttle.recorded(throttled)
	}
}

// nextBatch waits for a value and returns it with those that follow within d, up to limit. Open is false once the queue is
// closed.
func nextBatch[T any](queue <-chan T, limit int, d time.Duration) (batch []T, open bool) {
	first, open := <-queue
	if !open {
		return nil, false
	}
	batch = append(batch, first)
	t := time.NewTimer(d)
	defer t.Stop()
	for len(batch) < limit {
		select {
		case next, open := <-queue:
			if !open {
				return batch, false
			}
			batch = append(batch, next)
		case <-t.C:
			return batch, true
		}
	}
	return batch, true
}

// write retries until the batch is recorded, for writePatience at most: then the pushes are sent again.
func (w *resultWriter) write(ctx context.Context, batch []outbox.SendResult) {
	for end := time.Now().Add(writePatience); ; {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
		err := w.outbox.RecordResults(bounded, batch)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) || ctx.Err() != nil {
			w.log.Error("results of pushes not recorded; the pushes may be sent again when their leases expire",
				"notifications", len(batch), "error", err)
			return
		}
		t := time.NewTimer(writeRetry)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}
