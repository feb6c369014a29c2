package locktest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"firsttap/lock"
)

// basics test the contract of a Strategy and its Grants.
var basics = []test{
	{name: "RefuseASecond", scope: Contract, run: (*suite).refuseASecond},
	{name: "Relock", scope: Contract, run: (*suite).relock},
	{name: "LeaseExpires", scope: Contract, run: (*suite).leaseExpires},
	{name: "Extend", scope: Contract, run: (*suite).extend},
	{name: "ExtendTooLate", scope: Contract, run: (*suite).extendTooLate},
	{name: "KeepAfterRelease", scope: Contract, run: (*suite).keepAfterRelease},
	{name: "OnlyTheOwner", scope: Contract, run: (*suite).onlyTheOwner},
	{name: "RepeatedRelease", scope: Contract, run: (*suite).repeatedRelease},
	{name: "EndedContext", scope: Contract, run: (*suite).endedContext},
	{name: "AllAtOnce", scope: Contract, run: (*suite).allAtOnce},
	{name: "FencesGrow", scope: Contract, run: (*suite).fencesGrow},
}

func (s *suite) refuseASecond(t *testing.T) {
	mine, rivals, n, me := s.open(t), s.open(t), newName(), newOwner()
	if _, err := mine.Acquire(t.Context(), n, me, long); err != nil {
		t.Fatal(err)
	}
	for _, strategy := range []lock.Strategy{mine, rivals} {
		s.mustRemain(t, strategy, n, me)
	}
}

