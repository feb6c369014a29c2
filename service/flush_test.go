package service

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
)

// flushed counts what a ledger writes.
type flushed struct {
	taps, writes atomic.Int64
	release      chan struct{} // holds each write until it is closed, if not nil
}

func (c *flushed) AddAttempts(_ context.Context, taps []dispatch.Attempt) error {
	if c.release != nil {
		<-c.release
	}
	c.writes.Add(1)
	c.taps.Add(int64(len(taps)))
	return nil
}

// keep runs a ledger over the store until the returned function is called.
func keep(c AttemptStore) (l *Ledger, stop func()) {
	l = NewLedger(c, "here", quiet)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	return l, func() { cancel(); running.Wait() }
}

// Whoever flushes finds everything written that was noted before, and many who do cost one write.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &flushed{}
		l, stop := keep(c)
		defer stop()
		for range 300 {
			l.Record(t.Context(), Tap{Round: 1}, time.Now(), nil)
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if !l.Flush(t.Context()) || c.taps.Load() != 300 {
					t.Errorf("%d taps are written", c.taps.Load())
				}
			})
		}
		all.Wait()
		if n := c.writes.Load(); n != 1 {
			t.Errorf("%d writes", n)
		}
	})
}

// Nobody waits for a ledger longer than they want to.
func TestFlushOfALedgerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &flushed{release: make(chan struct{})}
		l, stop := keep(c)
		l.Record(t.Context(), Tap{Round: 1}, time.Now(), nil)
		for range 2 { // the first is taken and not answered, the second is not taken
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			if l.Flush(ctx) || time.Since(began) != time.Second {
				t.Errorf("after %s", time.Since(began))
			}
			cancel()
		}
		close(c.release)
		if !l.Flush(t.Context()) || c.taps.Load() != 1 {
			t.Errorf("%d taps are written", c.taps.Load())
		}
		stop()
	})
}

// A tap is kept with who answered it and from which app it came, in the round that was won.
func TestWhereATapCameFrom(t *testing.T) {
	p := newPlace(t)
	a, _, stop := p.keeping()
	ctx := dispatch.WithCaller(t.Context(), dispatch.Caller{Actor: "drv_1", App: "3.1"})
	if _, err := a.Accept(ctx, Tap{Dispatch: p.dispatch(), Driver: p.drivers(1)[0]}); err != nil {
		t.Fatal(err)
	}
	stop()
	if n := p.count("attempts WHERE instance = 'here' AND app_version = '3.1' AND round = 1 AND result = 'SUCCESS'"); n != 1 {
		t.Errorf("%d taps from there", n)
	}
}
