//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package service

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

const madeUp = 1<<31 - 1

// hopefuls returns taps that cannot win, by reason.
func hopefuls(p *place) map[string]Tap {
	taps := map[string]Tap{
		"off duty":        {Driver: p.drivers(1, onDuty(false))[0], Round: 1},
		"another vehicle": {Driver: p.drivers(1, func(v *dispatch.Driver) { v.VehicleClass = "20m" })[0], Round: 1},
		"busy":            {Driver: p.drivers(1)[0], Round: 1},
		"a made-up round": {Driver: p.drivers(1)[0], Round: madeUp},
	}
	alone(p).mustWin(p.t, Tap{p.dispatch(), taps["busy"].Driver, 1})
	return taps
}

// mustNotDelay makes the cheat's tap on many open dispatches at instance here, and lets another driver tap at instance there
// during each of them. It fails the test if the cheat's taps refuse more than one of the others.
func mustNotDelay(t *testing.T, p *place, here, there *Acceptor, cheat Tap) {
	claims := &intercepted{ClaimStore: p}
	here.claims = claims
	many, refused := testkit.Scale(5, 20), 0
	for _, honest := range p.drivers(many) {
		tap, asked := cheat, false
		tap.Dispatch = p.dispatch()
		claims.before = func(_ context.Context, v dispatch.DriverID) {
			if v != cheat.Driver {
				return
			}
			asked = true
			switch _, err := there.Accept(t.Context(), Tap{tap.Dispatch, honest, 1}); {
			case errors.Is(err, dispatch.ErrAlreadyTaken):
				refused++
			case err != nil:
				t.Fatal(err)
			}
		}
		if _, err := here.Accept(t.Context(), tap); err == nil || !asked {
			t.Fatalf("%+v, asked %v: %v", tap, asked, err)
		}
	}
	if t.Logf("%d of %d honest taps were refused in the middle of these", refused, many); refused > 1 {
		t.Error("want one at most")
	}
}

// TestHopelessTapsDelayNobody: a driver whose taps cannot win refuses other drivers once at most, at the same instance and, by the lock in
// Redis, at another one.
func TestHopelessTapsDelayNobody(t *testing.T) {
	s := newShared(t)
	for name, cheat := range hopefuls(s.place) {
		t.Run(name, func(t *testing.T) {
			here, there := s.instance().Acceptor, s.instance().Acceptor
			mustNotDelay(t, s.place, here, there, cheat)
			one := alone(s.place)
			mustNotDelay(t, s.place, one, one, cheat)
		})
	}
}

// TestHopelessBeforeTheOpening: an early tap sidelines a driver who is off duty, but not an eligible one.
func TestHopelessBeforeTheOpening(t *testing.T) {
	s := newSite(t)
	off, on, id := s.drivers(1, onDuty(false))[0], s.drivers(1)[0], s.dispatch()
	s.exec("UPDATE dispatches SET opens_at = opens_at + 3600000000")
	s.mustFail(t, Tap{id, off, 1}, dispatch.ErrNotOpenYet)
	s.mustFail(t, Tap{id, on, 1}, dispatch.ErrNotOpenYet)
	s.exec("UPDATE dispatches SET opens_at = created_at")
	s.claims.before = func(_ context.Context, v dispatch.DriverID) {
		if v == off {
			s.mustWin(t, Tap{id, on, 1}) // at the opening, during a tap of a driver who is off duty
		}
	}
	if _, err := s.Accept(t.Context(), Tap{id, off, 1}); err == nil {
		t.Error("the driver who is off duty has it")
	}
	if s.holder(id) != on {
		t.Error("the honest driver does not have it")
	}
	if s.memory.isSidelined(on) || !s.memory.isSidelined(off) {
		t.Error("the eligible driver is sidelined, or the one who is off duty is not")
	}
}

