package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"firsttap/lock"
)

// holds test the kinds of Hold.
var holds = []test{
	{name: "Fixed", run: (*suite).fixed},
	{name: "Renewed", run: (*suite).renewed},
	{name: "Expected", run: (*suite).expected},
	{name: "Between", run: (*suite).between},
	{name: "AtMost", run: (*suite).atMost},
	{name: "AtMostOfFixed", run: (*suite).atMostOfFixed},
	{name: "ExtendLease", run: (*suite).extendLease},
	{name: "ExtendRenewed", run: (*suite).extendRenewed},
	{name: "Beat", run: (*suite).beat},
	{name: "WaitForARelease", run: (*suite).waitForARelease},
	{name: "WaitForTheEnd", run: (*suite).waitForTheEnd},
	{name: "WaitInVain", run: (*suite).waitInVain},
	{name: "GiveUpWaiting", run: (*suite).giveUpWaiting},
	{name: "Stolen", needs: "Admin", run: (*suite).stolenByRival},
	{name: "ReleaseTwice", run: (*suite).releaseTwice},
	{name: "ReleaseEndsTheWorkFirst", needs: "HoldRequest", run: (*suite).releaseEndsTheWork},
}

// frequentlyRenewed is for leases that must notice soon when they are lost, and that never expire.
func (s *suite) frequentlyRenewed() lock.Hold {
	return lock.Hold{TTL: long, RenewEvery: 50 * time.Millisecond, AtMost: time.Hour}
}

// The holder's lease ends before another owner can have the name.
func (s *suite) fixed(t *testing.T) {
	n := newName()
	rival := s.open(t)
	lease := mustLease(t, s.locker(t), n, lock.Fixed(answerTimeout)) // a Locker waits for an answer no longer than the TTL
	ended := endOf(lease)
	_, at := acquireEventually(t, rival, n, long)
	s.mustEndInTime(t, lease, ended, at)
	wantErr(t, "why the lease ended", waitLost(t, lease), lock.ErrExpired)
	wantErr(t, "release", lease.Release(t.Context()), lock.ErrExpired)
	mustBeHeld(t, rival, n)
}

// A renewed lease lasts longer than the TTL, until its release.
func (s *suite) renewed(t *testing.T) {
	n, ttl := newName(), s.keepableTTL()
	lease := mustLease(t, s.locker(t), n, lock.Renewed(ttl, long))
	rival := s.open(t)
	mustNotHappen(t, ttl+quiet, "the lease ended", lease.Context().Done())
	mustBeHeld(t, rival, n)
	fence := lease.Fence()
	mustRelease(t, lease)
	wantErr(t, "the released lease's context", lease.Context().Err(), context.Canceled)
	if errors.Is(context.Cause(lease.Context()), lock.ErrLost) {
		t.Error("a released lease counts as lost")
	}
	if g := mustAcquire(t, rival, n, long); g.Fence() <= fence {
		t.Errorf("the next holder's fence is %d, want more than %d", g.Fence(), fence)
	}
}

func (s *suite) expected(t *testing.T) {
	n, hold := newName(), lock.Expected(s.keepableTTL()*2/3)
	lease := mustLease(t, s.locker(t), n, hold)
	mustNotHappen(t, hold.TTL+quiet, "the lease ended", lease.Context().Done())
	mustBeHeld(t, s.open(t), n)
	mustRelease(t, lease)
}

// The name of a short job stays held for a while.
func (s *suite) between(t *testing.T) {
	n, atLeast := newName(), 2*s.MinTTL
	began := time.Now()
	lease := mustLease(t, s.locker(t), n, lock.Between(atLeast, long))
	rival := s.open(t)
	mustRelease(t, lease)
	_, at := acquireEventually(t, rival, n, long)
	s.happenedAt(t, "the end of the name's rest", at, began.Add(atLeast))

	lease = mustLease(t, s.locker(t), newName(), lock.Between(s.MinTTL, long))
	mustNotHappen(t, s.MinTTL, "the lease ended", lease.Context().Done())
	mustRelease(t, lease)
	mustBeFree(t, rival, lease.Name()) // the name of a longer job is free at once
}

// Work that hangs does not hold the name for ever, although its context is not canceled by others.
func (s *suite) atMost(t *testing.T) {
	n, ttl := newName(), s.renewableTTL()
	began := time.Now()
	lease := mustLease(t, s.locker(t), n, lock.Renewed(ttl, ttl+ttl/2))
	ended := endOf(lease)
	_, at := acquireEventually(t, s.open(t), n, long)
	s.mustEndInTime(t, lease, ended, at)
	s.happenedAt(t, "the end of the lease", lease.TrustedUntil(), began.Add(ttl+ttl/2))
	wantErr(t, "why the lease ended", waitLost(t, lease), lock.ErrMaxHold)
	wantErr(t, "release", lease.Release(t.Context()), lock.ErrMaxHold)
}

