package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"firsttap/lock"
)

// servers are what becomes of leases when the server fails. They leave it running.
var servers = []test{
	{name: "Frozen", needs: "Freeze", run: (*suite).frozen},
	{name: "FrozenWhileAcquiring", needs: "Freeze", run: (*suite).frozenWhileAcquiring},
	{name: "Flushed", needs: "Flush", run: (*suite).flushed},
	{name: "KilledAndRestarted", needs: "Kill", run: (*suite).killed},
	{name: "KilledForLong", needs: "Kill", run: (*suite).killedForLong},
}

// The holder stops in time, and a rival gets in when the server is back, not while it is not.
func (s *suite) frozen(t *testing.T) {
	l, rival, ttl := s.locker(t), s.open(t), s.steady()
	lease := acquire(t, l, name(), lock.Renewed(ttl, long))
	began := time.Now()
	s.Freeze()
	why := mustEnd(t, lease)
	ended := time.Now()
	is(t, "why the lease ended", why, s.cutOff())
	if held := ended.Sub(began); held > ttl {
		t.Errorf("the lease was trusted for %s, which is longer than its TTL", held)
	}
	s.Thaw()
	g, _ := takeOver(t, rival, lease.Name(), long)
	if g.Fence() <= lease.Fence() {
		t.Errorf("the rival's fence is %d, the holder's was %d", g.Fence(), lease.Fence())
	}
	is(t, "release", lease.Release(t.Context()), s.cutOff())
	mustBeHeld(t, rival, lease.Name())
}

// What was asked of a frozen server it does when it thaws; nothing of that stays behind.
func (s *suite) frozenWhileAcquiring(t *testing.T) {
	l, rival := s.locker(t), s.open(t)
	released(t, acquire(t, l, name(), lock.Fixed(long))) // there is a connection
	mustBeFree(t, rival, name())
	lease := acquire(t, l, name(), lock.Fixed(long))
	ctx, cancel := context.WithCancelCause(t.Context())
	s.Freeze()
	timedOut, waited, gaveUp := name(), name(), name()
	first := inBackground(t.Context(), l, timedOut, lock.Fixed(long))
	second := inBackground(t.Context(), l, waited, waiting(lock.Fixed(long), 100*time.Millisecond))
	third := inBackground(ctx, l, gaveUp, lock.Fixed(long))
	during(t, glance, "an answer", third)
	cancel(errWork)
	for what, acquiring := range map[string]<-chan acquired{"timed out": first, "waited": second, "gave up": third} {
		got := wait(t, what, acquiring)
		is(t, what, got.err, lock.ErrUnavailable)
		if what == "gave up" {
			is(t, what, got.err, errWork)
		}
	}
	is(t, "release", lease.Release(t.Context()), lock.ErrUnavailable)
	s.Thaw()
	for _, n := range []string{timedOut, waited, gaveUp, lease.Name()} {
		takeOver(t, rival, n, long)
	}
	pass(glance)
	for _, n := range []string{timedOut, waited, gaveUp, lease.Name()} {
		mustBeHeld(t, rival, n) // no late cleaning has hit the rival
	}
}

// A server that has forgotten gives the name away; the holder learns so with its next renewal, and the fences grow.
func (s *suite) flushed(t *testing.T) {
	l, rival := s.locker(t), s.open(t)
	lease := acquire(t, l, name(), s.renewedOften())
	s.Flush()
	g, _ := takeOver(t, rival, lease.Name(), long)
	why := mustEnd(t, lease)
	is(t, "why the lease ended", why, lock.ErrLost)
	is(t, "release", lease.Release(t.Context()), lock.ErrLost)
	if g.Fence() <= lease.Fence() {
		t.Errorf("the rival's fence is %d, the holder's was %d", g.Fence(), lease.Fence())
	}
	mustBeHeld(t, rival, lease.Name())
	released(t, acquire(t, l, name(), lock.Fixed(long)))
}

// What a server does not forget with its life goes on, and of the rest the holder is told.
func (s *suite) killed(t *testing.T) {
	l, rival := s.locker(t), s.open(t)
	idle := acquire(t, l, name(), lock.Fixed(long))
	lease := acquire(t, l, name(), s.renewedOften())
	s.Kill()
	_, err := l.Acquire(t.Context(), name(), lock.Fixed(long))
	is(t, "acquire from a dead server", err, lock.ErrUnavailable)
	s.Server.Start()
	if !s.Forgets && !s.Session {
		during(t, time.Second, "the lease ended", lease.Context().Done())
		mustBeHeld(t, rival, lease.Name())
		for _, lease := range []*lock.Lease{lease, idle} {
			released(t, lease)
			s.grows(t, rival, lease)
		}
		return
	}
	s.grows(t, rival, lease)
	s.grows(t, rival, idle)
	why := mustEnd(t, lease)
	is(t, "why the lease ended", why, lock.ErrLost)
	is(t, "release", lease.Release(t.Context()), lock.ErrLost)
	// A client that could not connect for a while may take a second to find that it can.
	released(t, acquire(t, l, name(), waiting(lock.Fixed(long), patience)))
	if err := idle.Release(t.Context()); !errors.Is(err, lock.ErrLost) && !s.Session {
		t.Errorf("release: got %v, want %v", err, lock.ErrLost) // a session can't tell a release without an answer from that
	}
	mustBeHeld(t, rival, lease.Name())
	mustBeHeld(t, rival, idle.Name())
}

// grows takes what the lease had, and compares the fences.
func (s *suite) grows(t *testing.T, rival lock.Strategy, lease *lock.Lease) {
	t.Helper()
	if g, _ := takeOver(t, rival, lease.Name(), long); g.Fence() <= lease.Fence() {
		t.Errorf("the rival's fence is %d, the holder's was %d", g.Fence(), lease.Fence())
	}
}

// Without a server the holder stops in time, and who waits gets in when it is back.
func (s *suite) killedForLong(t *testing.T) {
	l, ttl := s.locker(t), s.steady()
	lease := acquire(t, l, name(), lock.Renewed(ttl, long))
	got := inBackground(t.Context(), s.locker(t), lease.Name(), waiting(lock.Fixed(long), 2*patience))
	during(t, glance, "got in beside the holder", got)
	began := time.Now()
	s.Kill()
	why := mustEnd(t, lease)
	ended := time.Now()
	is(t, "why the lease ended", why, lock.ErrLost)
	if held := ended.Sub(began); held > ttl {
		t.Errorf("the lease was trusted for %s, which is longer than its TTL", held)
	}
	s.Server.Start()
	next := wait(t, "the lease of the one who waits", got)
	if next.err != nil {
		t.Fatal(next.err)
	}
	released(t, next.lease)
}
