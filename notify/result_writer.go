package notify

import (
	"context"
	"log/slog"
	"time"

	"firsttap/outbox"
)

const (
	// resultInterval is how long what came of an attempt is kept: a process that is killed leaves it to be sent again.
	resultInterval = 10 * time.Millisecond
	resultBatch    = 256
	// resultQueue bounds what waits to be written. Attempts wait where it is full, and with them the channel.
	resultQueue  = 2048
	writeTimeout = 5 * time.Second
	writeRetry   = 200 * time.Millisecond
)

// resultWriter writes what came of attempts, many with one statement.
type resultWriter struct {
	outbox   Outbox
	throttle *throttle
	log      *slog.Logger
	queue    chan result
}

// result is what is to be written of a push, and whether it was an attempt of the channel's.
type result struct {
	outbox.SendResult
	attempted bool
}

func newResultWriter(o Outbox, c *throttle, log *slog.Logger) *resultWriter {
	return &resultWriter{outbox: o, throttle: c, log: log, queue: make(chan result, resultQueue)}
}

// add hands over what came of one attempt of the channel's. It blocks while the queue is full.
func (s *resultWriter) add(settled outbox.SendResult) { s.queue <- result{settled, true} }

// addUncounted hands over a push that was not attempted, or not by the channel. It blocks while the queue is full.
func (s *resultWriter) addUncounted(settled outbox.SendResult) { s.queue <- result{settled, false} }

// finish has run write what is left and end. Nothing may be added afterwards.
func (s *resultWriter) finish() { close(s.queue) }

// run writes until finish.
func (s *resultWriter) run(ctx context.Context) {
	for {
		first, ok := <-s.queue
		if !ok {
			return
		}
		batch, attempted, open := s.gather(first)
		s.write(ctx, batch)
		s.throttle.recorded(attempted)
		if !open {
			return
		}
	}
}

// gather collects what comes within settleEvery of the first, and counts what was attempted.
func (s *resultWriter) gather(first result) (batch []outbox.SendResult, attempted int, open bool) {
	take := func(next result) {
		batch = append(batch, next.SendResult)
		if next.attempted {
			attempted++
		}
	}
	take(first)
	t := time.NewTimer(resultInterval)
	defer t.Stop()
	for len(batch) < resultBatch {
		select {
		case next, ok := <-s.queue:
			if !ok {
				return batch, attempted, false
			}
			take(next)
		case <-t.C:
			return batch, attempted, true
		}
	}
	return batch, attempted, true
}

// write tries until the batch is written, or its leases are about to end: then it is sent again.
func (s *resultWriter) write(ctx context.Context, batch []outbox.SendResult) {
	for end := time.Now().Add(writePatience); ; {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
		err := s.outbox.Settle(bounded, batch)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) || ctx.Err() != nil {
			s.log.Error("what was sent can't be written down, it may be sent again", "notifications", len(batch), "error", err)
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

// writePatience is when the lease of what was sent has ended.
const writePatience = 15 * time.Second
