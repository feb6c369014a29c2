package notify

import (
	"context"
	"log/slog"
	"time"

	"firsttap/dispatch"
)

const (
	// settleEvery is how long what came of an attempt is kept: a process that is killed leaves it to be sent again.
	settleEvery  = 10 * time.Millisecond
	settleAtOnce = 256
	// settleQueue bounds what waits to be written. Attempts wait where it is full, and with them the channel.
	settleQueue = 2048
	settleTime  = 5 * time.Second
	settleRetry = 200 * time.Millisecond
)

// settler writes what came of attempts, many with one statement.
type settler struct {
	outbox Outbox
	log    *slog.Logger
	queue  chan dispatch.Settled
	last   chan struct{}
}

func newSettler(o Outbox, log *slog.Logger) *settler {
	return &settler{outbox: o, log: log, queue: make(chan dispatch.Settled, settleQueue), last: make(chan struct{})}
}

// add hands over what came of one attempt. It blocks while the queue is full.
func (s *settler) add(settled dispatch.Settled) { s.queue <- settled }

// finish has run write what is left and end. Nothing may be added afterwards.
func (s *settler) finish() { close(s.queue) }

// run writes until finish.
func (s *settler) run(ctx context.Context) {
	for {
		first, ok := <-s.queue
		if !ok {
			return
		}
		batch, open := s.gather(first)
		s.write(ctx, batch)
		if !open {
			return
		}
	}
}

// gather collects what comes within settleEvery of the first.
func (s *settler) gather(first dispatch.Settled) (batch []dispatch.Settled, open bool) {
	batch = append(batch, first)
	t := time.NewTimer(settleEvery)
	defer t.Stop()
	for len(batch) < settleAtOnce {
		select {
		case next, ok := <-s.queue:
			if !ok {
				return batch, false
			}
			batch = append(batch, next)
		case <-t.C:
			return batch, true
		}
	}
	return batch, true
}

// write tries until the batch is written, or its leases are about to end: then it is sent again.
func (s *settler) write(ctx context.Context, batch []dispatch.Settled) {
	for end := time.Now().Add(settleGivesUp); ; {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
		err := s.outbox.Settle(bounded, batch)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) || ctx.Err() != nil {
			s.log.Error("what was sent can't be written down, it may be sent again", "notifications", len(batch), "error", err)
			return
		}
		t := time.NewTimer(settleRetry)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// settleGivesUp is when the lease of what was sent has ended.
const settleGivesUp = 15 * time.Second
