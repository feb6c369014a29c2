//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package service

import (
	"errors"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

const (
	aJob    = dispatch.ID("dsp_a")
	ann     = dispatch.DriverID("drv_ann")
	bob     = dispatch.DriverID("drv_bob")
	cyd     = dispatch.DriverID("drv_cyd")
	noRound = 0
)

// mustEnter fails the test unless the tap leads a new flight.
func (g *memory) mustEnter(t *testing.T, tap Tap) *flight {
	t.Helper()
	f, leads, err := g.enter(tap)
	if err != nil || !leads || f == nil {
		t.Fatalf("%+v was not let in: %v, leads %v", tap, err, leads)
	}
	return f
}

// mustRefuse fails the test unless the tap is refused with that Final.
func (g *memory) mustRefuse(t *testing.T, tap Tap, final bool) {
	t.Helper()
	f, leads, err := g.enter(tap)
	var taken *dispatch.TakenError
	if !errors.As(err, &taken) || taken.Final != final || leads || f != nil {
		t.Errorf("%+v: got %v, leads %v; want refused, final %v", tap, err, leads, final)
	}
}

func TestOneIsLetThrough(t *testing.T) {
	g := newMemory()
	tap := Tap{aJob, ann, 1}
	f := g.mustEnter(t, tap)
	g.mustRefuse(t, Tap{aJob, bob, 1}, false)
	if joined, leads, err := g.enter(tap); joined != f || leads || err != nil {
		t.Errorf("the same driver's second tap: %v, leads %v, %v", joined, leads, err)
	}
	other := g.mustEnter(t, Tap{"dsp_b", bob, 1}) // another dispatch is another decision
	newer := g.mustEnter(t, Tap{aJob, bob, 2})    // and so is another round
	noted := g.mustEnter(t, Tap{aJob, cyd, noRound})

	if !g.finish(f, result{err: dispatch.ErrNotEligible}) {
		t.Error("bob was refused, and finish does not say so")
	}
	select {
	case <-f.done:
	default:
		t.Error("the waiting taps got no result")
	}
	g.mustEnter(t, Tap{aJob, bob, 1}) // free again
	if g.finish(other, result{}) || g.finish(newer, result{}) || g.finish(noted, result{}) {
		t.Error("no driver was refused by these")
	}
	if len(g.flights) != 1 {
		t.Errorf("%d flights are left, want bob's", len(g.flights))
	}
}

func TestJoinedTapIsNoRefusal(t *testing.T) {
	g := newMemory()
	tap := Tap{aJob, ann, 1}
	f := g.mustEnter(t, tap)
	if _, _, err := g.enter(tap); err != nil {
		t.Fatal(err)
	}
	if g.finish(f, result{}) {
		t.Error("only the driver's own second tap came, and another counts as refused")
	}
}

func TestTakenDispatchesAreRemembered(t *testing.T) {
	g := newMemory()
	g.learn(aJob, holder{ann, 2}, true)
	g.mustRefuse(t, Tap{aJob, bob, 1}, true)
	g.mustRefuse(t, Tap{aJob, bob, 2}, true)
	for _, passes := range []Tap{
		{aJob, bob, 3},       // another instance may have reopened it
		{aJob, bob, noRound}, // and this tap may be on the new round
		{aJob, ann, 2},       // the holder gets the claim replayed
		{"dsp_b", bob, 1},
	} {
		g.finish(g.mustEnter(t, passes), result{})
	}

	g.learn(aJob, holder{bob, 1}, true) // an older claim, learned late
	g.mustRefuse(t, Tap{aJob, cyd, 2}, true)
	g.mustRefuse(t, Tap{aJob, bob, 2}, true)
	g.learn(aJob, holder{bob, 3}, true)
	g.mustRefuse(t, Tap{aJob, ann, 3}, true)
	g.forget(aJob, holder{ann, 2}) // an older claim ends late
	g.mustRefuse(t, Tap{aJob, ann, 3}, true)
	g.forget(aJob, holder{bob, 3})
	g.mustEnter(t, Tap{aJob, ann, 3})
}

// A winner who taps again is decided about apart from other drivers' taps, which would refuse the winner.
func TestWinnerTapsAgainBesideAnotherTap(t *testing.T) {
	for _, round := range []int{1, noRound} {
		g := newMemory()
		other := g.mustEnter(t, Tap{aJob, bob, round})
		g.learn(aJob, holder{ann, 1}, true)
		f := g.mustEnter(t, Tap{aJob, ann, round})
		if joined, leads, err := g.enter(Tap{aJob, ann, round}); joined != f || leads || err != nil {
			t.Errorf("the winner's third tap: %v, leads %v, %v", joined, leads, err)
		}
		if g.finish(other, result{}) || g.finish(f, result{}) {
			t.Error("nobody was refused by these")
		}
		if len(g.flights) != 0 {
			t.Errorf("%d flights are left", len(g.flights))
		}
	}
}

func TestTakenFactsExpire(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := newMemory()
		g.learn(aJob, holder{ann, 1}, true)
		time.Sleep(markerTTL - time.Nanosecond)
		g.mustRefuse(t, Tap{aJob, bob, 1}, true)
		time.Sleep(time.Nanosecond)
		g.finish(g.mustEnter(t, Tap{aJob, bob, 1}), result{})
		g.learn(aJob, holder{ann, 1}, true) // learned again
		g.mustRefuse(t, Tap{aJob, bob, 1}, true)
	})
}

