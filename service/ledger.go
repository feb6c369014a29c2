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
	// maxQueuedAttempts bounds the taps that are not written yet. Taps beyond it are counted and not kept: a ledger must not
	// keep anyone waiting.
	maxQueuedAttempts = 16384
	ledgerInterval    = 200 * time.Millisecond
	ledgerBatch       = 1000
	// ledgerTries is how often taps are offered to a database that is away, a second apart.
	ledgerTries   = 5
	ledgerTimeout = 2 * time.Second
)

// Ledger keeps every tap on Accept, written behind the answer: a loser's answer costs no SQL. Safe for concurrent use.
type Ledger struct {
	store    AttemptStore
	instance string
	log      *slog.Logger
	queue    chan dispatch.Attempt
	flush    chan chan struct{}
	dropped  atomic.Int64
}

// NewLedger returns a ledger of the taps on that instance, which Run writes.
func NewLedger(store AttemptStore, instance string, log *slog.Logger) *Ledger {
	return &Ledger{
		store: store, instance: instance, log: log,
		queue: make(chan dispatch.Attempt, maxQueuedAttempts), flush: make(chan chan struct{}),
	}
}

// Record keeps a tap that arrived at that time, in the caller's request, and was answered with err. It never blocks.
func (l *Ledger) Record(ctx context.Context, tap Tap, arrived time.Time, err error) {
	result, ok := dispatch.ResultOf(err)
	if !ok {
		return
	}
	attempt := dispatch.Attempt{
		Dispatch: tap.Dispatch, Round: tap.Round, Driver: tap.Driver, Result: result, At: arrived,
		Instance: l.instance, AppVersion: dispatch.CallerOf(ctx).App,
	}
	select {
	case l.queue <- attempt:
	default:
		l.dropped.Add(1)
	}
}

// Dropped is how many taps were not kept.
func (l *Ledger) Dropped() int64 { return l.dropped.Load() }

// Flush returns when what was noted before has been written, or given up. It reports false where that is not known: ctx
// has ended, or nothing runs. Many at once cost little more than one.
func (l *Ledger) Flush(ctx context.Context) bool {
	done := make(chan struct{})
	select {
	case l.flush <- done:
	case <-ctx.Done():
		return false
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// Run writes until ctx ends, and then what is left.
func (l *Ledger) Run(ctx context.Context) {
	tick := time.NewTicker(ledgerInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.writeAll(ctx)
		case done := <-l.flush:
			l.writeAll(ctx)
			close(done)
		case <-ctx.Done():
			l.writeAll(ctx)
			return
		}
	}
}

// writeAll writes what is in the queue now.
func (l *Ledger) writeAll(ctx context.Context) {
	for n := len(l.queue); n > 0; {
		batch := make([]dispatch.Attempt, min(n, ledgerBatch))
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
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), ledgerTimeout)
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
