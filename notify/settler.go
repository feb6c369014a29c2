package notify

import (
	"context"
	"log/slog"
	"time"

	"firsttap/outbox"
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
	outbox  Outbox
	channel *channel
	log     *slog.Logger
	queue   chan settlement
}

// settlement is what is to be written of a push, and whether it was an attempt of the channel's.
type settlement struct {
	outbox.SendResult
	attempted bool
}

func newSettler(o Outbox, c *channel, log *slog.Logger) *settler {
	return &settler{outbox: o, channel: c, log: log, queue: make(chan settlement, settleQueue)}
}

// add hands over what came of one attempt of the channel's. It blocks while the queue is full.
func (s *settler) add(settled outbox.SendResult) { s.queue <- settlement{settled, true} }

// uncounted hands over a push that was not attempted, or not by the channel. It blocks while the queue is full.
func (s *settler) uncounted(settled outbox.SendResult) { s.queue <- settlement{settled, false} }

// finish has run write what is left and end. Nothing may be added afterwards.
func (s *settler) finish() { close(s.queue) }

// run writes until finish.
func (s *settler) run(ctx context.Context) {
	for {
		first, ok := <-s.queue
		if !ok {
			return
		}
		batch, attempted, open := s.gather(first)
		s.write(ctx, batch)
		s.channel.settled(attempted)
		if !open {
			return
		}
	}
}

// gather collects what comes within settleEvery of the first, and counts what was attempted.
func (s *settler) gather(first settlement) (batch []outbox.SendResult, attempted int, open bool) {
	take := func(next settlement) {
		batch = append(batch, next.SendResult)
		if next.attempted {
			attempted++
		}
	}
	take(first)
	t := time.NewTimer(settleEvery)
	defer t.Stop()
	for len(batch) < settleAtOnce {
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
func (s *settler) write(ctx context.Context, batch []outbox.SendResult) {
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