// TestSidelinedIsNoVerdict: a sidelined driver can win, and gets the same answers as others.
func TestSidelinedIsNoVerdict(t *testing.T) {
	s := newSite(t)
	off, on := s.drivers(1, onDuty(false))[0], s.drivers(1)[0]
	first, second := s.dispatch(), s.dispatch()
	for range 3 {
		s.mustFail(t, Tap{first, off, 1}, dispatch.ErrNotEligible)
	}
	_, _, err := s.SetDuty(t.Context(), off, true)
	must(t, err)
	s.mustWin(t, Tap{first, off, 1})
	if s.memory.isSidelined(off) {
		t.Error("a driver who has won is still sidelined")
	}
	s.mustReplay(t, Tap{first, off, 1})
	s.mustRefuse(t, Tap{first, on, 1}, true)
	s.mustWin(t, Tap{second, on, 1})
	s.mustRefuse(t, Tap{second, off, 1}, true)
}

func TestSidelinedForAWhile(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := newMemory()
		tap := Tap{aJob, ann, 1}
		if !g.sideline(ann) || g.sideline(ann) {
			t.Error("the first time is new, the second is not")
		}
		f := g.mustEnter(t, tap)
		if joined, leads, err := g.enter(tap); joined != f || leads || err != nil {
			t.Errorf("the same driver's second tap: %v, leads %v, %v", joined, leads, err)
		}
		other := g.mustEnter(t, Tap{aJob, bob, 1}) // as if ann had not tapped
		g.mustRefuse(t, Tap{aJob, cyd, 1}, false)
		g.finish(f, result{})
		g.mustRefuse(t, tap, false) // bob's tap is being decided
		g.finish(other, result{})
		time.Sleep(sidelinedFor)
		f = g.mustEnter(t, tap)
		g.mustRefuse(t, Tap{aJob, bob, 1}, false)
		g.finish(f, result{})
		for i := range maxSidelined + 10 {
			g.sideline(dispatch.DriverID(fmt.Sprint(i)))
		}
		if n := g.sidelined.Len(); n != maxSidelined {
			t.Errorf("%d are remembered, want %d", n, maxSidelined)
		}
	})
}

// TestAFewSidelinedAtATime: few taps of sidelined drivers are decided at a time, and other drivers' taps do not wait for them.
func TestAFewSidelinedAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, r *row, claims *intercepted, a *Acceptor) {
		claims.entered, claims.release = make(chan dispatch.DriverID, 10), make(chan struct{})
		var answers []<-chan error
		for i := range 5 {
			v := dispatch.DriverID(fmt.Sprint("drv_", i))
			a.memory.sideline(v)
			answers = append(answers, a.start(t, Tap{r.d.ID, v, 1}))
		}
		synctest.Wait()
		if n := len(claims.entered); n != sidelinedSlots {
			t.Errorf("%d are decided at a time, want %d", n, sidelinedSlots)
		}
		a.start(t, Tap{r.d.ID, ann, 1})
		synctest.Wait()
		if n := len(claims.entered); n != sidelinedSlots+1 {
			t.Error("a driver who is not sidelined waits for those who are")
		}
		close(claims.release)
		won := 0
		for _, answer := range answers {
			if err := <-answer; err == nil {
				won++
			} else {
				mustBe(t, err, dispatch.ErrAlreadyTaken)
			}
		}
		if won > 1 || claims.claimed.Load() != sidelinedSlots+1 {
			t.Errorf("%d won, %d were decided: waiting taps must be refused without a query", won, claims.claimed.Load())
		}
	})
}

func TestNoSidelinedSlot(t *testing.T) {
	inBubble(t, func(t *testing.T, r *row, _ *intercepted, a *Acceptor) {
		for range sidelinedSlots {
			a.slots <- struct{}{}
		}
		a.memory.sideline(ann)
		a.mustFail(t, Tap{r.d.ID, ann, 1}, dispatch.ErrUnavailable)
	})
}

// TestMadeUpOffersAreForgotten: dispatches and rounds that a driver makes up take no room: one check drops them.
func TestMadeUpOffersAreForgotten(t *testing.T) {
	p := newPlace(t)
	a, open, later := alone(p), p.dispatch(), p.dispatch()
	p.exec("UPDATE dispatches SET opens_at = opens_at + 3600000000 WHERE id = ?", later)
	for i := range 20 {
		a.memory.follow(offer{dispatch.NewID(time.Now()), 1}, 0, false)
		a.memory.follow(offer{open, i + 2}, 0, false)
		a.memory.follow(offer{later, i + 2}, 0, false)
	}
	a.memory.follow(offer{later, 1}, 0, false)
	a.followUp(t.Context(), time.Now())
	if n := a.memory.stillToFollow(); n != 1 || !a.memory.followUps.Contains(offer{later, 1}) {
		t.Errorf("%d are followed up, want the one that opens later", n)
	}
}

