package service

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"firsttap/dispatch"
)

// inflight refuses taps from this process's memory: taps on a round that it is deciding about for another driver, and taps
// on a round that it knows to be taken. A tap on a later round passes.
type inflight struct {
	queue   *verifyQueue
	mu      sync.Mutex
	flights map[flightKey]*flight
	taken   *simplelru.LRU[dispatch.ID, takenFact]
	// sidelined holds the end of each driver's sidelining.
	sidelined *simplelru.LRU[dispatch.DriverID, time.Time]
}

// flightKey identifies a decision. Taps without a round are decided apart from those with one.
type flightKey struct {
	dispatch dispatch.ID
	round    int
	// alone is the decision's driver if other drivers are not refused while the decision is under way, because the driver is sidelined or is
	// known to have won. Otherwise it is "".
	alone dispatch.DriverID
}

// holder is a committed claim: its driver and its round.
type holder struct {
	driver dispatch.DriverID
	round  int
}

// takenFact is a holder with an expiry: another instance may have reopened or canceled the dispatch.
type takenFact struct {
	holder
	expires time.Time
	// verifyAt is the time from which a tap that this entry refuses queues the entry for verification.
	verifyAt time.Time
}

// flight is a decision under way.
type flight struct {
	key    flightKey
	driver dispatch.DriverID
	// refused are the first of the other drivers who were refused because of it. inflight.mu guards it until finish.
	refused []dispatch.DriverID
	// done is closed when result is set.
	done   chan struct{}
	result result
}

type result struct {
	acceptance Acceptance
	err        error
}

const (
	// maxTaken bounds the memory of taken dispatches; taps on others ask Redis or the database.
	maxTaken   = 16384
	maxRefused = 8
)

func newInflight(queue *verifyQueue) *inflight {
	taken, err := simplelru.NewLRU[dispatch.ID, takenFact](maxTaken, nil)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	sidelined, err := simplelru.NewLRU[dispatch.DriverID, time.Time](maxSidelined, nil)
	if err != nil {
		panic(err)
	}
	return &inflight{queue: queue, flights: map[flightKey]*flight{}, taken: taken, sidelined: sidelined}
}

// enter returns a new flight, which the caller leads and must finish; or the flight of an earlier tap of the same driver, for
// which the caller waits; or a TakenError.
func (g *inflight) enter(tap Tap) (f *flight, leads bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.refuseTaken(tap); err != nil {
		return nil, false, err
	}
	key := flightKey{dispatch: tap.Dispatch, round: tap.Round}
	f, ok := g.flights[key]
	// A winner who taps again gets a decision of their own, because the decision about another driver's tap would refuse the winner.
	if !ok && g.isSidelined(tap.Driver) || ok && f.driver != tap.Driver && g.knowsWinner(tap) {
		key.alone = tap.Driver
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
	if len(f.refused) < maxRefused && !slices.Contains(f.refused, tap.Driver) {
		f.refused = append(f.refused, tap.Driver)
	}
	return nil, false, &dispatch.TakenError{}
}

// refuseTaken returns a TakenError if another driver is known to have the tap's round. It needs g.mu.
func (g *inflight) refuseTaken(tap Tap) error {
	// A tap without a round may be on a later round than is known here: another instance may have reopened the dispatch.
	if h, ok := g.taken.Get(tap.Dispatch); ok && tap.Round != 0 && tap.Round <= h.round && h.driver != tap.Driver &&
		time.Now().Before(h.expires) {
		g.scheduleVerification(tap.Dispatch, h)
		return &dispatch.TakenError{Final: true}
	}
	return nil
}

// hasWon reports whether the tap's driver is known to have the tap's round, or had it: the claim may have ended at another instance.
func (g *inflight) hasWon(tap Tap) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.knowsWinner(tap)
}

// knowsWinner is hasWon for callers that hold g.mu.
func (g *inflight) knowsWinner(tap Tap) bool {
	h, ok := g.taken.Peek(tap.Dispatch)
	return ok && h.driver == tap.Driver && (tap.Round == 0 || tap.Round == h.round)
}

// finish ends the flight with r and reports whether another driver was refused because of it.
func (g *inflight) finish(f *flight, r result) (refused bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.flights, f.key)
	f.result = r
	close(f.done)
	return len(f.refused) > 0
}

// scheduleVerification queues an entry that refused a tap for verification, at most once every reverifyAfter. g.mu is held.
func (g *inflight) scheduleVerification(id dispatch.ID, h takenFact) {
	now := time.Now()
	if now.Before(h.verifyAt) {
		return
	}
	g.queue.add(id, h.holder, now)
	h.verifyAt = now.Add(reverifyAfter)
	g.taken.Add(id, h)
}

// rememberTaken remembers a committed claim, unless a later round is known. If it contradicts the known claim of the same
// round, the known one is verified.
func (g *inflight) rememberTaken(id dispatch.ID, h holder) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	old, ok := g.taken.Peek(id)
	if ok && old.round == h.round && old.driver != h.driver {
		g.queue.add(id, old.holder, now)
	}
	if !ok || old.round <= h.round {
		g.taken.Add(id, takenFact{h, now.Add(markerTTL), now.Add(verifyAfter)})
	}
}

// rememberMarker remembers the claim of a marker. A marker may outlive its claim: if it contradicts the known claim of the same
// round, the known claim stays and the marker's claim is queued for verification.
func (g *inflight) rememberMarker(id dispatch.ID, h holder) {
	g.mu.Lock()
	old, ok := g.taken.Peek(id)
	g.mu.Unlock()
	if ok && old.round == h.round && old.driver != h.driver {
		g.queue.add(id, h, time.Now())
		return
	}
	g.rememberTaken(id, h)
}

// eachTaken calls f with every claim that was learned after since, expired or not.
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

// forgetHolder drops the dispatch's known claim if it is h.
func (g *inflight) forgetHolder(id dispatch.ID, h holder) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if old, ok := g.taken.Peek(id); ok && old.holder == h {
		g.taken.Remove(id)
	}
}

// forget drops the dispatch's known claim.
func (g *inflight) forget(id dispatch.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taken.Remove(id)
}