// An extension counts from its call, also if the lease ends earlier by it. The release keeps the name for the new time, too.
func (s *suite) extendLease(t *testing.T) {
	n, rival := newName(), s.open(t)
	lease := mustLease(t, s.locker(t), n, lock.Fixed(answerTimeout))
	for _, bad := range [][2]time.Duration{{0, 0}, {long, -1}, {long, long + 1}} {
		wantErr(t, "an extension that cannot be", lease.Extend(t.Context(), bad[0], bad[1]), lock.ErrInvalid)
	}
	if err := lease.Extend(t.Context(), long, 0); err != nil {
		t.Fatal(err)
	}
	mustNotHappen(t, answerTimeout+quiet, "the lease ended", lease.Context().Done())
	mustBeHeld(t, rival, n)
	began := time.Now()
	if err := lease.Extend(t.Context(), long, 2*s.MinTTL); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, lease)
	_, at := acquireEventually(t, rival, n, long)
	s.happenedAt(t, "the end of the name's rest", at, began.Add(2*s.MinTTL))
	wantErr(t, "a released lease", lease.Extend(t.Context(), long, 0), lock.ErrLost)

	lease = mustLease(t, s.locker(t), newName(), lock.Fixed(long))
	if err := lease.Extend(t.Context(), answerTimeout, 0); err != nil {
		t.Fatal(err)
	}
	ended := endOf(lease)
	_, at = acquireEventually(t, rival, lease.Name(), long)
	s.mustEndInTime(t, lease, ended, at)
	wantErr(t, "why the shortened lease ended", waitLost(t, lease), lock.ErrExpired)
	wantErr(t, "a lease that has ended", lease.Extend(t.Context(), long, 0), lock.ErrExpired)
}

// A renewed lease is renewed until the end of the extension.
func (s *suite) extendRenewed(t *testing.T) {
	ttl := s.renewableTTL()
	lease := mustLease(t, s.locker(t), newName(), lock.Renewed(ttl, ttl))
	began := time.Now()
	if err := lease.Extend(t.Context(), ttl+ttl/2, 0); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "why the lease ended", waitLost(t, lease), lock.ErrMaxHold)
	s.happenedAt(t, "the end of the lease", lease.TrustedUntil(), began.Add(ttl+ttl/2))
}

func (s *suite) atMostOfFixed(t *testing.T) {
	lease := mustLease(t, s.locker(t), newName(), lock.Hold{TTL: long, AtMost: s.MinTTL})
	why := waitLost(t, lease)
	wantErr(t, "why the lease ended", why, lock.ErrMaxHold)
	wantErr(t, "release", lease.Release(t.Context()), lock.ErrMaxHold)
	mustBeFree(t, s.open(t), lease.Name())
}

// Work that reports progress continues, and work that does not is canceled.
func (s *suite) beat(t *testing.T) {
	hold := lock.Hold{TTL: 2 * s.renewableTTL(), RenewEvery: s.renewableTTL() / 4, Heartbeat: s.renewableTTL() / 2}
	lease := mustLease(t, s.locker(t), newName(), hold)
	tick := time.NewTicker(hold.Heartbeat / 10)
	defer tick.Stop()
	last := time.Now()
	for range 30 {
		<-tick.C
		if !s.simulated && time.Since(last) > hold.Heartbeat/2 {
			t.Log("the machine stood still, and the work did not report progress in time: this run proves nothing")
			return
		}
		last = time.Now()
		lease.Heartbeat()
	}
	mustBeAlive(t, lease)
	why := waitLost(t, lease)
	ended := time.Now()
	wantErr(t, "why the lease ended", why, lock.ErrStalled)
	s.happenedAt(t, "the end of the lease", ended, last.Add(hold.Heartbeat))
	wantErr(t, "release", lease.Release(t.Context()), lock.ErrStalled)
	mustBeFree(t, s.open(t), lease.Name())
}

type acquired struct {
	lease *lock.Lease
	err   error
}

// acquireAsync acquires while the test continues.
func acquireAsync(ctx context.Context, l *lock.Locker, name string, hold lock.Hold) <-chan acquired {
	got := make(chan acquired, 1)
	go func() {
		lease, err := l.Acquire(ctx, name, hold)
		got <- acquired{lease, err}
	}()
	return got
}

// receiveLease fails the test unless an acquisition succeeds.
func receiveLease(t testing.TB, c <-chan acquired) *lock.Lease {
	t.Helper()
	a := receive(t, "the lease", c)
	if a.err != nil {
		t.Fatal(a.err)
	}
	return a.lease
}

func withWait(hold lock.Hold, wait time.Duration) lock.Hold {
	hold.Wait = wait
	return hold
}