func TestTakenDispatchesAreBounded(t *testing.T) {
	g := newMemory()
	ids := make([]dispatch.ID, maxTaken+100)
	for i := range ids {
		ids[i] = dispatch.NewID(time.UnixMicro(int64(i)))
		g.learn(ids[i], holder{ann, 1}, true)
	}
	if n := g.taken.Len(); n != maxTaken {
		t.Errorf("%d facts, want %d", n, maxTaken)
	}
	g.mustRefuse(t, Tap{ids[len(ids)-1], bob, 1}, true)
	g.mustEnter(t, Tap{ids[0], bob, 1}) // evicted
}

// TestOneLeadsOfMany: of n concurrent drivers one leads, in any order.
func TestOneLeadsOfMany(t *testing.T) {
	for range 200 {
		g := newMemory()
		leaders := make(chan *flight, 8)
		testkit.Together(cap(leaders), func(i int) {
			f, leads, err := g.enter(Tap{aJob, dispatch.DriverID(rune('a' + i)), 1})
			if leads != (err == nil) || leads != (f != nil) {
				t.Error(f, leads, err)
			}
			if leads {
				leaders <- f
			}
		})
		if n := len(leaders); n != 1 {
			t.Fatalf("%d lead", n)
		}
		if !g.finish(<-leaders, result{}) {
			t.Fatal("the others were not turned away")
		}
	}
}

func TestMarkers(t *testing.T) {
	id := dispatch.NewID(time.Now())
	driver := dispatch.NewDriverID(time.Now())
	claim := dispatch.NewClaimID(time.Now())
	if got, want := lockName(id), "dispatch:lock:{"+string(id)+"}"; got != want {
		t.Errorf("the key is %s, want %s", got, want)
	}
	for value, want := range map[string]marker{
		claimValue(Tap{id, driver, 3}, claim):       {holder{driver, 3}, false},
		claimValue(Tap{id, driver, noRound}, claim): {holder{driver, 0}, false},
		takenValue(driver, 3):                       {holder{driver, 3}, true},
		"claim:" + string(driver) + ":a-token":      {holder{driver, 0}, false}, // the contract does not define the token
	} {
		if got, ok := parseMarker(value); !ok || got != want {
			t.Errorf("%s is read as %+v, %v; want %+v", value, got, ok, want)
		}
	}
	if got, want := takenValue("drv_1", 2), "taken:drv_1:2"; got != want {
		t.Errorf("the marker is %s, want %s", got, want)
	}
	for _, garbage := range []string{"", ":", "::", "claim", "taken", "claim:", "taken:drv_1", "TAKEN:drv_1:1", "lock:drv_1:1", "\x00", "1"} {
		if m, ok := parseMarker(garbage); ok {
			t.Errorf("%q is read as %+v", garbage, m)
		}
	}
}

func TestMarkersRefuseByRound(t *testing.T) {
	for _, c := range []struct {
		marked, tapped int
		driver         dispatch.DriverID
		claim, taken   bool // whether a marker of each kind refuses the tap
	}{
		{1, 1, bob, true, true}, {1, 2, bob, false, false}, {1, noRound, bob, true, true}, {noRound, 1, bob, true, true},
		{noRound, noRound, bob, true, true}, {1, 1, ann, false, false}, {2, 1, ann, false, false}, {noRound, noRound, ann, false, false},
		{2, 1, bob, false, true}, // the round of a claim under way may be invented
	} {
		for committed, want := range map[bool]bool{false: c.claim, true: c.taken} {
			m := marker{holder{ann, c.marked}, committed}
			if got := m.refuses(Tap{aJob, c.driver, c.tapped}); got != want {
				t.Errorf("ann's marker %+v, %s taps on %d: refused %v, want %v", m, c.driver, c.tapped, got, want)
			}
		}
	}
}
