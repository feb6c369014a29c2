package notify

import (
	"context"
	"log/slog"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
)

const (
	// resultInterval is how long a result may wait to be recorded: a process that is killed leaves its push to be sent again.
	resultInterval = 10 * time.Millisecond
	// completeInterval is how long the completion of an event may wait for a result, or for others: each write is durable.
	completeInterval = 200 * time.Millisecond
	// resultBatch and completeBatch bound one write.
	resultBatch   = 256
	completeBatch = 1024
	// resultQueue bounds the results that wait. While it is full, attempts wait to hand theirs over.
	resultQueue  = 2048
	writeTimeout = 5 * time.Second
	writeRetry   = 200 * time.Millisecond
	// writePatience is how long the writer repeats a write that fails. If the lease of a push ends before, the push is sent again.
	writePatience = 15 * time.Second
)

// resultWriter records the results of attempts and completes events, many with one write.
type resultWriter struct {
	outbox   Outbox
	throttle *throttle
	log      *slog.Logger
	queue    chan result
	expanded <-chan dispatch.EventID // events to complete: all of their pushes are written
}

// result is the result of a push. Throttled says that its attempt counts as unrecorded in the throttle.
type result struct {
	outbox.SendResult
	throttled bool
}

func newResultWriter(o Outbox, expanded <-chan dispatch.EventID, t *throttle, log *slog.Logger) *resultWriter {
	return &resultWriter{outbox: o, throttle: t, log: log, queue: make(chan result, resultQueue), expanded: expanded}
}

// add hands over the result of an attempt that went through the throttle. It blocks while the queue is full.
func (w *resultWriter) add(r outbox.SendResult) { w.queue <- result{r, true} }

// addUncounted hands over the result of a push that was not attempted, or not through the throttle. It blocks while the
// queue is full.
func (w *resultWriter) addUncounted(r outbox.SendResult) { w.queue <- result{r, false} }

// finish makes run return after it has written the queues. Nothing may be added afterwards.
func (w *resultWriter) finish() { close(w.queue) }

// run writes until finish.
func (w *resultWriter) run(ctx context.Context) {
	for open := true; open; {
		var results []outbox.SendResult
		var events []dispatch.EventID
		var throttled int
		results, events, throttled, open = w.nextBatch()
		if len(results)+len(events) > 0 {
			w.write(ctx, results, events)
			w.throttle.recorded(throttled)
		}
	}
}

// nextBatch waits for a result or an event, and returns it with those that follow in the time that it may wait. Throttled counts the
// results that are so. Open is false after finish: then it returns all that is left of the events.
func (w *resultWriter) nextBatch() (results []outbox.SendResult, events []dispatch.EventID, throttled int, open bool) {
	var enough <-chan time.Time
	for len(results) < resultBatch && len(events) < completeBatch {
		select {
		case r, open := <-w.queue:
			if !open {
				for range len(w.expanded) {
					events = append(events, <-w.expanded)
				}
				return results, events, throttled, false
			}
			if len(results) == 0 {
				enough = time.After(resultInterval)
			}
			results = append(results, r.SendResult)
			if r.throttled {
				throttled++
			}
		case event := <-w.expanded:
			if enough == nil {
				enough = time.After(completeInterval)
			}
			events = append(events, event)
		case <-enough:
			return results, events, throttled, true
		}
	}
	return results, events, throttled, true
}

// write retries until the batch is recorded, for writePatience at most: then the pushes are sent again, and the events expanded again.
func (w *resultWriter) write(ctx context.Context, results []outbox.SendResult, events []dispatch.EventID) {
	for end := time.Now().Add(writePatience); ; {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
		err := w.outbox.RecordResults(bounded, results, events)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) || ctx.Err() != nil {
			w.log.Error("results of pushes not recorded; the pushes may be sent again when their leases expire",
				"notifications", len(results), "events", len(events), "error", err)
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
