package service

import (
	"context"
	"errors"
	"time"

	"firsttap/dispatch"
)

// A tap that can't win holds the gate and the lock while the database finds that out, and everybody else hears meanwhile
// that the dispatch is being decided. So a driver who has made one is set aside for a while: the database decides about
// their taps as ever, but they turn nobody away.
const (
	// asideFor is how long a driver is set aside after a tap that could not win. It costs an honest one nothing.
	asideFor = 10 * time.Minute
	// asideSize bounds the memory of who is.
	asideSize = 4096
	// asidePlaces is how many of their taps are decided at a time: the other connections are for claims that may win.
	asidePlaces = 2
)

// setAside has the driver's taps turn nobody away for a while, and reports whether that is new.
func (g *gate) setAside(v dispatch.DriverID) (fresh bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fresh = !g.isAside(v)
	g.aside.Add(v, time.Now().Add(asideFor))
	return fresh
}

// comeBack has the taps of a driver who has won be like others' again.
func (g *gate) comeBack(v dispatch.DriverID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.aside.Remove(v)
}

// isAside reports whether the driver's taps turn nobody away. g.mu is held.
func (g *gate) isAside(v dispatch.DriverID) bool {
	until, ok := g.aside.Get(v)
	return ok && time.Now().Before(until)
}

// claimAside lets the database decide about a tap of a driver who is set aside, without the lock, when there is a place.
func (a *Acceptor) claimAside(ctx context.Context, tap Tap) (Acceptance, error) {
	select {
	case a.places <- struct{}{}:
		defer func() { <-a.places }()
	case <-ctx.Done():
		a.counter.CountDecision(LayerAside, DecisionFailed)
		return Acceptance{}, errors.Join(dispatch.ErrUnavailable, ctx.Err())
	}
	a.gate.mu.Lock()
	err := a.gate.refuse(tap) // what was decided while it waited
	a.gate.mu.Unlock()
	if err != nil {
		a.counter.CountDecision(LayerKnown, DecisionRefused)
		return Acceptance{}, err
	}
	return a.decide(ctx, tap, dispatch.NewClaimID(time.Now()), LayerAside, nil)
}

// hopeless reports whether the tap can't win the dispatch in this round, open or not: its round has never been, or the
// driver can't take the work.
func hopeless(d *dispatch.Dispatch, c dispatch.Candidate, round int, now time.Time) bool {
	return round > d.Round || round == 0 && c.GaveBack || c.Busy || len(c.Ineligible(d.Terms, now)) > 0
}

// inVain reports whether drivers who were turned away by a decision on that round, which ended with err, may wait for a
// dispatch that is open. Of a round that is not the current one there is nothing to wait for.
func inVain(round int, err error) bool {
	stale := round != 0 && errors.Is(err, dispatch.ErrOfferStale)
	return !settled(err) && !stale && !errors.Is(err, dispatch.ErrNotFound)
}
