package locktest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"firsttap/lock"
)

// basics are what a Strategy and its Grants promise.
var basics = []test{
	{name: "RefuseASecond", run: (*suite).refuseASecond},
	{name: "Relock", run: (*suite).relock},
	{name: "ItsTimeEnds", run: (*suite).itsTimeEnds},
	{name: "Extend", run: (*suite).extend},
	{name: "ExtendShortens", run: (*suite).extendShortens},
	{name: "ExtendTooLate", run: (*suite).extendTooLate},
	{name: "KeepAfterRelease", run: (*suite).keepAfterRelease},
	{name: "OnlyTheOwner", run: (*suite).onlyTheOwner},
	{name: "RepeatedRelease", run: (*suite).repeatedRelease},
	{name: "EndedContext", run: (*suite).endedContext},
	{name: "AllAtOnce", run: (*suite).allAtOnce},
	{name: "FencesGrow", run: (*suite).fencesGrow},
}

func (s *suite) refuseASecond(t *testing.T) {
	mine, rivals, n, me := s.open(t), s.open(t), name(), owner()
	if _, err := mine.Acquire(t.Context(), n, me, long); err != nil {
		t.Fatal(err)
	}
	for who, strategy := range map[string]lock.Strategy{"the same client": mine, "another client": rivals} {
		g, err := strategy.Acquire(t.Context(), n, owner(), long)
		var held *lock.HeldError
		if !errors.As(err, &held) || errors.Is(err, lock.ErrUnavailable) || g != nil {
			t.Fatalf("%s: got %v and %v, want a HeldError", who, g, err)
		}
		if s.Anonymous {
			continue
		}
		if held.Owner != me {
			t.Errorf("%s: held by %q, want %q", who, held.Owner, me)
		}
		if held.Left > long || held.Left <= long-patience && !s.Session {
			t.Errorf("%s: held for %s, want nearly %s", who, held.Left, long)
		}
	}
}

