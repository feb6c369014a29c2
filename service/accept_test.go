package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

func TestThirtyTapsOneWinner(t *testing.T) {
	p := newPlace(t)
	for round := range 10 {
		id, a := p.dispatch(), alone(p)
		drivers := p.drivers(30) // new ones, as earlier winners are busy
		var mu sync.Mutex
		var winner dispatch.DriverID
		testkit.Together(len(drivers), func(i int) {
			won, err := a.Accept(t.Context(), Tap{id, drivers[i], 1})
			var taken *dispatch.TakenError
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && winner == "" && won.Dispatch.HeldBy(drivers[i]) && !won.Replayed:
				winner = drivers[i]
			case !errors.As(err, &taken):
				t.Errorf("round %d: %+v, %v", round, won, err)
			}
		})
		if got := p.holder(id); got != winner || winner == "" {
			t.Errorf("%q won, %q is stored", winner, got)
		}
		if n := p.count("claims WHERE dispatch_id = ?", id); n != 1 {
			t.Errorf("%d claims", n)
		}
	}
}

// TestLosersDoNotWait: taps during a claim are refused at once.
func TestLosersDoNotWait(t *testing.T) {
	p := newPlace(t)
	drivers, id := p.drivers(30), p.dispatch()
	claims := &slow{ClaimStore: p, entered: make(chan dispatch.DriverID, 1), release: make(chan struct{})}
	a := alone(claims)
	first := make(chan error, 1)
	go func() {
		_, err := a.Accept(t.Context(), Tap{id, drivers[0], 1})
		first <- err
	}()
	testkit.Await(t, "the first claim", claims.entered)
	testkit.Together(29, func(i int) {
		var taken *dispatch.TakenError
		if _, err := a.Accept(t.Context(), Tap{id, drivers[i+1], 1}); !errors.As(err, &taken) || taken.Final {
			t.Errorf("while the claim is under way: %v", err)
		}
	})
	close(claims.release)
	if err := testkit.Await(t, "the first answer", first); err != nil {
		t.Fatal(err)
	}
	var taken *dispatch.TakenError
	if _, err := a.Accept(t.Context(), Tap{id, drivers[1], 1}); !errors.As(err, &taken) || !taken.Final {
		t.Errorf("after its commit: %v", err)
	}
	if n := claims.claimed.Load(); n != 1 {
		t.Errorf("the database was asked %d times, want once", n)
	}
}

// TestSameDriverWaitsForTheFirstTap: concurrent taps of one driver share a decision.
func TestSameDriverWaitsForTheFirstTap(t *testing.T) {
	for _, fail := range []error{nil, dispatch.ErrUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			r := newRow()
			claims := &slow{ClaimStore: r, release: make(chan struct{}), fail: fail}
			a := alone(claims)
			var replayed, done atomic.Int32
			for range 5 {
				go func() {
					won, err := a.Accept(t.Context(), Tap{r.d.ID, ann, 1})
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
			want := int32(4)
			if fail != nil {
				want = 0
			}
			if done.Load() != 5 || replayed.Load() != want || claims.claimed.Load() != 1 {
				t.Errorf("%d answered, %d replayed, %d decisions", done.Load(), replayed.Load(), claims.claimed.Load())
			}
			won, err := a.Accept(t.Context(), Tap{r.d.ID, ann, 1})
			if fail == nil && (err != nil || !won.Replayed) {
				t.Errorf("a retry later: %+v, %v", won, err)
			}
		})
	}
}

func TestWaitingTapCanBeCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRow()
		claims := &slow{ClaimStore: r, release: make(chan struct{})}
		a := alone(claims)
		tap := Tap{r.d.ID, ann, 1}
		first := make(chan error, 1)
		hangUpFirst, cancelFirst := context.WithCancel(t.Context())
		go func() {
			_, err := a.Accept(hangUpFirst, tap)
			first <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		second := make(chan error, 1)
		go func() {
			_, err := a.Accept(ctx, tap)
			second <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-second; !errors.Is(err, dispatch.ErrUnknown) || !errors.Is(err, context.Canceled) {
			t.Errorf("the canceled tap got %v", err)
		}
		cancelFirst() // which must not cancel the decision
		synctest.Wait()
		select {
		case err := <-first:
			t.Errorf("the decision was given up: %v", err)
		default:
		}
		close(claims.release)
		if err := <-first; err != nil || !r.d.HeldBy(ann) {
			t.Errorf("after its client hung up: %v, %+v", err, r.d)
		}
	})
}

// contextSeen records the context of a decision.
type contextSeen struct {
	*row
	deadline time.Duration
	err      error
}

func (c *contextSeen) Claim(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
	rule func(*dispatch.Dispatch, dispatch.Candidate, time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	if at, ok := ctx.Deadline(); ok {
		c.deadline = time.Until(at)
	}
	c.err = ctx.Err()
	return c.row.Claim(ctx, id, driver, rule)
}

func TestDecisionHasATimeOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &contextSeen{row: newRow()}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := alone(c).Accept(ctx, Tap{c.d.ID, ann, 1}); err != nil {
			t.Fatal(err)
		}
		if c.err != nil || c.deadline != decideTimeout {
			t.Errorf("decided within %s, %v; want %s", c.deadline, c.err, decideTimeout)
		}
	})
}

