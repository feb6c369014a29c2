package locktest

import (
	"slices"
	"testing"
	"time"

	"firsttap/lock"
)

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
	mustNotHappen(t, 3*quiet, "got in beside the holder", got[0]) // until the waiters' pauses are long
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
