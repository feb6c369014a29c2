package service

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

// TestThirtyTapsOneWinner: of concurrent taps one wins, and the database has its claim.
func TestThirtyTapsOneWinner(t *testing.T) {
	s := newShared(t)
	for name, instances := range map[string][]*instance{
		"one instance without Redis": {s.newInstance(nil)},
		"two instances":              {s.instance(), s.instance()},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				id, drivers := s.dispatch(), s.drivers(30) // new ones, as earlier winners are busy
				winners := make(chan dispatch.DriverID, len(drivers))
				testkit.Together(len(drivers), func(i int) {
					won, err := instances[i%len(instances)].Accept(t.Context(), Tap{id, drivers[i], 1})
					switch {
					case err == nil && won.Dispatch.HeldBy(drivers[i]) && !won.Replayed:
						winners <- drivers[i]
					case !errors.Is(err, dispatch.ErrAlreadyTaken):
						t.Errorf("%+v, %v", won, err)
					}
				})
				if n := len(winners); n != 1 {
					t.Fatalf("%d winners", n)
				}
				winner := <-winners
				if got := s.holder(id); got != winner {
					t.Errorf("%q won, %q is stored", winner, got)
				}
				s.mustCount(1, "claims WHERE dispatch_id = ?", id)
				if len(instances) == 2 {
					s.mustHave(t, id, takenValue(winner, 1))
				}
			}
		})
	}
}

// TestLosersDoNotWait: taps during a claim are refused at once.
func TestLosersDoNotWait(t *testing.T) {
	s := newSite(t)
	drivers, id := s.drivers(30), s.dispatch()
	release := s.hold(t, Tap{id, drivers[0], 1})
	testkit.Together(29, func(i int) { s.mustRefuse(t, Tap{id, drivers[i+1], 1}, false) })
	must(t, release())
	s.mustRefuse(t, Tap{id, drivers[1], 1}, true)
	if n := s.claims.claimed.Load(); n != 1 {
		t.Errorf("the database was asked %d times, want once", n)
	}
}

// TestSameDriverWaitsForTheFirstTap: concurrent taps of one driver share a decision.
func TestSameDriverWaitsForTheFirstTap(t *testing.T) {
	for _, fail := range []error{nil, dispatch.ErrUnavailable} {
		inBubble(t, func(t *testing.T, r *row, claims *intercepted, a *Acceptor) {
			claims.release, claims.fail = make(chan struct{}), fail
			tap := Tap{r.d.ID, ann, 1}
			var replayed, done atomic.Int32
			for range 5 {
				go func() {
					won, err := a.Accept(t.Context(), tap)
					if !errors.Is(err, fail) || err == nil && won.Dispatch.Claim.Driver != ann {
						t.Errorf("%+v, %v", won, err)
					}
					done.Add(1)
					if won.Replayed {
						replayed.Add(1)
					}
				}()
				synctest.Wait() // it leads, or waits for the leader
			}
			if done.Load() != 0 {
				t.Fatal("a tap was answered before the decision")
			}
			close(claims.release)
			synctest.Wait()
			want := map[error]int32{nil: 4}[fail]
			if done.Load() != 5 || replayed.Load() != want || claims.claimed.Load() != 1 {
				t.Errorf("%d answered, %d replayed, %d decisions", done.Load(), replayed.Load(), claims.claimed.Load())
			}
			if fail == nil {
				a.mustReplay(t, tap) // a retry later
			}
		})
	}
}

// TestWaitingTapCanBeCanceled: a client that hangs up ends its wait, but not the decision.
func TestWaitingTapCanBeCanceled(t *testing.T) {
	inBubble(t, func(t *testing.T, r *row, claims *intercepted, a *Acceptor) {
		claims.release = make(chan struct{})
		tap := func() (answer chan error, hangUp func()) {
			ctx, cancel := context.WithCancel(t.Context())
			answer = make(chan error, 1)
			go func() { answer <- errorOf(a.Accept(ctx, Tap{r.d.ID, ann, 1})) }()
			synctest.Wait()
			return answer, cancel
		}
		first, hangUpFirst := tap()
		second, hangUpSecond := tap()
		hangUpSecond()
		if err := <-second; !errors.Is(err, dispatch.ErrUnknown) || !errors.Is(err, context.Canceled) {
			t.Errorf("the canceled tap got %v", err)
		}
		hangUpFirst()
		synctest.Wait()
		if len(first) > 0 {
			t.Fatal("the decision was given up")
		}
		close(claims.release)
		if err := <-first; err != nil || !r.d.HeldBy(ann) {
			t.Errorf("after its client hung up: %v, %+v", err, r.d)
		}
	})
}

