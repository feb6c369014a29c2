package locktest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"firsttap/lock"
)

// breaking test leases while the server fails. They leave it running.
var breaking = []test{
	{name: "Frozen", scope: Faults, needs: "Freeze", run: (*suite).frozen},
	{name: "FrozenWhileAcquiring", scope: Faults, needs: "Freeze", run: (*suite).frozenWhileAcquiring},
	{name: "Flushed", scope: Faults, needs: "Flush", run: (*suite).flushed},
	{name: "KilledAndRestarted", scope: Faults, needs: "Kill", run: (*suite).killed},
	{name: "KilledForLong", needs: "Kill", run: (*suite).killedForLong},
}

// The holder stops in time, and a rival acquires the name after the server has resumed.
func (s *suite) frozen(t *testing.T) {
	l, rival, ttl := s.locker(t), s.open(t), s.renewableTTL()
	lease := mustLease(t, l, newName(), lock.Renewed(ttl, long))
	s.Freeze()
	since := time.Now()
	why := waitLost(t, lease)
	wantErr(t, "why the lease ended", why, s.unreachableErr())
	mustNotOutlast(t, lease, since.Add(ttl))
	s.Thaw()
	g, _ := acquireEventually(t, rival, lease.Name(), long)
	if g.Fence() <= lease.Fence() {
		t.Errorf("the rival's fence is %d, the holder's was %d", g.Fence(), lease.Fence())
	}
	wantErr(t, "release", lease.Release(t.Context()), s.unreachableErr())
	mustBeHeld(t, rival, lease.Name())
}

// mustNotOutlast fails the test if the lease ended after end, which is its TTL after the server's last answer.
func mustNotOutlast(t *testing.T, lease *lock.Lease, end time.Time) {
	t.Helper()
	if late := lease.TrustedUntil().Sub(end); late > 0 {
		t.Errorf("the lease ended %s after the server had kept the name for a TTL", late)
	}
}

// A frozen server executes its pending requests when it resumes; they leave nothing behind.
func (s *suite) frozenWhileAcquiring(t *testing.T) {
	// The patient one does not time out before its caller gives up, however busy the machine is.
	l, patient, rival := s.lockerAt(t, s.URL, long, shortTimeout), s.locker(t), s.open(t)
	hold := withWait(lock.Fixed(long), timeout)
	for _, l := range []*lock.Locker{l, patient} {
		mustRelease(t, mustLease(t, l, newName(), hold)) // opens a connection
	}
	mustBeFree(t, rival, newName())
	lease := mustLease(t, l, newName(), hold)
	ctx, cancel := context.WithCancelCause(t.Context())
	s.Freeze()
	timedOut, waited, gaveUp := newName(), newName(), newName()
	first := acquireAsync(t.Context(), l, timedOut, lock.Fixed(long))
	second := acquireAsync(t.Context(), l, waited, withWait(lock.Fixed(long), 100*time.Millisecond))
	third := acquireAsync(ctx, patient, gaveUp, lock.Fixed(long))
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
	for _, n := range []string{timedOut, waited, gaveUp, lease.Name()} {
		mustStayHeld(t, rival, n, quiet) // no late release frees the rival's name
	}
}

// A server that lost its data grants the name again; the holder learns of it at its next renewal, and the fences grow.
func (s *suite) flushed(t *testing.T) {
	l, rival := s.locker(t), s.open(t)
	lease := mustLease(t, l, newName(), s.frequentlyRenewed())
	// After a flush the server's clock is the fence, so it has to move on.
	mustNotHappen(t, clockUnit, "the lease ended", lease.Context().Done())
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
	s.Kill()
	since := time.Now()
	why := waitLost(t, lease)
	wantErr(t, "why the lease ended", why, lock.ErrLost)
	mustNotOutlast(t, lease, since.Add(ttl))
	s.Server.Start()
	next := receiveLease(t, got)
	mustRelease(t, next)
}

// clocks test TTLs on servers whose clock is wrong.
var clocks = []test{
	{name: "ClockAhead", scope: Faults, needs: "StartSkewed", run: func(s *suite, t *testing.T) { s.skewedClock(t, time.Hour) }},
	{name: "ClockBehind", scope: Faults, needs: "StartSkewed", run: func(s *suite, t *testing.T) { s.skewedClock(t, -time.Hour) }},
}

// Whatever the server's clock says, a TTL has the right length, and one process holds the name at a time.
func (s *suite) skewedClock(t *testing.T, offset time.Duration) {
	server := s.StartSkewed(t, offset)
	mine, rival, n := s.lockerAt(t, server.URL, long, answerTimeout), s.Open(t, server.URL, long), newName()
	fixed := mustLease(t, mine, n, lock.Fixed(answerTimeout)) // a Locker waits for an answer no longer than the TTL
	ended := endOf(fixed)
	g, at := acquireEventually(t, rival, n, s.MinTTL) // after the TTL, not only after an hour
	s.mustEndInTime(t, fixed, ended, at)
	if g.Fence() <= fixed.Fence() {
		t.Errorf("the rival's fence is %d, the holder's was %d", g.Fence(), fixed.Fence())
	}
	renewed := mustLease(t, mine, n, withWait(s.frequentlyRenewed(), timeout))
	mustNotHappen(t, 3*quiet, "the lease ended", renewed.Context().Done())
	s.mustRemain(t, rival, n, renewed.Owner())
	mustRelease(t, renewed)
	began := time.Now()
	mustRelease(t, mustLease(t, mine, n, lock.Between(s.MinTTL, long)))
	_, at = acquireEventually(t, rival, n, long)
	s.happenedAt(t, "the end of the name's rest", at, began.Add(s.MinTTL))
}

// mustRemain fails the test unless owner holds the name for nearly long.
func (s *suite) mustRemain(t testing.TB, rival lock.Strategy, name, owner string) {
	t.Helper()
	asked := time.Now()
	_, err := rival.Acquire(t.Context(), name, newOwner(), long)
	most := long + time.Since(asked) // a renewal may come between the time that the server reads and the row
	var held *lock.HeldError
	if !errors.As(err, &held) || errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("got %v, want a HeldError", err)
		return
	}
	if s.HidesHolder {
		return
	}
	// A quorum that votes again appends the number of the vote to the owner.
	vote, again := strings.CutPrefix(held.Owner, owner+".")
	_, err = strconv.Atoi(vote)
	if repeated := s.MayRefuseAll && again && err == nil; held.Owner != owner && !repeated {
		t.Errorf("held by %q, want %q", held.Owner, owner)
	}
	if held.Remaining > most || held.Remaining <= long-timeout && !s.EndsWithConnection {
		t.Errorf("held for %s, want nearly %s", held.Remaining, long)
	}
}
