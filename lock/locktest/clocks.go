package locktest

import (
	"testing"
	"time"

	"firsttap/lock"
)

// clocks test TTLs on servers whose clock is wrong.
var clocks = []test{
	{name: "ClockAhead", needs: "StartSkewed", run: func(s *suite, t *testing.T) { s.skewedClock(t, 10*time.Second) }},
	{name: "ClockBehind", needs: "StartSkewed", run: func(s *suite, t *testing.T) { s.skewedClock(t, -10*time.Second) }},
}

// Whatever the server's clock says, a TTL has the right length, and one process holds the name at a time.
func (s *suite) skewedClock(t *testing.T, offset time.Duration) {
	server := s.StartSkewed(t, offset)
	ttl := s.renewableTTL()
	mine, rival, n := s.lockerAt(t, server.URL, long), s.Open(t, server.URL, long), newName()
	fixed := mustLease(t, mine, n, lock.Fixed(ttl))
	end := endOf(fixed)
	g, at := acquireEventually(t, rival, n, ttl)
	if ended := receive(t, "the end of the lease", end); !ended.Before(at) {
		t.Errorf("the rival got in %s before the holder was told", ended.Sub(at))
	}
	if g.Fence() <= fixed.Fence() {
		t.Errorf("the rival's fence is %d, the holder's was %d", g.Fence(), fixed.Fence())
	}
	renewed := mustLease(t, mine, n, withWait(lock.Renewed(ttl, long), timeout)) // after the TTL, not only after ten seconds
	if since := time.Since(at); since > ttl+5*time.Second {
		t.Errorf("a TTL of %s has lasted %s", ttl, since)
	}
	mustNotHappen(t, ttl+ttl/2, "the lease ended", renewed.Context().Done())
	mustBeHeld(t, rival, n)
	mustRelease(t, renewed)
	began := time.Now()
	mustRelease(t, mustLease(t, mine, n, lock.Between(s.MinTTL, long)))
	_, at = acquireEventually(t, rival, n, long)
	s.notBefore(t, at, began.Add(s.MinTTL))
}
