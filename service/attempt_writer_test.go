//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package service

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

// keep runs a ledger over c until stop, or until the test ends.
func keep(t testing.TB, c AttemptStore) (l *AttemptWriter, stop func()) {
	t.Helper()
	l = NewAttemptWriter(c, "here", quiet)
	return l, testkit.Run(t, l.Run)
}

// Every tap is stored with its result, even if the process ends right after. Those that wait for the writer are written together.
func TestEveryTapIsKept(t *testing.T) {
	p := newPlace(t)
	l := NewAttemptWriter(p, "here", quiet)
	a := NewAcceptor(AcceptorOptions{Claims: p, Attempts: l, Timeout: testkit.Patience, Log: quiet})
	drivers, id := p.drivers(30), p.dispatch()
	told := map[dispatch.AttemptResult]int{}
	var mu sync.Mutex
	testkit.Together(len(drivers), func(i int) {
		_, err := a.Accept(t.Context(), Tap{Dispatch: id, Driver: drivers[i], Round: i % 2}) // 0 is the current one: 1
		result, _ := dispatch.ResultOf(err)
		mu.Lock()
		defer mu.Unlock()
		told[result]++
	})
	a.mustFail(t, Tap{Dispatch: dispatch.NewID(time.Now()), Driver: drivers[0]}, dispatch.ErrNotFound)
	testkit.Run(t, l.Run)()
	if told[dispatch.AttemptWon] != 1 || told["ALREADY_TAKEN"] != 29 || l.Dropped() != 0 {
		t.Fatalf("%v, %d dropped", told, l.Dropped())
	}
	kept := map[dispatch.AttemptResult]int{}
	for _, tap := range p.taps(id) {
		if kept[tap.Result]++; tap.Round != 1 || (tap.Result == dispatch.AttemptWon) != (tap.Rank == 1) {
			t.Errorf("kept: %+v", tap)
		}
	}
	testkit.Equal(t, "kept taps", told, kept)
	p.mustCount(30, "taps WHERE count = 1")
}

// taps returns the kept taps on a dispatch.
func (p *place) taps(id dispatch.ID) []dispatch.AttemptRecord {
	p.t.Helper()
	taps, next, err := p.Attempts(p.t.Context(), id, 0, dispatch.Page{Limit: 100})
	if err != nil || next != "" {
		p.t.Fatalf("%q, %v", next, err)
	}
	return taps
}

// An outage that ends before the last try loses no attempt, and a longer one a batch. Attempts beyond the queue are counted, and no
// tap waits.
func TestLedgerIsBounded(t *testing.T) {
	for fails, lost := range map[int32]int64{ledgerTries - 1: 0, ledgerTries: ledgerBatch} {
		testkit.Bubble(t, func(t *testing.T) {
			c := &flushed{}
			c.fails.Store(fails)
			l := NewAttemptWriter(c, "here", quiet)
			for range maxQueuedAttempts + 10 {
				l.Record(t.Context(), Tap{Round: 1}, time.Now(), dispatch.ErrOfferStale)
			}
			if n := l.Dropped(); n != 10 {
				t.Errorf("%d taps were dropped, want 10", n)
			}
			testkit.Run(t, l.Run)
			pass(ledgerInterval + ledgerTries*time.Second)
			if stored, dropped := c.taps.Load(), l.Dropped(); stored != maxQueuedAttempts-lost || dropped != 10+lost {
				t.Errorf("after %d failures %d of %d attempts are stored and %d dropped", fails, stored, maxQueuedAttempts, dropped)
			}
		})
	}
}