// TestAnnouncedOnceByAll: a failed claim is announced once, however many instances and rounds have refused taps because of it.
func TestAnnouncedOnceByAll(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		p := newPlace(t)
		id := p.dispatch()
		for range 3 {
			a := alone(p)
			testkit.Run(t, a.Run)
			a.memory.follow(offer{id, 1}, 0, false)
			a.memory.follow(offer{id, noRound}, followUpRetry, false)
		}
		pass(5 * time.Minute)
		p.mustAnnounceAgain(id, 1)
	})
}

// TestAnnouncementsAreApart: failing taps of a new account every second cause a few announcements per minute and no new
// version, and a last announcement follows the last refused tap.
func TestAnnouncementsAreApart(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		p := newPlace(t)
		id, honest := p.dispatch(), p.drivers(1)[0]
		before := p.stored(id)
		claims := &intercepted{ClaimStore: p}
		a := alone(claims)
		testkit.Run(t, a.Run)
		claims.before = func(context.Context, dispatch.DriverID) {
			a.mustFail(t, Tap{id, honest, 1}, dispatch.ErrAlreadyTaken)
		}
		for _, cheat := range p.drivers(60, onDuty(false)) {
			a.mustFail(t, Tap{id, cheat, 1}, dispatch.ErrNotEligible)
			pass(time.Second)
		}
		n := p.announcedAgain(id)
		t.Logf("60 accounts in a minute: %d announcements", n)
		if n < 1 || n > 3 {
			t.Errorf("announced %d times in a minute, want 3 at most", n)
		}
		pass(time.Minute)
		if later := p.announcedAgain(id); later != n+1 {
			t.Errorf("announced %d times in the minute after, want once", later-n)
		}
		if after := p.stored(id); after.Version != before.Version {
			t.Errorf("the version moved from %d to %d: changes of the backoffice are refused", before.Version, after.Version)
		}
	})
}

// unsure is a store that asks the rule about a driver as it last knew them, off duty, and then can't ask the database.
type unsure struct{ *row }

func (s unsure) Claim(_ context.Context, _ dispatch.ID, driver dispatch.DriverID,
	rule func(*dispatch.Dispatch, dispatch.Candidate, time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	d := s.d
	if _, err := rule(&d, dispatch.Candidate{Driver: dispatch.Driver{ID: driver}}, time.Now()); !errors.Is(err, dispatch.ErrNotEligible) {
		return d, err
	}
	return dispatch.Dispatch{}, dispatch.ErrUnavailable
}

// TestOldKnowledgeSidelinesNobody: only an answer of the database does.
func TestOldKnowledgeSidelinesNobody(t *testing.T) {
	const ann = dispatch.DriverID("drv_ann")
	s := unsure{newRow()}
	a := alone(s)
	if _, err := a.Accept(t.Context(), Tap{s.d.ID, ann, 1}); !errors.Is(err, dispatch.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	if a.memory.isSidelined(ann) {
		t.Error("the driver is sidelined")
	}
}

// TestWinnerNeedsNoSlot: a winner who taps again while another driver's tap is decided does not wait for the taps of sidelined drivers.
func TestWinnerNeedsNoSlot(t *testing.T) {
	s := newSite(t)
	id, v := s.dispatch(), s.drivers(2)
	s.mustWin(t, Tap{id, v[0], noRound})
	for range cap(s.slots) {
		s.slots <- struct{}{}
	}
	other, leads, err := s.memory.enter(Tap{id, v[1], noRound})
	if !leads || err != nil {
		t.Fatalf("leads %v, %v", leads, err)
	}
	s.mustReplay(t, Tap{id, v[0], noRound})
	s.memory.finish(other, result{})
}
