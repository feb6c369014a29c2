package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/internal/testkit"
	"firsttap/lock"
)

// A thousand want a name whose TTL is a tenth of the work, and two thousand one of half of it. Renewed, it has one holder at a time, until the
// last of them. With a TTL alone, as SET NX PX takes it, the next one begins while the one before is still at work.
func TestAThousandContenders(t *testing.T) {
	t.Parallel()
	const work = time.Second
	for _, c := range []struct {
		contenders int
		ttl        time.Duration
	}{{1000, work / 10}, {2000, work / 2}} {
		testkit.Bubble(t, func(t *testing.T) {
			entered, together := contend(t, c.contenders, work, lock.Renewed(c.ttl, time.Minute))
			if together != 1 || entered < 10 {
				t.Errorf("%d contenders, TTL %s, renewed: %d held the name, %d at the same time", c.contenders, c.ttl, entered, together)
			}
			entered, together = contend(t, c.contenders, work, lock.Fixed(c.ttl))
			if want := int64(work / c.ttl); together != want {
				t.Errorf("%d contenders, TTL %s, naive: %d held the name, %d at the same time, want %d",
					c.contenders, c.ttl, entered, together, want)
			}
		})
	}
}

// contend lets n want the name for the time of ten works. It returns how many held it, and how many at the same time at most. The work does
// not look at its context, as work that was never told of a lock.
func contend(t *testing.T, n int, work time.Duration, hold lock.Hold) (entered, together int64) {
	l := lock.New(lock.NewMemory(), lock.Options{})
	defer l.Close()
	hold.Wait = 10 * work
	var inside, most, all atomic.Int64
	testkit.Together(n, func(int) {
		err := l.Do(t.Context(), "wanted", hold, func(context.Context) error {
			all.Add(1)
			for now := inside.Add(1); ; {
				if before := most.Load(); now <= before || most.CompareAndSwap(before, now) {
					break
				}
			}
			time.Sleep(work) //nolint:forbidigo // in a bubble of testing/synctest
			inside.Add(-1)
			return nil
		})
		if err != nil && !errors.Is(err, lock.ErrHeld) && !errors.Is(err, lock.ErrLost) {
			t.Errorf("got %v", err)
		}
	})
	return all.Load(), most.Load()
}
