package locktest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"firsttap/lock"
)

// sweeps repeat a fault at every millisecond. They run on a simulated server only.
var sweeps = []test{
	{name: "NoOverlapAtAnyMillisecond", scope: Contract, run: func(_ *suite, t *testing.T) {
		sweep(t, lock.Renewed(partitionTTL, long), func(l *link) { l.partition(true) })
	}},
	{name: "NoOverlapWhileRepliesAreLost", scope: Contract, run: func(_ *suite, t *testing.T) {
		sweep(t, lock.Renewed(partitionTTL, long), func(l *link) { l.drop(false, true) })
	}},
	{name: "NoOverlapAfterACut", scope: Contract, run: func(_ *suite, t *testing.T) {
		sweep(t, lock.Renewed(partitionTTL, long), func(l *link) {
			l.cut()
			l.partition(true)
		})
	}},
	{name: "NoOverlapAtAnyDelay", scope: Contract, run: func(_ *suite, t *testing.T) { sweepDelays(t) }},
}

// sweep lets a fault of the holder's link begin at every millisecond of the time between two renewals.
func sweep(t *testing.T, hold lock.Hold, fault func(*link)) {
	var running sync.WaitGroup
	for after := hold.RenewEvery + time.Millisecond/2; after < 2*hold.RenewEvery; after += time.Millisecond {
		running.Go(func() { mustEndExactly(t, hold, 0, after, fault) })
	}
	running.Wait()
}

// sweepDelays delays the answers by every length that the Locker waits for, and drops everything after the first renewal.
func sweepDelays(t *testing.T) {
	var running sync.WaitGroup
	for delay := time.Duration(0); delay < 900*time.Millisecond; delay += time.Millisecond {
		for _, hold := range []lock.Hold{lock.Fixed(partitionTTL), lock.Renewed(partitionTTL, long)} {
			running.Go(func() {
				mustEndExactly(t, hold, delay, partitionTTL/3+2*delay+time.Millisecond/2, func(l *link) { l.partition(true) })
			})
		}
	}
	running.Wait()
}

// mustEndExactly holds a name over a link that answers after delay, and then breaks the link. The work has to end a tenth
// of the TTL before the end of the TTL that began when the latest answered request was sent, which has to be before a rival
// acquires the name.
func mustEndExactly(t *testing.T, hold lock.Hold, delay, after time.Duration, fault func(*link)) {
	server := &simulatedServer{memory: lock.NewMemory()}
	way := server.open()
	way.setDelay(delay)
	locker := lock.New(way.client(), lock.Options{Instance: "tester"})
	defer locker.Close()
	began := time.Now()
	lease, err := locker.Acquire(t.Context(), "name", hold)
	if err != nil {
		t.Errorf("a delay of %s: %v", delay, err)
		return
	}
	end := endOf(lease)
	<-time.After(time.Until(began.Add(after)))
	fault(way)
	rivalAt, ended := takeOver(t, server.memory, "name"), <-end
	if want := way.heard().Add(hold.TTL - hold.TTL/10); !ended.Equal(want) || !ended.Before(rivalAt) {
		t.Errorf("a delay of %s and a fault after %s: the work ended after %s, want %s; the rival acquired the name after %s",
			delay, after, ended.Sub(began), want.Sub(began), rivalAt.Sub(began))
	}
	_ = lease.Release(t.Context())
}

// takeOver acquires the name as soon as the server lets it, and returns when that was.
func takeOver(t *testing.T, server lock.Strategy, name string) time.Time {
	for {
		_, err := server.Acquire(t.Context(), name, "a rival", long)
		var held *lock.HeldError
		switch {
		case err == nil:
			return time.Now()
		case !errors.As(err, &held):
			t.Error(err)
			return time.Time{}
		}
		<-time.After(held.Remaining)
	}
}
