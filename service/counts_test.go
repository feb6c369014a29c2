package service

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/lock"
)

// tally is a Counter for tests.
type tally struct {
	mu        sync.Mutex
	claims    map[ClaimResult]int
	decisions map[string]int
}

func (c *tally) CountClaim(r ClaimResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claims[r]++
}

func (c *tally) CountDecision(l Layer, d Decision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.decisions[fmt.Sprint(l, " ", d)]++
}

// counted runs taps and returns what the acceptor counted meanwhile.
func counted(acceptor *Acceptor, taps func()) *tally {
	c := &tally{claims: map[ClaimResult]int{}, decisions: map[string]int{}}
	acceptor.counter = c
	taps()
	return c
}

func (c *tally) is(t *testing.T, what string, claims map[ClaimResult]int, decisions map[string]int) {
	t.Helper()
	testkit.Equal(t, what+": claims", claims, c.claims)
	testkit.Equal(t, what+": decisions", decisions, c.decisions)
}

// answering is a Locks in which owner holds every lock.
type answering struct {
	Gate
	owner string
}

func (a answering) Obtain(context.Context, string, string, time.Duration) (*lock.GateLease, error) {
	return nil, &lock.HeldError{Owner: a.owner}
}

// Every tap is counted once by its result and once by the layer that decided it.
func TestEveryTapIsCounted(t *testing.T) {
	p := newPlace(t)
	drivers, id := p.drivers(3), p.dispatch()
	tap := func(a *Acceptor, driver, round int) { a.Accept(t.Context(), Tap{id, drivers[driver], round}) }

	a := alone(p)
	counted(a, func() {
		a.Accept(t.Context(), Tap{"dsp_x", drivers[0], 1})
		tap(a, 1, 2)
		tap(a, 0, 1)
		tap(a, 0, 1)
		tap(a, 1, 1)
		tap(a, 1, 0)
	}).is(t, "alone", map[ClaimResult]int{
		ClaimNotFound: 1, "OFFER_STALE": 1, "SUCCESS": 1, ClaimReplayed: 1, "ALREADY_TAKEN": 2,
	}, map[string]int{
		"database refused": 2, "database won": 1, "database replayed": 1, "known refused": 1, "aside refused": 1,
	})
	for owner, layer := range map[string]Layer{
		takenValue("drv_x", 1): LayerMarker, "claim:drv_x:1.clm_x": LayerLock,
	} {
		a := NewAcceptor(AcceptorOptions{Claims: p, Gate: answering{owner: owner}, Log: quiet})
		counted(a, func() { tap(a, 1, 1) }).is(t, owner,
			map[ClaimResult]int{"ALREADY_TAKEN": 1}, map[string]int{string(layer) + " refused": 1})
	}
	failing := &intercepted{ClaimStore: p, fail: dispatch.ErrUnavailable}
	a = alone(failing)
	counted(a, func() { tap(a, 2, 1) }).is(t, "the database is away",
		map[ClaimResult]int{"CLAIM_UNAVAILABLE": 1}, map[string]int{"database failed": 1})
}

// A driver's second tap joins the first while it is being decided, and another driver's tap is refused.
func TestFlightsAreCounted(t *testing.T) {
	s := newSite(t)
	drivers, id := s.drivers(2), s.dispatch()
	counted(s.Acceptor, func() {
		release := s.hold(t, Tap{id, drivers[0], 1})
		s.mustRefuse(t, Tap{id, drivers[1], 1}, false)
		gone, hangUp := context.WithCancel(t.Context())
		hangUp()
		s.Accept(gone, Tap{id, drivers[0], 1})
		must(t, release())
	}).is(t, "in flight",
		map[ClaimResult]int{"SUCCESS": 1, "ALREADY_TAKEN": 1}, // whoever hangs up gets no answer
		map[string]int{"database won": 1, "flight refused": 1, "flight joined": 1})
}