type panics struct{ ClaimStore }

func (panics) Claim(context.Context, dispatch.ID, dispatch.DriverID,
	func(*dispatch.Dispatch, dispatch.Candidate, time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	panic("broken")
}

func TestPanicEndsTheFlight(t *testing.T) {
	r := newRow()
	a := alone(panics{r})
	tap := Tap{r.d.ID, ann, 1}
	f := mustEnter(t, a.inflight, tap)
	mustRefuse(t, a.inflight, Tap{r.d.ID, bob, 1}, false)
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
	if _, chased := a.reannouncer.open[r.d.ID]; !chased {
		t.Error("bob was refused, and no follow-up is scheduled")
	}
	a.claims = r
	if _, err := a.Accept(t.Context(), Tap{r.d.ID, bob, 1}); err != nil {
		t.Errorf("the flight was not ended: %v", err)
	}
}

// TestRefusals gets each refusal from the real database.
func TestRefusals(t *testing.T) {
	p := newPlace(t)
	a := alone(p)
	v := p.drivers(3)
	offDuty := p.drivers(1, func(v *dispatch.Driver) { v.OnDuty = false })[0]
	suspended := p.drivers(1, func(v *dispatch.Driver) { v.SuspendedUntil = new(time.Now().Add(time.Hour)) })[0]
	later := func(id dispatch.ID, column string, by time.Duration) dispatch.ID {
		_, err := p.raw.ExecContext(t.Context(),
			fmt.Sprintf("UPDATE dispatches SET %s = ? WHERE id = ?", column), time.Now().Add(by).UnixMicro(), id)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	mine := p.dispatch()
	if _, err := a.Accept(t.Context(), Tap{mine, v[0], 1}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		tap  Tap
		want error
	}{
		"taken":          {Tap{mine, v[1], 1}, dispatch.ErrAlreadyTaken},
		"busy":           {Tap{p.dispatch(), v[0], 1}, dispatch.ErrDriverBusy},
		"stale":          {Tap{p.dispatch(), v[1], 2}, dispatch.ErrOfferStale},
		"mine and stale": {Tap{mine, v[0], 9}, dispatch.ErrOfferStale},
		"too early":      {Tap{later(p.dispatch(), "opens_at", time.Minute), v[1], 1}, dispatch.ErrNotOpenYet},
		"too late":       {Tap{later(p.dispatch(), "expires_at", -time.Microsecond), v[1], 1}, dispatch.ErrExpired},
		"off duty":       {Tap{p.dispatch(), offDuty, 1}, dispatch.ErrNotEligible},
		"suspended":      {Tap{p.dispatch(), suspended, 1}, dispatch.ErrNotEligible},
		"no dispatch":    {Tap{dispatch.NewID(time.Now()), v[1], 1}, dispatch.ErrNotFound},
		"no driver":      {Tap{p.dispatch(), dispatch.NewDriverID(time.Now()), 1}, dispatch.ErrDriverNotFound},
	} {
		if won, err := a.Accept(t.Context(), c.tap); !errors.Is(err, c.want) || won.Dispatch.Claim != nil {
			t.Errorf("%s: got %+v, %v; want %v", name, won, err, c.want)
		}
	}
	if n := p.count("claims"); n != 1 {
		t.Errorf("%d claims, want 1", n)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Accept(t.Context(), Tap{mine, v[0], 1}); !errors.Is(err, dispatch.ErrUnavailable) {
		t.Errorf("without a database: %v", err)
	}
	if len(a.inflight.flights) != 0 {
		t.Errorf("%d flights are left", len(a.inflight.flights))
	}
}

// TestNextRound: a withdrawn dispatch is open to every driver, in the new round only.
func TestNextRound(t *testing.T) {
	p := newPlace(t)
	a := alone(p)
	work := NewDriverService(DriverServiceOptions{Store: p, Acceptor: a, Now: time.Now})
	v, id := p.drivers(3), p.dispatch()
	accept := func(driver dispatch.DriverID, round int) error {
		_, err := a.Accept(t.Context(), Tap{id, driver, round})
		return err
	}
	if err := accept(v[0], 1); err != nil {
		t.Fatal(err)
	}
	if err := accept(v[1], 1); !errors.Is(err, dispatch.ErrAlreadyTaken) {
		t.Fatal(err)
	}
	if _, err := work.Withdraw(t.Context(), v[0], id, 0, "ILL"); err != nil {
		t.Fatal(err)
	}
	if err := accept(v[1], 1); !errors.Is(err, dispatch.ErrOfferStale) {
		t.Errorf("a tap on the old offer: %v", err)
	}
	if err := accept(v[0], noRound); !errors.Is(err, dispatch.ErrOfferStale) {
		t.Errorf("the withdrawn claim's late retry: %v", err)
	}
	if err := accept(v[1], 2); err != nil {
		t.Errorf("a tap on the new offer: %v", err)
	}
	if err := accept(v[2], noRound); !errors.Is(err, dispatch.ErrAlreadyTaken) {
		t.Errorf("a tap that names no round: %v", err)
	}
	if got := p.holder(id); got != v[1] {
		t.Errorf("%s has it", got)
	}
}
