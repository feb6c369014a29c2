package locktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/lock"
)

// contention are tests that run alone, because they load the machine.
var contention = []test{
	{name: "ACounterAddsUp", run: (*suite).counter},
	{name: "AThousandAsk", run: (*suite).thousandTry},
	{name: "AThousandWait", run: (*suite).thousandWait},
	{name: "Handover", needs: "Watcher", run: (*suite).handover},
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

// A thousand wait, for less time than the work takes, which is much longer than a TTL. Without renewal, two would get
// in. A machine that stalls for longer than a TTL rightly cancels the work, so one success of five is enough.
func (s *suite) thousandWait(t *testing.T) {
	const tries = 5
	work := max(time.Second, 2*s.MinTTL)
	for try := 1; ; try++ {
		got, overloaded := s.contend(t, withWait(lock.Renewed(s.MinTTL, long), work/2), work)
		if got == 1 && overloaded == nil {
			return
		}
		if t.Logf("%d acquired the name: %v", got, overloaded); overloaded == nil || try == tries {
			t.Errorf("%d acquired the name: %v", got, overloaded)
			return
		}
	}
}

// A thousand make one attempt at once. The server may be too slow for that; then the attempts must return
// ErrUnavailable.
func (s *suite) thousandTry(t *testing.T) {
	got, overloaded := s.contend(t, lock.Renewed(s.renewableTTL(), long), s.renewableTTL()*3/2)
	if got != 1 && overloaded == nil && (got != 0 || !s.MayRefuseAll) {
		t.Errorf("%d acquired the name", got)
	}
}

// contend lets a thousand want the same name at once, and checks that never two of them have it. It returns how many got
// it, and an error if the server did not answer some of them or did not renew the holder's lease.
func (s *suite) contend(t *testing.T, hold lock.Hold, work time.Duration) (got int64, overloaded error) {
	const clients, goroutines = 4, 1000
	n := newName()
	lockers := make([]*lock.Locker, clients)
	for i := range lockers {
		lockers[i] = s.locker(t)
	}
	var r criticalSection
	var entered, unanswered atomic.Int64
	var lost atomic.Value
	var running sync.WaitGroup
	start := make(chan bool)
	for i := range goroutines {
		running.Go(func() {
			<-start
			err := lockers[i%clients].Do(t.Context(), n, hold, func(ctx context.Context) error {
				entered.Add(1)
				r.enter(func() {
					select {
					case <-ctx.Done():
					case <-time.After(work):
					}
				})
				return nil
			})
			switch {
			case errors.Is(err, lock.ErrUnavailable):
				unanswered.Add(1)
			case errors.Is(err, lock.ErrLost):
				lost.Store(err)
			case err != nil && !errors.Is(err, lock.ErrHeld):
				t.Errorf("got %v", err)
			}
		})
	}
	close(start)
	running.Wait()
	if r.overlaps.Load() > 0 {
		t.Errorf("%d of %d entered while another was inside", r.overlaps.Load(), entered.Load())
	}
	if err, ok := lost.Load().(error); ok {
		return entered.Load(), fmt.Errorf("the work was canceled: %w", err)
	}
	if n := unanswered.Load(); n > 0 {
		return entered.Load(), fmt.Errorf("%d were not answered", n)
	}
	return entered.Load(), nil
}

// A waiter acquires the name as soon as it is released. The test takes the median, because single handovers may be late
// on a busy machine.
func (s *suite) handover(t *testing.T) {
	const (
		handovers = 15
		soon      = 10 * time.Millisecond
	)
	mine, waiter := s.locker(t), s.locker(t)
	leases, got := make([]*lock.Lease, handovers), make([]chan time.Time, handovers)
	for i := range leases {
		n := newName()
		leases[i], got[i] = mustLease(t, mine, n, lock.Fixed(long)), make(chan time.Time, 1)
		next := acquireAsync(t.Context(), waiter, n, withWait(lock.Fixed(long), timeout))
		go func() {
			a := <-next
			got[i] <- time.Now()
			if a.err != nil {
				t.Error(a.err)
				return
			}
			_ = a.lease.Release(t.Context())
		}()
	}
	mustNotHappen(t, 3*quiet, "acquired a name that is held", got[0]) // until the waiters' pauses are long
	took := make([]time.Duration, handovers)
	for i, lease := range leases {
		began := time.Now()
		mustRelease(t, lease)
		took[i] = receive(t, "the handover", got[i]).Sub(began)
	}
	slices.Sort(took)
	if median := took[handovers/2]; median >= soon {
		t.Errorf("a handover took %s, want less than %s; all of them: %v", median, soon, took)
	}
}
