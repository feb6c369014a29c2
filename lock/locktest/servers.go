package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"firsttap/lock"
)

// servers test leases while the server fails. They leave it running.
var servers = []test{
	{name: "Frozen", needs: "Freeze", run: (*suite).frozen},
	{name: "FrozenWhileAcquiring", needs: "Freeze", run: (*suite).frozenWhileAcquiring},
	{name: "Flushed", needs: "Flush", run: (*suite).flushed},
	{name: "KilledAndRestarted", needs: "Kill", run: (*suite).killed},
	{name: "KilledForLong", needs: "Kill", run: (*suite).killedForLong},
}

// The holder stops in time, and a rival acquires the name after the server has resumed.
func (s *suite) frozen(t *testing.T) {
	l, rival, ttl := s.locker(t), s.open(t), s.renewableTTL()
	lease := mustLease(t, l, newName(), lock.Renewed(ttl, long))
	began := time.Now()
	s.Freeze()
	why := waitLost(t, lease)
	ended := time.Now()
	wantErr(t, "why the lease ended", why, s.unreachableErr())
	if held := ended.Sub(began); held > ttl {
		t.Errorf("the lease lasted %s longer than the server answered, more than its TTL", held)
	}
	s.Thaw()
	g, _ := acquireEventually(t, rival, lease.Name(), long)
	if g.Fence() <= lease.Fence() {
		t.Errorf("the rival's fence is %d, the holder's was %d", g.Fence(), lease.Fence())
	}
	wantErr(t, "release", lease.Release(t.Context()), s.unreachableErr())
	mustBeHeld(t, rival, lease.Name())
}

// A frozen server executes its pending requests when it resumes; they leave nothing behind.
func (s *suite) frozenWhileAcquiring(t *testing.T) {
	l, rival := s.locker(t), s.open(t)
	mustRelease(t, mustLease(t, l, newName(), lock.Fixed(long))) // opens a connection
	mustBeFree(t, rival, newName())
	lease := mustLease(t, l, newName(), lock.Fixed(long))
	ctx, cancel := context.WithCancelCause(t.Context())
	s.Freeze()
	timedOut, waited, gaveUp := newName(), newName(), newName()
	first := acquireAsync(t.Context(), l, timedOut, lock.Fixed(long))
	second := acquireAsync(t.Context(), l, waited, withWait(lock.Fixed(long), 100*time.Millisecond))
	third := acquireAsync(ctx, l, gaveUp, lock.Fixed(long))
	mustNotHappen(t, quiet, "an answer", third)
	cancel(errOfWork)
	for what, acquiring := range map[string]<-chan acquired{"timed out": first, "waited": second, "gave up": third} {
		got := receive(t, what, acquiring)
		wantErr(t, what, got.err, lock.ErrUnavailable)
		if what == "gave up" {
			wantErr(t, what, got.err, errOfWork)
		}
	}
	wantErr(t, "release", lease.Release(t.Context()), lock.ErrUnavailable)
	s.Thaw()
	for _, n := range []string{timedOut, waited, gaveUp, lease.Name()} {
		acquireEventually(t, rival, n, long)
	}
	sleep(quiet)
	for _, n := range []string{timedOut, waited, gaveUp, lease.Name()} {
		mustBeHeld(t, rival, n) // no late release has freed the rival's name
	}
}

// A server that lost its data grants the name again; the holder learns of it at its next renewal, and the fences grow.
func (s *suite) flushed(t *testing.T) {
	l, rival := s.locker(t), s.open(t)
	lease := mustLease(t, l, newName(), s.frequentlyRenewed())
	s.Flush()
	g, _ := acquireEventually(t, rival, lease.Name(), long)
	why := waitLost(t, lease)
	wantErr(t, "why the lease ended", why, lock.ErrLost)
	wantErr(t, "release", lease.Release(t.Context()), lock.ErrLost)
	if g.Fence() <= lease.Fence() {
		t.Errorf("the rival's fence is %d, the holder's was %d", g.Fence(), lease.Fence())
	}
	mustBeHeld(t, rival, lease.Name())
	mustRelease(t, mustLease(t, l, newName(), lock.Fixed(long)))
}

// A lease that survives the restart of the server continues, and the holder of one that does not is notified.
func (s *suite) killed(t *testing.T) {
	l, rival := s.locker(t), s.open(t)
	idle := mustLease(t, l, newName(), lock.Fixed(long))
	lease := mustLease(t, l, newName(), s.frequentlyRenewed())
	s.Kill()
	_, err := l.Acquire(t.Context(), newName(), lock.Fixed(long))
	wantErr(t, "acquire from a dead server", err, lock.ErrUnavailable)
	s.Server.Start()
	if !s.Volatile && !s.EndsWithConnection {
		mustNotHappen(t, time.Second, "the lease ended", lease.Context().Done())
		mustBeHeld(t, rival, lease.Name())
		for _, lease := range []*lock.Lease{lease, idle} {
			mustRelease(t, lease)
			s.wantLargerFence(t, rival, lease)
		}
		return
	}
	s.wantLargerFence(t, rival, lease)
	s.wantLargerFence(t, rival, idle)
	why := waitLost(t, lease)
	wantErr(t, "why the lease ended", why, lock.ErrLost)
	wantErr(t, "release", lease.Release(t.Context()), lock.ErrLost)
	// A client that could not connect for a while may need a second to connect again.
	mustRelease(t, mustLease(t, l, newName(), withWait(lock.Fixed(long), timeout)))
	if err := idle.Release(t.Context()); !errors.Is(err, lock.ErrLost) && !s.EndsWithConnection {
		t.Errorf("release: got %v, want %v", err, lock.ErrLost) // a session can't distinguish that from a release without an answer
	}
	mustBeHeld(t, rival, lease.Name())
	mustBeHeld(t, rival, idle.Name())
}

// wantLargerFence acquires the lease's name and compares the fences.
func (s *suite) wantLargerFence(t *testing.T, rival lock.Strategy, lease *lock.Lease) {
	t.Helper()
	if g, _ := acquireEventually(t, rival, lease.Name(), long); g.Fence() <= lease.Fence() {
		t.Errorf("the rival's fence is %d, the holder's was %d", g.Fence(), lease.Fence())
	}
}

// While the server is down, the holder stops in time; a waiter acquires the name when the server is back.
func (s *suite) killedForLong(t *testing.T) {
	l, ttl := s.locker(t), s.renewableTTL()
	lease := mustLease(t, l, newName(), lock.Renewed(ttl, long))
	got := acquireAsync(t.Context(), s.locker(t), lease.Name(), withWait(lock.Fixed(long), 2*timeout))
	mustNotHappen(t, quiet, "acquired a name that is held", got)
	began := time.Now()
	s.Kill()
	why := waitLost(t, lease)
	ended := time.Now()
	wantErr(t, "why the lease ended", why, lock.ErrLost)
	if held := ended.Sub(began); held > ttl {
		t.Errorf("the lease lasted %s longer than the server answered, more than its TTL", held)
	}
	s.Server.Start()
	next := receiveLease(t, got)
	mustRelease(t, next)
}

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
		t.Errorf("the rival acquired the name %s before the holder's lease ended", ended.Sub(at))
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
