package locktest

import (
	"context"
	"testing"
	"time"

	"firsttap/lock"
)

// cuts are what becomes of leases when connections break.
var cuts = []test{
	{name: "ReplyOfAnAcquireLost", needs: "LoseReply", run: (*suite).acquireUnanswered},
	{name: "AcquireThatIsLate", needs: "Hold", run: (*suite).acquireLate},
	{name: "ReplyOfARenewalLost", needs: "LoseReply", run: (*suite).renewalUnanswered},
	{name: "ReplyOfAReleaseLost", needs: "LoseReply", run: (*suite).releaseUnanswered},
	{name: "ReplyOfAKeepingReleaseLost", needs: "LoseReply TTL", run: (*suite).keepUnanswered},
	{name: "ConnectionKilled", needs: "Cut", run: (*suite).connectionKilled},
	{name: "ReleaseOnAKilledConnection", needs: "Cut", run: (*suite).releaseOnKilled},
	{name: "WaitOnAKilledConnection", needs: "Cut", run: (*suite).waitOnKilled},
}

// linked returns a Locker with a link of its own. It has been used: connections and prepared statements are there, so
// that the next request about a name is what it is for.
func (s *suite) linked(t testing.TB) (*lock.Locker, Link) {
	t.Helper()
	return s.linkedFor(t, long)
}

func (s *suite) linkedFor(t testing.TB, longest time.Duration) (*lock.Locker, Link) {
	t.Helper()
	link := s.Link(t)
	l := s.lockerAt(t, link.URL, longest)
	for _, hold := range []lock.Hold{lock.Between(s.Brief, longest), {TTL: longest, Every: 50 * time.Millisecond, AtMost: long}} {
		lease := acquire(t, l, name(), hold)
		if hold.Every > 0 {
			pass(3 * hold.Every) // renewals
		}
		released(t, lease)
	}
	return l, link
}

// Nobody knows whether the name was taken, and it does not stay taken by nobody.
func (s *suite) acquireUnanswered(t *testing.T) {
	n, rival := name(), s.open(t)
	l, link := s.linked(t)
	lost := link.LoseReply(n, Acquire)
	_, err := l.Acquire(t.Context(), n, lock.Fixed(long))
	wait(t, "the loss of the reply", lost)
	is(t, "acquire", err, lock.ErrUnavailable)
	takeOver(t, rival, n, long)
}

// A request that arrives when its caller has long gone takes nothing for long. That nothing was found to release before
// proves nothing.
func (s *suite) acquireLate(t *testing.T) {
	n, rival := name(), s.open(t)
	l, link := s.linked(t)
	reached, release := link.Hold(n, Acquire)
	defer release()
	got := inBackground(t.Context(), l, n, lock.Fixed(long))
	wait(t, "the request", reached)
	is(t, "acquire", wait(t, "the end of the wait", got).err, lock.ErrUnavailable)
	pass(3 * glance) // what cleans up has begun
	release()
	pass(glance)
	takeOver(t, rival, n, long)
}

// The lease goes on, unless it is over with its connection; then its holder is told.
func (s *suite) renewalUnanswered(t *testing.T) {
	n, rival := name(), s.open(t)
	l, link := s.linked(t)
	lease := acquire(t, l, n, s.renewedOften())
	wait(t, "the loss of the reply", link.LoseReply(n, Renew))
	s.survivesACut(t, lease, rival)
}

func (s *suite) survivesACut(t *testing.T, lease *lock.Lease, rival lock.Strategy) {
	t.Helper()
	if s.Session {
		why := mustEnd(t, lease)
		is(t, "why the lease ended", why, lock.ErrLost)
		is(t, "release", lease.Release(t.Context()), lock.ErrLost)
		takeOver(t, rival, lease.Name(), long)
		return
	}
	during(t, 3*glance, "the lease ended", lease.Context().Done())
	mustBeHeld(t, rival, lease.Name())
	released(t, lease)
	mustBeFree(t, rival, lease.Name())
}

func (s *suite) releaseUnanswered(t *testing.T) {
	n := name()
	l, link := s.linked(t)
	lease := acquire(t, l, n, lock.Fixed(long))
	lost := link.LoseReply(n, Release)
	released(t, lease)
	wait(t, "the loss of the reply", lost)
	mustBeFree(t, s.open(t), n)
}

// The name stays taken for as long as it should, and not for the rest of the TTL.
func (s *suite) keepUnanswered(t *testing.T) {
	n, rival, keep := name(), s.open(t), 2*s.Brief+glance
	l, link := s.linked(t)
	began := time.Now()
	lease := acquire(t, l, n, lock.Between(keep, long))
	lost := link.LoseReply(n, Release)
	released(t, lease)
	wait(t, "the loss of the reply", lost)
	_, at := takeOver(t, rival, n, long)
	s.notBefore(t, at, began.Add(keep))
}

func (s *suite) connectionKilled(t *testing.T) {
	rival := s.open(t)
	l, link := s.linked(t)
	lease := acquire(t, l, name(), s.renewedOften())
	link.Cut()
	s.survivesACut(t, lease, rival)
}

// A killed connection does not keep the name from being released.
func (s *suite) releaseOnKilled(t *testing.T) {
	l, link := s.linked(t)
	lease := acquire(t, l, name(), lock.Fixed(long))
	link.Cut()
	if err := lease.Release(t.Context()); err != nil && !s.Session {
		t.Errorf("release: %v", err)
	}
	takeOver(t, s.open(t), lease.Name(), long)
}

// Who waits goes on waiting, and gets in.
func (s *suite) waitOnKilled(t *testing.T) {
	n := name()
	lease := acquire(t, s.locker(t), n, lock.Fixed(long))
	l, link := s.linked(t)
	got := inBackground(t.Context(), l, n, waiting(lock.Fixed(long), patience))
	for range 3 {
		during(t, glance, "got in beside the holder", got)
		link.Cut()
	}
	released(t, lease)
	next := wait(t, "a lease", got)
	if next.err != nil {
		t.Fatal(next.err)
	}
	if err := next.lease.Release(context.Background()); err != nil {
		t.Error(err)
	}
}
