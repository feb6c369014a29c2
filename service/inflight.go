package service

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"firsttap/dispatch"
)

// inflight turns taps away without asking anyone: those on a dispatch that this process is deciding about for another
// driver, and those on a round that this process knows to be taken.
//
// Both are kept by round. A tap on a newer round than the gate knows passes.
type inflight struct {
	mu      sync.Mutex
	verify  *verifier // hears of facts that are to be verified; may be nil
	flights map[flightKey]*flight
	taken   *simplelru.LRU[dispatch.ID, takenFact]
	// sidelined are the drivers who turn nobody away, and until when.
	sidelined *simplelru.LRU[dispatch.DriverID, time.Time]
}

// flightKey is what one decision is about. Taps that name no round are decided apart from those that do.
type flightKey struct {
	dispatch dispatch.ID
	round    int
	// sidelined is the driver of a decision that turns nobody away, "" for any other.
	sidelined dispatch.DriverID
}

// holder is a committed fact: who has the dispatch, and in which round.
type holder struct {
	driver dispatch.DriverID
	round  int
}

// takenFact is a holder for as long as it is believed: another instance may have reopened or canceled the dispatch.
type takenFact struct {
	holder
	expires time.Time
	// verifyAt is from when on the next tap that is refused by it has it verified.
	verifyAt time.Time
}

// flight is a decision under way.
type flight struct {
	key    flightKey
	driver dispatch.DriverID
	// turnedAway are the first of the other drivers who were refused because of it. Guarded by the gate's mutex until
	// the flight is left.
	turnedAway []dispatch.DriverID
	// done is closed when result is set.
	done   chan struct{}
	result result
}

type result struct {
	acceptance Acceptance
	err        error
}

// maxTaken bounds the memory of what is taken; what is forgotten is asked of Redis or the database again.
const maxTaken = 16384

// maxTurnedAway bounds how many of those who were turned away are known by name.
const maxTurnedAway = 8

func newInflight() *inflight {
	taken, err := simplelru.NewLRU[dispatch.ID, takenFact](maxTaken, nil)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	aside, err := simplelru.NewLRU[dispatch.DriverID, time.Time](maxSidelined, nil)
	if err != nil {
		panic(err)
	}
	return &inflight{flights: map[flightKey]*flight{}, taken: taken, sidelined: aside}
}

// enter lets a tap in, which then leads the flight and must call leave, or returns the same driver's flight to wait
// for, or a TakenError.
func (g *inflight) enter(tap Tap) (f *flight, leads bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.refuseTaken(tap); err != nil {
		return nil, false, err
	}
	key := flightKey{dispatch: tap.Dispatch, round: tap.Round}
	f, ok := g.flights[key]
	if !ok && g.isSidelined(tap.Driver) {
		key.sidelined = tap.Driver
		f, ok = g.flights[key]
	}
	switch {
	case !ok:
		f = &flight{key: key, driver: tap.Driver, done: make(chan struct{})}
		g.flights[key] = f
		return f, true, nil
	case f.driver == tap.Driver:
		return f, false, nil
	}
	if len(f.turnedAway) < maxTurnedAway && !slices.Contains(f.turnedAway, tap.Driver) {
		f.turnedAway = append(f.turnedAway, tap.Driver)
	}
	return nil, false, &dispatch.TakenError{}
}

// refuseTaken returns a TakenError if the tap's round is known to be another driver's. g.mu is held.
func (g *inflight) refuseTaken(tap Tap) error {
	// Without a round the tap may be on a later one than is known here: another instance may have reopened it.
	if h, ok := g.taken.Get(tap.Dispatch); ok && tap.Round != 0 && tap.Round <= h.round && h.driver != tap.Driver &&
		time.Now().Before(h.expires) {
		g.scheduleVerification(tap.Dispatch, h)
		return &dispatch.TakenError{Final: true}
	}
	return nil
}

// finish ends the flight with r and reports whether another driver was turned away meanwhile.
func (g *inflight) finish(_ Tap, f *flight, r result) (turnedAway bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.flights, f.key)
	f.result = r
	close(f.done)
	return len(f.turnedAway) > 0
}

// scheduleVerification has a fact verified that is not fresh, now and then. g.mu is held.
func (g *inflight) scheduleVerification(id dispatch.ID, h takenFact) {
	now := time.Now()
	if now.Before(h.verifyAt) {
		return
	}
	g.verify.note(id, h.holder, now)
	h.verifyAt = now.Add(reverifyAfter)
	g.taken.Add(id, h)
}

// rememberTaken remembers a committed fact, unless a newer round is known. Of two that can't both be true the other is verified.
func (g *inflight) rememberTaken(id dispatch.ID, h holder) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	old, ok := g.taken.Peek(id)
	if ok && old.round == h.round && old.driver != h.driver {
		g.verify.note(id, old.holder, now)
	}
	if !ok || old.round <= h.round {
		g.taken.Add(id, takenFact{h, now.Add(markerTTL), now.Add(verifyAfter)})
	}
}

// rememberMarker remembers what a marker says, which may have outlived the claim: what is known otherwise of the same round stays, and
// the marker is verified.
func (g *inflight) rememberMarker(id dispatch.ID, h holder) {
	g.mu.Lock()
	old, ok := g.taken.Peek(id)
	g.mu.Unlock()
	if ok && old.round == h.round && old.driver != h.driver {
		g.verify.note(id, h, time.Now())
		return
	}
	g.rememberTaken(id, h)
}

// eachTaken calls f with every fact that was learned after since, believed still or not.
func (g *inflight) eachTaken(since time.Time, f func(dispatch.ID, holder)) {
	g.mu.Lock()
	ids, facts := g.taken.Keys(), g.taken.Values()
	g.mu.Unlock()
	for i, id := range ids {
		if facts[i].expires.After(since.Add(markerTTL)) {
			f(id, facts[i].holder)
		}
	}
}

// forgetHolder drops what is known, if it is that.
func (g *inflight) forgetHolder(id dispatch.ID, h holder) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if old, ok := g.taken.Peek(id); ok && old.holder == h {
		g.taken.Remove(id)
	}
}

// forget drops what is known, because the dispatch is open again.
func (g *inflight) forget(id dispatch.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taken.Remove(id)
}