// A released name is free at once, for every process, and repeatedly.
func (s *suite) relock(t *testing.T) {
	strategies, n := []lock.Strategy{s.open(t), s.open(t)}, newName()
	for i := range 10 {
		mine, rival := strategies[i%2], strategies[(i+1)%2]
		g := mustAcquire(t, mine, n, long)
		mustBeHeld(t, rival, n)
		if err := g.Release(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// A grant expires after its ttl, not earlier.
func (s *suite) leaseExpires(t *testing.T) {
	n, sent := newName(), time.Now()
	mustAcquire(t, s.open(t), n, 2*s.MinTTL)
	_, at := acquireEventually(t, s.open(t), n, long)
	s.happenedAt(t, "the end of the grant", at, sent.Add(2*s.MinTTL))
}

// happenedAt fails the test if at is before want by more than the unit of a server's clock. In a bubble only polling makes
// something late, so there it also fails the test if at is after want by more than the pause between two polls.
func (s *suite) happenedAt(t testing.TB, what string, at, want time.Time) {
	t.Helper()
	if off := at.Sub(want); off < -clockUnit || s.simulated && off > pollLate {
		t.Errorf("%s: %s from when it should be", what, off)
	}
}

// An extended grant outlasts its first end, and ends when it was told to.
func (s *suite) extend(t *testing.T) {
	n, me, ttl := newName(), newOwner(), s.renewableTTL()
	rival, sent := s.open(t), time.Now()
	g, err := s.open(t).Acquire(t.Context(), n, me, ttl)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // may be repeated
		if err := g.Extend(t.Context(), long); err != nil {
			t.Fatal(err)
		}
	}
	if s.EndsWithConnection || s.HidesHolder || s.simulated { // the others know how much time remains
		mustStayHeld(t, rival, n, time.Until(sent.Add(ttl+quiet)))
	}
	s.mustRemain(t, rival, n, me)
	sent = time.Now()
	if err := g.Extend(t.Context(), 2*s.MinTTL); err != nil {
		t.Fatal(err)
	}
	_, at := acquireEventually(t, rival, n, long)
	s.happenedAt(t, "the end of the grant", at, sent.Add(2*s.MinTTL))
}

// An expired grant stays expired, whether the name is free or has another owner.
func (s *suite) extendTooLate(t *testing.T) {
	n, mine, rivals := newName(), s.open(t), s.open(t)
	g := mustAcquire(t, mine, n, s.MinTTL)
	rival, _ := acquireEventually(t, rivals, n, long)
	wantErr(t, "extend a name that a rival holds", g.Extend(t.Context(), long), s.stolenErr())
	if err := rival.Release(t.Context(), 0); err != nil {
		t.Fatalf("the rival's lease is lost: %v", err)
	}
	wantErr(t, "extend a name that is free", g.Extend(t.Context(), long), lock.ErrLost)
	mustBeFree(t, rivals, n)
}

// unreachableErr is why a lease is lost when the server can't be reached. A session that does not answer is closed.
func (s *suite) unreachableErr() error {
	if s.EndsWithConnection {
		return lock.ErrLost
	}
	return lock.ErrUnreachable
}

// stolenErr is the error of a holder whose name has another owner. A session that has ended can't distinguish that.
func (s *suite) stolenErr() error {
	if s.EndsWithConnection {
		return lock.ErrLost
	}
	return lock.ErrStolen
}

func (s *suite) keepAfterRelease(t *testing.T) {
	n, rival := newName(), s.open(t)
	g := mustAcquire(t, s.open(t), n, long)
	released := time.Now()
	if err := g.Release(t.Context(), 2*s.MinTTL); err != nil {
		t.Fatal(err)
	}
	_, at := acquireEventually(t, rival, n, long)
	s.happenedAt(t, "the end of the name's rest", at, released.Add(2*s.MinTTL))
}

// A grant that is over changes nothing for the new owner.
func (s *suite) onlyTheOwner(t *testing.T) {
	n, mine, rivals := newName(), s.open(t), s.open(t)
	g := mustAcquire(t, mine, n, s.MinTTL)
	rival, _ := acquireEventually(t, rivals, n, long)
	wantErr(t, "release", g.Release(t.Context(), 0), s.stolenErr())
	wantErr(t, "release and keep", g.Release(t.Context(), s.MinTTL), s.stolenErr())
	wantErr(t, "extend", g.Extend(t.Context(), s.MinTTL), s.stolenErr())
	mustStayHeld(t, mine, n, s.MinTTL+quiet) // longer than the MinTTL of those requests
	if err := rival.Extend(t.Context(), long); err != nil {
		t.Errorf("the rival's lease: %v", err)
	}
	if err := rival.Release(t.Context(), 0); err != nil {
		t.Errorf("the rival's lease: %v", err)
	}
}

func (s *suite) repeatedRelease(t *testing.T) {
	n, mine := newName(), s.open(t)
	g := mustAcquire(t, mine, n, long)
	if err := g.Release(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "release again", g.Release(t.Context(), 0), lock.ErrExpired)
	rival := mustAcquire(t, s.open(t), n, long)
	wantErr(t, "release again", g.Release(t.Context(), 0), lock.ErrLost)
	if err := rival.Extend(t.Context(), long); err != nil {
		t.Errorf("the rival's lease: %v", err)
	}
}

// A request whose caller has given up is unavailable, and leaves nothing behind.
func (s *suite) endedContext(t *testing.T) {
	n, l := newName(), s.locker(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errOfWork)
	for _, hold := range []lock.Hold{lock.Fixed(long), withWait(lock.Fixed(long), timeout)} {
		_, err := l.Acquire(ctx, n, hold)
		wantErr(t, "acquire", err, lock.ErrUnavailable)
		wantErr(t, "acquire", err, errOfWork)
	}
	acquireEventually(t, s.open(t), n, long)
}

// Of twenty concurrent attempts, one succeeds: when nobody has held the name before, and when somebody has.
func (s *suite) allAtOnce(t *testing.T) {
	clients := []lock.Strategy{s.open(t), s.open(t), s.open(t)}
	for range 5 {
		n := newName()
		for range 2 {
			s.mustHaveOneWinner(t, clients, n)
		}
	}
}

// mustHaveOneWinner has twenty acquire a free name at once, and frees it. Where the strategy may refuse all of them, that leaves
// the name free.
func (s *suite) mustHaveOneWinner(t *testing.T, clients []lock.Strategy, name string) {
	t.Helper()
	granted, start := make(chan lock.Grant, 20), make(chan struct{})
	var asking sync.WaitGroup
	for i := range cap(granted) {
		asking.Go(func() {
			<-start
			g, err := clients[i%len(clients)].Acquire(t.Context(), name, newOwner(), long)
			switch {
			case err == nil:
				granted <- g
			case !errors.Is(err, lock.ErrHeld):
				t.Errorf("got %v, want %v", err, lock.ErrHeld)
			}
		})
	}
	close(start)
	asking.Wait()
	close(granted)
	if n := len(granted); n == 0 && s.MayRefuseAll {
		g, _ := acquireEventually(t, clients[0], name, long)
		mustFree(t, g)
	} else if n != 1 {
		t.Errorf("%d of %d acquired the name", n, cap(granted))
	}
	for g := range granted {
		mustFree(t, g)
	}
}

func mustFree(t testing.TB, g lock.Grant) {
	t.Helper()
	if err := g.Release(t.Context(), 0); err != nil {
		t.Errorf("release: %v", err)
	}
}

// However a lease ends, the next one has a larger fence.
func (s *suite) fencesGrow(t *testing.T) {
	n, clients := newName(), []lock.Strategy{s.open(t), s.open(t)}
	last := int64(0)
	for i := range 12 {
		ttl := long
		if i%4 == 3 {
			ttl = s.MinTTL
		}
		g, _ := acquireEventually(t, clients[i%2], n, ttl)
		if g.Fence() <= last {
			t.Errorf("%d after %d", g.Fence(), last)
		}
		last = g.Fence()
		if ttl == s.MinTTL {
			continue // it expires
		}
		if err := g.Release(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
}