// Waiters acquire the name one after another, also those of the same Locker.
func (s *suite) waitForARelease(t *testing.T) {
	n, l := newName(), s.locker(t)
	lease := mustLease(t, s.locker(t), n, lock.Fixed(long))
	got := make(chan acquired, 3)
	for _, waiter := range []*lock.Locker{l, l, s.locker(t)} {
		go func() { got <- <-acquireAsync(t.Context(), waiter, n, withWait(lock.Fixed(long), timeout)) }()
	}
	mustNotHappen(t, 10*quiet, "acquired a name that is held", got) // until the waiters' pauses are long
	for range 3 {
		released := time.Now()
		mustRelease(t, lease)
		lease = receiveLease(t, got)
		s.happenedAt(t, "the handover", time.Now(), released)
		mustNotHappen(t, 10*quiet, "two acquired the name", got)
	}
	mustRelease(t, lease)
}

// A waiter acquires a name that expires without a release.
func (s *suite) waitForTheEnd(t *testing.T) {
	n := newName()
	mustAcquire(t, s.open(t), n, 2*s.MinTTL)
	mustRelease(t, mustLease(t, s.locker(t), n, withWait(lock.Fixed(long), timeout)))
}

// A waiter that times out gets the holder's identity.
func (s *suite) waitInVain(t *testing.T) {
	n, patience := newName(), answerTimeout
	lease := mustLease(t, s.locker(t), n, lock.Fixed(long))
	began := time.Now()
	_, err := s.locker(t).Acquire(t.Context(), n, withWait(lock.Fixed(long), patience))
	var held *lock.HeldError
	if !errors.As(err, &held) || !s.HidesHolder && held.Owner != lease.Owner() {
		t.Errorf("got %v, want that %s holds the name", err, lease.Owner())
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("got %v, although the server answered and the caller's context has not ended", err)
	}
	if took := time.Since(began); took < patience {
		t.Errorf("gave up after %s", took)
	}
	mustBeAlive(t, lease)
	mustRelease(t, lease)
	mustBeFree(t, s.open(t), n)
}

// A waiter that gives up gets the cause of its context.
func (s *suite) giveUpWaiting(t *testing.T) {
	n, gaveUp := newName(), errors.New("gave up")
	lease := mustLease(t, s.locker(t), n, lock.Fixed(long))
	ctx, cancel := context.WithCancelCause(t.Context())
	l := s.locker(t)
	first := acquireAsync(ctx, l, n, withWait(lock.Fixed(long), timeout))
	second := acquireAsync(ctx, l, n, withWait(lock.Fixed(long), timeout))
	mustNotHappen(t, quiet, "acquired a name that is held", first)
	cancel(gaveUp)
	for _, waiter := range []<-chan acquired{first, second} {
		got := receive(t, "the end of the wait", waiter)
		wantErr(t, "acquire", got.err, gaveUp)
		if s.simulated { // on a real server the wait may end before the first answer, so that nobody knows
			wantErr(t, "acquire", got.err, lock.ErrHeld)
		}
	}
	mustRelease(t, lease)
	mustBeFree(t, s.open(t), n)
}

// A holder learns at its next renewal that another owner has the name.
func (s *suite) stolenByRival(t *testing.T) {
	n, operator := newName(), s.open(t).(lock.Admin)
	hold := s.frequentlyRenewed()
	hold.RenewEvery = answerTimeout // the rival acquires the name before the next renewal
	lease := mustLease(t, s.locker(t), n, hold)
	rival := s.open(t)
	if _, err := operator.Break(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	g := mustAcquire(t, rival, n, long)
	why := waitLost(t, lease)
	wantErr(t, "why the lease ended", why, s.stolenErr())
	wantErr(t, "release", lease.Release(t.Context()), s.stolenErr())
	if err := g.Release(t.Context(), 0); err != nil {
		t.Errorf("the rival's lease: %v", err)
	}
}

func (s *suite) releaseTwice(t *testing.T) {
	n := newName()
	lease := mustLease(t, s.locker(t), n, lock.Fixed(long))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lease.Release(ctx); err != nil { // works although the context has ended
		t.Fatal(err)
	}
	rival := mustAcquire(t, s.open(t), n, long)
	mustRelease(t, lease) // returns the same, and sends nothing
	if err := rival.Release(t.Context(), 0); err != nil {
		t.Errorf("the rival's lease: %v", err)
	}
}

// The context of a lease ends before the server frees the name.
func (s *suite) releaseEndsTheWork(t *testing.T) {
	n := newName()
	l, link := s.lockerWithLink(t)
	lease := mustLease(t, l, n, lock.Fixed(long))
	reached, release := link.HoldRequest(n, Release)
	defer release()
	released := make(chan error, 1)
	go func() { released <- lease.Release(t.Context()) }()
	receive(t, "the request", reached)
	wantErr(t, "the lease's context", lease.Context().Err(), context.Canceled)
	mustBeHeld(t, s.open(t), n)
	release()
	if err := receive(t, "the end of the release", released); err != nil {
		t.Errorf("release: %v", err)
	}
}
