package service

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"firsttap/dispatch"
)

// AttemptStore keeps taps.
type AttemptStore interface {
	AddAttempts(ctx context.Context, taps []dispatch.Attempt) error
}

const (
	// ledgerQueue bounds the taps that are not written yet. Taps beyond it are counted and not kept: a ledger must not
	// keep anyone waiting.
	ledgerQueue  = 16384
	ledgerEvery  = 200 * time.Millisecond
	ledgerAtOnce = 1000
	// ledgerTries is how often taps are offered to a database that is away, a second apart.
	ledgerTries = 5
	ledgerTime  = 2 * time.Second
)

// Ledger keeps every tap on Accept, written behind the answer: a loser's answer costs no SQL. Safe for concurrent use.
type Ledger struct {
	store   AttemptStore
	log     *slog.Logger
	queue   chan dispatch.Attempt
	dropped atomic.Int64
}

// NewLedger returns a ledger that Run writes.
func NewLedger(store AttemptStore, log *slog.Logger) *Ledger {
	return &Ledger{store: store, log: log, queue: make(chan dispatch.Attempt, ledgerQueue)}
}

// Note keeps a tap that arrived at that time and was answered with err. It never blocks.
func (l *Ledger) Note(tap Tap, arrived time.Time, err error) {
	result, ok := dispatch.ResultOf(err)
	if !ok {
		return
	}
	select {
	case l.queue <- dispatch.Attempt{Dispatch: tap.Dispatch, Round: tap.Round, Driver: tap.Driver, Result: result, At: arrived}:
	default:
		l.dropped.Add(1)
	}
}

// Dropped is how many taps were not kept.
func (l *Ledger) Dropped() int64 { return l.dropped.Load() }

// Run writes until ctx ends, and then what is left.
func (l *Ledger) Run(ctx context.Context) {
	tick := time.NewTicker(ledgerEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.writeAll(ctx)
		case <-ctx.Done():
			l.writeAll(ctx)
			return
		}
	}
}

// writeAll writes what is in the queue now.
func (l *Ledger) writeAll(ctx context.Context) {
	for n := len(l.queue); n > 0; {
		batch := make([]dispatch.Attempt, min(n, ledgerAtOnce))
		for i := range batch {
			batch[i] = <-l.queue
			batch[i].ID = dispatch.NewAttemptID(batch[i].At)
		}
		n -= len(batch)
		l.write(ctx, batch)
	}
}

func (l *Ledger) write(ctx context.Context, batch []dispatch.Attempt) {
	for try := 1; ; try++ {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), ledgerTime)
		err := l.store.AddAttempts(bounded, batch)
		cancel()
		if err == nil {
			return
		}
		if try == ledgerTries || ctx.Err() != nil {
			l.dropped.Add(int64(len(batch)))
			l.log.Error("taps were not kept", "taps", len(batch), "error", err)
			return
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}
