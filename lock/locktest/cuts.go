package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"firsttap/lock"
)

// cuts test leases whose connections break.
var cuts = []test{
	{name: "ReplyOfAnAcquireLost", scope: Faults, needs: "LoseReply", run: (*suite).acquireUnanswered},
	{name: "AcquireThatIsLate", scope: Faults, needs: "HoldRequest Admin", run: (*suite).acquireLate},
	{name: "ReplyOfARenewalLost", scope: Faults, needs: "LoseReply", run: (*suite).renewalUnanswered},
	{name: "ReplyOfAReleaseLost", scope: Faults, needs: "LoseReply", run: (*suite).releaseUnanswered},
	{name: "ReplyOfAKeepingReleaseLost", scope: Faults, needs: "LoseReply TTL", run: (*suite).keepUnanswered},
	{name: "ConnectionKilled", scope: Faults, needs: "Cut", run: (*suite).connectionKilled},
	{name: "ReleaseOnAKilledConnection", scope: Faults, needs: "Cut", run: (*suite).releaseOnKilled},
	{name: "ReleaseAfterARival", scope: Faults, needs: "Cut", run: (*suite).releaseAfterRival},
	{name: "WaitOnAKilledConnection", needs: "Cut", run: (*suite).waitOnKilled},
}

// lockerWithLink returns a Locker with a link of its own. The Locker has been used, so that connections and prepared
// statements exist and the next request about a name is the one that a test waits for.
func (s *suite) lockerWithLink(t testing.TB) (*lock.Locker, Link) {
	t.Helper()
	return s.lockerWithLinkFor(t, long, answerTimeout)
}

func (s *suite) lockerWithLinkFor(t testing.TB, longest, timeout time.Duration) (*lock.Locker, Link) {
	t.Helper()
	link := s.Link(t)
	l := s.lockerAt(t, link.URL, longest, timeout)
	for _, hold := range []lock.Hold{lock.Between(s.MinTTL, longest), {TTL: longest, RenewEvery: 50 * time.Millisecond, AtMost: long}} {
		lease := mustLease(t, l, newName(), withWait(hold, long)) // timeout may be shorter than a busy machine needs
		if hold.RenewEvery > 0 {
			mustBeRenewed(t, lease)
		}
		mustRelease(t, lease)
	}
	return l, link
}

// mustBeRenewed waits for a renewal of the lease.
func mustBeRenewed(t testing.TB, lease *lock.Lease) {
	t.Helper()
	first := lease.TrustedUntil()
	eventually(t, "a renewal", func() error {
		if !lease.TrustedUntil().After(first) {
			return errors.New("the lease still ends at the same time")
		}
		return nil
	})
}

// An acquisition without a reply is unavailable, and the name does not stay held.
func (s *suite) acquireUnanswered(t *testing.T) {
	n, rival := newName(), s.open(t)
	l, link := s.lockerWithLink(t)
	lost := link.LoseReply(n, Acquire)
	_, err := l.Acquire(t.Context(), n, lock.Fixed(long))
	receive(t, "the loss of the reply", lost)
	wantErr(t, "acquire", err, lock.ErrUnavailable)
	acquireEventually(t, rival, n, long)
}

// A request that reaches the server after its caller has given up does not hold the name for long.
func (s *suite) acquireLate(t *testing.T) {
	n, rival := newName(), s.open(t)
	// With a shorter timeout a busy machine might not send the request, or send a second release before the test sees the name held.
	l, link := s.lockerWithLink(t)
	reached, pass := link.HoldRequest(n, Acquire)
	defer pass()
	got := acquireAsync(t.Context(), l, n, lock.Fixed(long))
	receive(t, "the request", reached)
	if s.EndsWithConnection { // that is the release
		wantErr(t, "acquire", receive(t, "the end of the wait", got).err, lock.ErrUnavailable)
		pass()
	} else {
		s.passAfterARelease(t, n, link, got, pass)
	}
	acquireEventually(t, rival, n, long)
}

// passAfterARelease passes on a held request for the name once a release has found nothing. The next release is held back until
// the server has granted the name.
func (s *suite) passAfterARelease(t *testing.T, name string, link Link, got <-chan acquired, pass func()) {
	t.Helper()
	first, passFirst := link.HoldRequest(name, Release)
	defer passFirst()
	wantErr(t, "acquire", receive(t, "the end of the wait", got).err, lock.ErrUnavailable)
	receive(t, "a release", first)
	second, passSecond := link.HoldRequest(name, Release)
	defer passSecond()
	passFirst()
	receive(t, "a request after the release that found nothing", second)
	pass()
	s.mustBecomeHeld(t, name)
}

