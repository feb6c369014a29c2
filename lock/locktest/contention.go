package locktest

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/lock"
)

// contention are tests with many holders.
var contention = []test{
	{name: "ACounterAddsUp", run: (*suite).counter},
}

// criticalSection is protected by a name. It counts those inside, and has a counter that is read and written in two
// steps, so that it misses a count if two are inside at once.
type criticalSection struct {
	inside, overlaps atomic.Int64
	count            atomic.Int64
}

func (r *criticalSection) enter(stay func()) {
	if r.inside.Add(1) > 1 {
		r.overlaps.Add(1)
	}
	seen := r.count.Load()
	stay()
	r.count.Store(seen + 1)
	r.inside.Add(-1)
}

// Many goroutines of several clients take turns for several names, with every kind of hold.
func (s *suite) counter(t *testing.T) {
	const clients, goroutines, turns = 3, 8, 10
	rooms, entered := map[string]*criticalSection{newName(): {}, newName(): {}}, map[string]*atomic.Int64{}
	all := []string{}
	for n := range rooms {
		entered[n], all = &atomic.Int64{}, append(all, n)
	}
	ways := []lock.Hold{lock.Fixed(long), lock.Renewed(long, long), lock.Expected(long / 2)}
	var running sync.WaitGroup
	for range clients {
		l := s.locker(t)
		for range goroutines {
			running.Go(func() {
				for range turns {
					n := all[rand.N(len(all))]
					err := l.Do(t.Context(), n, withWait(ways[rand.N(len(ways))], timeout), func(context.Context) error {
						rooms[n].enter(func() { <-time.After(rand.N(200 * time.Microsecond)) })
						entered[n].Add(1)
						return nil
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	running.Wait()
	total := int64(0)
	for n, r := range rooms {
		total += entered[n].Load()
		if r.count.Load() != entered[n].Load() || r.overlaps.Load() > 0 {
			t.Errorf("%d turns, a counter of %d, and %d overlaps", entered[n].Load(), r.count.Load(), r.overlaps.Load())
		}
	}
	if total != clients*goroutines*turns {
		t.Errorf("%d of %d turns", total, clients*goroutines*turns)
	}
}