// Released is free at once, for anybody, again and again.
func (s *suite) relock(t *testing.T) {
	strategies, n := []lock.Strategy{s.open(t), s.open(t)}, name()
	for i := range 10 {
		mine, rival := strategies[i%2], strategies[(i+1)%2]
		g := take(t, mine, n, long)
		mustBeHeld(t, rival, n)
		if err := g.Release(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// Not before its time, and without anybody's help.
func (s *suite) itsTimeEnds(t *testing.T) {
	n, sent := name(), time.Now()
	take(t, s.open(t), n, 2*s.Brief)
	_, at := takeOver(t, s.open(t), n, long)
	s.notBefore(t, at, sent.Add(2*s.Brief))
}

// notBefore fails the test if what a server timed happened before end, by more than its clock's unit.
func (s *suite) notBefore(t testing.TB, at, end time.Time) {
	t.Helper()
	const unit = 2 * time.Millisecond
	if early := end.Sub(at); early > unit {
		t.Errorf("taken %s too early", early)
	}
}

func (s *suite) extend(t *testing.T) {
	n := name()
	g := take(t, s.open(t), n, 2*s.Brief)
	rival := s.open(t)
	for range 2 { // repeating it does no harm
		if err := g.Extend(t.Context(), 4*s.Brief); err != nil {
			t.Fatal(err)
		}
	}
	sent := time.Now()
	if err := g.Extend(t.Context(), 4*s.Brief); err != nil {
		t.Fatal(err)
	}
	_, at := takeOver(t, rival, n, long)
	s.notBefore(t, at, sent.Add(4*s.Brief))
}

// The end is ttl from now, also when it was later.
func (s *suite) extendShortens(t *testing.T) {
	n := name()
	g := take(t, s.open(t), n, long)
	if err := g.Extend(t.Context(), s.Brief); err != nil {
		t.Fatal(err)
	}
	takeOver(t, s.open(t), n, long)
}

// What has ended stays ended, whoever has the name by now.
func (s *suite) extendTooLate(t *testing.T) {
	n, mine, rivals := name(), s.open(t), s.open(t)
	g := take(t, mine, n, s.Brief)
	rival, _ := takeOver(t, rivals, n, long)
	is(t, "extend what a rival has", g.Extend(t.Context(), long), s.stolen())
	if err := rival.Release(t.Context(), 0); err != nil {
		t.Fatalf("the rival's lease is gone: %v", err)
	}
	is(t, "extend what nobody has any more", g.Extend(t.Context(), long), lock.ErrLost)
	mustBeFree(t, rivals, n)
}

// cutOff is what a holder is told when the server can't be reached. A session is given up when it does not answer.
func (s *suite) cutOff() error {
	if s.Session {
		return lock.ErrLost
	}
	return lock.ErrUnreachable
}

// stolen is what a holder is told when a rival has the name. A session that has ended can't tell more than that.
func (s *suite) stolen() error {
	if s.Session {
		return lock.ErrLost
	}
	return lock.ErrStolen
}

func (s *suite) keepAfterRelease(t *testing.T) {
	n, rival := name(), s.open(t)
	g := take(t, s.open(t), n, long)
	released := time.Now()
	if err := g.Release(t.Context(), 2*s.Brief); err != nil {
		t.Fatal(err)
	}
	_, at := takeOver(t, rival, n, long)
	s.notBefore(t, at, released.Add(2*s.Brief))
}

// A grant that is over touches nothing that a rival has.
func (s *suite) onlyTheOwner(t *testing.T) {
	n, mine, rivals := name(), s.open(t), s.open(t)
	g := take(t, mine, n, s.Brief)
	rival, _ := takeOver(t, rivals, n, long)
	is(t, "release", g.Release(t.Context(), 0), s.stolen())
	is(t, "release and keep", g.Release(t.Context(), s.Brief), s.stolen())
	is(t, "extend", g.Extend(t.Context(), s.Brief), s.stolen())
	pass(s.Brief + glance) // the Brief that it asked for passes
	mustBeHeld(t, mine, n)
	if err := rival.Extend(t.Context(), long); err != nil {
		t.Errorf("the rival's lease: %v", err)
	}
	if err := rival.Release(t.Context(), 0); err != nil {
		t.Errorf("the rival's lease: %v", err)
	}
}

func (s *suite) repeatedRelease(t *testing.T) {
	n, mine := name(), s.open(t)
	g := take(t, mine, n, long)
	if err := g.Release(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	is(t, "release again", g.Release(t.Context(), 0), lock.ErrExpired)
	rival := take(t, s.open(t), n, long)
	is(t, "release again", g.Release(t.Context(), 0), lock.ErrLost)
	if err := rival.Extend(t.Context(), long); err != nil {
		t.Errorf("the rival's lease: %v", err)
	}
}

// Nobody can tell what became of a request that the caller gave up, and nothing of it stays.
func (s *suite) endedContext(t *testing.T) {
	n, l := name(), s.locker(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errWork)
	for _, hold := range []lock.Hold{lock.Fixed(long), waiting(lock.Fixed(long), patience)} {
		_, err := l.Acquire(ctx, n, hold)
		is(t, "acquire", err, lock.ErrUnavailable)
		is(t, "acquire", err, errWork)
	}
	takeOver(t, s.open(t), n, long)
}

// Of twenty who ask at the same time one gets in.
func (s *suite) allAtOnce(t *testing.T) {
	clients := []lock.Strategy{s.open(t), s.open(t), s.open(t)}
	for range 5 {
		n := name()
		granted := make(chan lock.Grant, 20)
		start := make(chan struct{})
		var asking sync.WaitGroup
		for i := range cap(granted) {
			asking.Go(func() {
				<-start
				g, err := clients[i%len(clients)].Acquire(t.Context(), n, owner(), long)
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
		if len(granted) > 1 || len(granted) == 0 && !s.Splits {
			t.Errorf("%d of %d got in", len(granted), cap(granted))
		}
	}
}

// However a lease ends, the next one has the larger fence.
func (s *suite) fencesGrow(t *testing.T) {
	n, clients := name(), []lock.Strategy{s.open(t), s.open(t)}
	last := int64(0)
	for i := range 12 {
		ttl := long
		if i%4 == 3 {
			ttl = s.Brief
		}
		g, _ := takeOver(t, clients[i%2], n, ttl)
		if g.Fence() <= last {
			t.Errorf("%d after %d", g.Fence(), last)
		}
		last = g.Fence()
		if ttl == s.Brief {
			continue // it ends by itself
		}
		if err := g.Release(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
}