// mustBecomeHeld waits until the server says that somebody holds the name.
func (s *suite) mustBecomeHeld(t testing.TB, name string) {
	t.Helper()
	operator := s.open(t).(lock.Admin)
	eventually(t, "somebody holds the name", func() error {
		h, err := operator.Show(t.Context(), name)
		if err == nil && h.Owner == "" {
			err = errors.New("nobody does")
		}
		return err
	})
}

// The lease continues; with a session, it is lost with the connection and the holder is notified.
func (s *suite) renewalUnanswered(t *testing.T) {
	n, rival := newName(), s.open(t)
	l, link := s.lockerWithLink(t)
	lease := mustLease(t, l, n, s.frequentlyRenewed())
	receive(t, "the loss of the reply", link.LoseReply(n, Renew))
	s.survivesACut(t, lease, rival)
}

func (s *suite) survivesACut(t *testing.T, lease *lock.Lease, rival lock.Strategy) {
	t.Helper()
	if s.EndsWithConnection {
		why := waitLost(t, lease)
		wantErr(t, "why the lease ended", why, lock.ErrLost)
		wantErr(t, "release", lease.Release(t.Context()), lock.ErrLost)
		acquireEventually(t, rival, lease.Name(), long)
		return
	}
	mustNotHappen(t, 3*quiet, "the lease ended", lease.Context().Done())
	mustBeHeld(t, rival, lease.Name())
	mustRelease(t, lease)
	mustBeFree(t, rival, lease.Name())
}

func (s *suite) releaseUnanswered(t *testing.T) {
	n := newName()
	l, link := s.lockerWithLink(t)
	lease := mustLease(t, l, n, lock.Fixed(long))
	lost := link.LoseReply(n, Release)
	mustRelease(t, lease)
	receive(t, "the loss of the reply", lost)
	mustBeFree(t, s.open(t), n)
}

// The name stays held for as long as it should, not for the rest of the TTL.
func (s *suite) keepUnanswered(t *testing.T) {
	n, rival, keep := newName(), s.open(t), 2*s.MinTTL+quiet
	l, link := s.lockerWithLink(t)
	began := time.Now()
	lease := mustLease(t, l, n, lock.Between(keep, long))
	lost := link.LoseReply(n, Release)
	mustRelease(t, lease)
	receive(t, "the loss of the reply", lost)
	_, at := acquireEventually(t, rival, n, long)
	s.happenedAt(t, "the end of the name's rest", at, began.Add(keep))
}

func (s *suite) connectionKilled(t *testing.T) {
	rival := s.open(t)
	l, link := s.lockerWithLink(t)
	lease := mustLease(t, l, newName(), s.frequentlyRenewed())
	link.Cut()
	s.survivesACut(t, lease, rival)
}

// A broken connection does not prevent the release.
func (s *suite) releaseOnKilled(t *testing.T) {
	l, link := s.lockerWithLink(t)
	lease := mustLease(t, l, newName(), lock.Fixed(long))
	link.Cut()
	if err := lease.Release(t.Context()); err != nil && !s.EndsWithConnection {
		t.Errorf("release: %v", err)
	}
	acquireEventually(t, s.open(t), lease.Name(), long)
}

// A holder loses its connection, and another owner acquires the name. The holder's release is refused as lost, also after that owner has
// released the name.
func (s *suite) releaseAfterRival(t *testing.T) {
	if !s.EndsWithConnection {
		return // the name stays held
	}
	l, link := s.lockerWithLink(t)
	for _, gone := range []bool{false, true} {
		lease := mustLease(t, l, newName(), lock.Fixed(long))
		link.Cut()
		rival, _ := acquireEventually(t, s.open(t), lease.Name(), long)
		release := func() {
			if err := rival.Release(t.Context(), 0); err != nil {
				t.Errorf("the rival's release: %v", err)
			}
		}
		if gone {
			release()
		}
		if err := lease.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("the release: %v, although fence %d came after %d", err, rival.Fence(), lease.Fence())
		}
		if !gone {
			release()
		}
	}
}

// A waiter keeps waiting when its connection breaks, and acquires the name.
func (s *suite) waitOnKilled(t *testing.T) {
	n := newName()
	lease := mustLease(t, s.locker(t), n, lock.Fixed(long))
	l, link := s.lockerWithLink(t)
	got := acquireAsync(t.Context(), l, n, withWait(lock.Fixed(long), timeout))
	for range 3 {
		mustNotHappen(t, quiet, "acquired a name that is held", got)
		link.Cut()
	}
	mustRelease(t, lease)
	next := receiveLease(t, got)
	if err := next.Release(context.Background()); err != nil {
		t.Error(err)
	}
}