// TestDecisionHasATimeOfItsOwn: a client that hangs up early does not end the decision.
func TestDecisionHasATimeOfItsOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, r *row, claims *intercepted, _ *Acceptor) {
		a := NewAcceptor(AcceptorOptions{Claims: claims, Log: quiet}) // with the usual time
		claims.before = func(ctx context.Context, _ dispatch.DriverID) {
			if end, ok := ctx.Deadline(); !ok || time.Until(end) != decideTimeout || ctx.Err() != nil {
				t.Errorf("decided until %s, %v; want %s", end, ctx.Err(), decideTimeout)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		must(t, errorOf(a.Accept(ctx, Tap{r.d.ID, ann, 1})))
	})
}

func TestPanicEndsTheFlight(t *testing.T) {
	r := newRow()
	a := alone(&intercepted{ClaimStore: r, before: func(context.Context, dispatch.DriverID) { panic("broken") }})
	tap := Tap{r.d.ID, ann, 1}
	f := a.memory.mustEnter(t, tap)
	a.memory.mustRefuse(t, Tap{r.d.ID, bob, 1}, false)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		a.lead(t.Context(), tap, f)
	}()
	if !errors.Is(f.result.err, dispatch.ErrUnknown) {
		t.Errorf("waiting taps got %v", f.result.err)
	}
	if a.memory.stillToFollow() != 1 {
		t.Error("bob was refused, and no follow-up is scheduled")
	}
	a.claims = r
	a.mustWin(t, Tap{r.d.ID, bob, 1}) // the flight has ended
}

// TestRefusals gets each refusal from the real database.
func TestRefusals(t *testing.T) {
	s := newSite(t)
	v := s.drivers(3)
	offDuty, away := s.drivers(1, onDuty(false))[0], s.drivers(1, suspended)[0]
	later := func(column string, by time.Duration) dispatch.ID {
		id := s.dispatch()
		s.exec("UPDATE dispatches SET "+column+" = ? WHERE id = ?", time.Now().Add(by).UnixMicro(), id)
		return id
	}
	mine := s.dispatch()
	s.mustWin(t, Tap{mine, v[0], 1})
	for name, c := range map[string]struct {
		tap  Tap
		want error
	}{
		"taken":          {Tap{mine, v[1], 1}, dispatch.ErrAlreadyTaken},
		"busy":           {Tap{s.dispatch(), v[0], 1}, dispatch.ErrDriverBusy},
		"stale":          {Tap{s.dispatch(), v[1], 2}, dispatch.ErrOfferStale},
		"mine and stale": {Tap{mine, v[0], 9}, dispatch.ErrOfferStale},
		"too early":      {Tap{later("opens_at", time.Minute), v[1], 1}, dispatch.ErrNotOpenYet},
		"too late":       {Tap{later("expires_at", -time.Microsecond), v[1], 1}, dispatch.ErrExpired},
		"off duty":       {Tap{s.dispatch(), offDuty, 1}, dispatch.ErrNotEligible},
		"suspended":      {Tap{s.dispatch(), away, 1}, dispatch.ErrNotEligible},
		"no dispatch":    {Tap{dispatch.NewID(time.Now()), v[1], 1}, dispatch.ErrNotFound},
		"no driver":      {Tap{s.dispatch(), dispatch.NewDriverID(time.Now()), 1}, dispatch.ErrDriverNotFound},
	} {
		t.Run(name, func(t *testing.T) { s.mustFail(t, c.tap, c.want) })
	}
	s.mustCount(1, "claims")
	must(t, s.db.Close())
	s.mustFail(t, Tap{mine, v[0], 1}, dispatch.ErrUnavailable)
	if n := len(s.memory.flights); n != 0 {
		t.Errorf("%d flights are left", n)
	}
}

// TestNextRound: a withdrawn dispatch is open to every driver, in the new round only.
func TestNextRound(t *testing.T) {
	s := newSite(t)
	v, id := s.drivers(3), s.dispatch()
	s.mustWin(t, Tap{id, v[0], 1})
	s.mustFail(t, Tap{id, v[1], 1}, dispatch.ErrAlreadyTaken)
	must(t, errorOf(s.work.Withdraw(t.Context(), v[0], id, 0, "ILL")))
	s.mustFail(t, Tap{id, v[1], 1}, dispatch.ErrOfferStale)
	s.mustFail(t, Tap{id, v[0], noRound}, dispatch.ErrOfferStale) // the withdrawn claim's late retry
	s.mustWin(t, Tap{id, v[1], 2})
	s.mustFail(t, Tap{id, v[2], noRound}, dispatch.ErrAlreadyTaken)
	if got := s.holder(id); got != v[1] {
		t.Errorf("%s has it", got)
	}
}