// A stopping instance tries as often as one that runs to write what it has recorded.
func TestLedgerIsWrittenAtTheEnd(t *testing.T) {
	for fails, lost := range map[int32]int64{ledgerTries - 1: 0, ledgerTries: 1} {
		testkit.Bubble(t, func(t *testing.T) {
			c := &flushed{}
			c.fails.Store(fails)
			l := NewAttemptWriter(c, "here", quiet)
			stop := testkit.Run(t, l.Run)
			l.Record(t.Context(), Tap{Round: 1}, time.Now(), nil)
			began := time.Now()
			stop()
			if l.Dropped() != lost || c.taps.Load() != 1-lost || time.Since(began) != (ledgerTries-1)*time.Second {
				t.Errorf("after %d failures and %s %d taps are stored and %d dropped", fails, time.Since(began), c.taps.Load(), l.Dropped())
			}
		})
	}
}

// flushed counts a ledger's writes.
type flushed struct {
	taps, writes atomic.Int64
	fails        atomic.Int32  // how many writes are still to fail
	release      chan struct{} // holds each write until it is closed, if not nil
}

func (c *flushed) AddAttempts(_ context.Context, taps []dispatch.Attempt) error {
	if c.release != nil {
		<-c.release
	}
	if c.fails.Add(-1) >= 0 {
		return dispatch.ErrUnavailable
	}
	c.writes.Add(1)
	c.taps.Add(int64(len(taps)))
	return nil
}

// A flush writes everything that was recorded before, and concurrent flushes share a write.
func TestFlush(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := &flushed{}
		l, _ := keep(t, c)
		for range 300 {
			l.Record(t.Context(), Tap{Round: 1}, time.Now(), nil)
		}
		testkit.Together(50, func(int) {
			if !l.Flush(t.Context()) || c.taps.Load() != 300 {
				t.Errorf("%d taps are written", c.taps.Load())
			}
		})
		if n := c.writes.Load(); n != 1 {
			t.Errorf("%d writes", n)
		}
	})
}

// All flushes that arrive during a write share the next one, also if the process ends meanwhile.
func TestFlushesDuringAWrite(t *testing.T) {
	for _, ends := range []bool{false, true} {
		testkit.Bubble(t, func(t *testing.T) {
			c := &flushed{release: make(chan struct{})}
			l, stop := keep(t, c)
			l.Record(t.Context(), Tap{Round: 1}, time.Now(), nil)
			time.Sleep(ledgerInterval)
			synctest.Wait() // the first write has begun
			var flushes sync.WaitGroup
			for range 10 {
				l.Record(t.Context(), Tap{Round: 1}, time.Now(), nil)
				flushes.Go(func() {
					if !l.Flush(t.Context()) {
						t.Error("a flush has failed")
					}
				})
			}
			synctest.Wait()
			if ends {
				go stop()
				synctest.Wait()
			}
			close(c.release)
			flushes.Wait()
			if taps, writes := c.taps.Load(), c.writes.Load(); taps != 11 || writes != 2 {
				t.Errorf("%d taps in %d writes", taps, writes)
			}
		})
	}
}

// A flush ends with its context.
func TestFlushOfALedgerThatHangs(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := &flushed{release: make(chan struct{})}
		l, _ := keep(t, c)
		l.Record(t.Context(), Tap{Round: 1}, time.Now(), nil)
		for range 2 { // the ledger receives the first and does not answer it, and does not receive the second
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
	})
}

// An attempt has the instance, the app's version, and the round that was won.
func TestWhereATapCameFrom(t *testing.T) {
	p := newPlace(t)
	l, stop := keep(t, p)
	a := NewAcceptor(AcceptorOptions{Claims: p, Attempts: l, Timeout: testkit.Patience, Log: quiet})
	ctx := dispatch.WithCaller(t.Context(), dispatch.Caller{Actor: "drv_1", App: "3.1"})
	id := p.dispatch()
	must(t, errorOf(a.Accept(ctx, Tap{Dispatch: id, Driver: p.drivers(1)[0]})))
	stop()
	if taps := p.taps(id); len(taps) != 1 || taps[0].Instance != "here" || taps[0].AppVersion != "3.1" || taps[0].Round != 1 || taps[0].Result != dispatch.AttemptWon {
		t.Errorf("kept: %+v", taps)
	}
}
