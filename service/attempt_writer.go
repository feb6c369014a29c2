package service

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"firsttap/dispatch"
)

// AttemptStore stores attempts.
type AttemptStore interface {
	AddAttempts(ctx context.Context, taps []dispatch.Attempt) error
}

const (
	// maxQueuedAttempts bounds the attempts that are not written yet. Attempts beyond it are dropped and counted: the ledger
	// must not delay an answer.
	maxQueuedAttempts = 16384
	ledgerInterval    = 200 * time.Millisecond
	ledgerBatch       = 4096
	// ledgerTries is how often a batch is written to a database that is unavailable, a second apart.
	ledgerTries   = 5
	ledgerTimeout = 2 * time.Second
	// lastWrites is how long a stopping instance goes on trying.
	lastWrites = 6 * time.Second
	// flushTimeout is how long a receipt waits for the ledger.
	flushTimeout = time.Second
)

// AttemptWriter records every tap on Accept. It writes behind the answers, so that refusing a tap costs no SQL. Safe for concurrent
// use. Run must be running. The nil AttemptWriter records nothing.
type AttemptWriter struct {
	store    AttemptStore
	instance string
	log      *slog.Logger
	queue    chan dispatch.Attempt
	flush    chan chan struct{}
	dropped  atomic.Int64
}

// NewAttemptWriter returns an AttemptWriter for the taps on that instance.
func NewAttemptWriter(store AttemptStore, instance string, log *slog.Logger) *AttemptWriter {
	return &AttemptWriter{
		store: store, instance: instance, log: log,
		queue: make(chan dispatch.Attempt, maxQueuedAttempts), flush: make(chan chan struct{}),
	}
}

// Record queues the tap, which arrived at that time in the request of ctx and was answered with err. It never blocks.
func (l *AttemptWriter) Record(ctx context.Context, tap Tap, arrived time.Time, err error) {
	result, ok := dispatch.ResultOf(err)
	if !ok || l == nil {
		return
	}
	attempt := dispatch.Attempt{
		Dispatch: tap.Dispatch, Round: tap.Round, Driver: tap.Driver, Result: result, At: arrived,
		Instance: l.instance, AppVersion: dispatch.CallerFrom(ctx).App,
	}
	select {
	case l.queue <- attempt:
	default:
		l.dropped.Add(1)
	}
}

// Dropped counts the attempts that were not stored.
func (l *AttemptWriter) Dropped() int64 { return l.dropped.Load() }

// Flush waits until every attempt recorded before the call is stored or dropped. It reports false where ctx ends first.
// Many calls at once cost little more than one.
func (l *AttemptWriter) Flush(ctx context.Context) bool {
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

// written waits until this instance's recorded attempts are stored, and reports false where that is not known.
func (l *AttemptWriter) written(ctx context.Context) bool {
	if l == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return l.Flush(ctx)
}

// writtenElsewhere waits until other instances must have stored theirs, and reports false where ctx ends first.
func (l *AttemptWriter) writtenElsewhere(ctx context.Context) bool {
	if l == nil {
		return true
	}
	select {
	case <-time.After(2 * ledgerInterval): // the longest wait for the next write, and as much again for the write itself
		return true
	case <-ctx.Done():
		return false
	}
}

// Run writes the queued taps until ctx ends, and then those that are left. All flushes that wait share one write.
func (l *AttemptWriter) Run(ctx context.Context) {
	writing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWrites, cancel) })()
	tick := time.NewTicker(ledgerInterval)
	defer tick.Stop()
	for ended := false; !ended; {
		var waiting []chan struct{}
		select {
		case <-tick.C:
		case done := <-l.flush:
			waiting = append(waiting, done)
		case <-ctx.Done():
			ended = true
		}
		tick.Reset(ledgerInterval)
		waiting = append(waiting, l.waiting()...)
		l.writeAll(writing)
		for _, done := range waiting {
			close(done)
		}
	}
}

// waiting returns the flushes that wait at the moment.
func (l *AttemptWriter) waiting() (all []chan struct{}) {
	for {
		select {
		case done := <-l.flush:
			all = append(all, done)
		default:
			return all
		}
	}
}

func (l *AttemptWriter) writeAll(ctx context.Context) {
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

func (l *AttemptWriter) write(ctx context.Context, batch []dispatch.Attempt) {
	for try := 1; ; try++ {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), ledgerTimeout)
		err := l.store.AddAttempts(bounded, batch)
		cancel()
		if err == nil {
			return
		}
		if try == ledgerTries || ctx.Err() != nil {
			l.dropped.Add(int64(len(batch)))
			l.log.Error("attempts dropped after several tries; receipts and statistics will lack them", "attempts", len(batch),
				"error", err)
			return
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}
