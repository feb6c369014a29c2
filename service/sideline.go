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
	// sidelinedFor is how long a driver is set aside after a tap that could not win. It costs an honest one nothing.
	sidelinedFor = 10 * time.Minute
	// maxSidelined bounds the memory of who is.
	maxSidelined = 4096
	// sidelinedSlots is how many of their taps are decided at a time: the other connections are for claims that may win.
	sidelinedSlots = 2
)

// sideline has the driver's taps turn nobody away for a while, and reports whether that is new.
func (g *inflight) sideline(v dispatch.DriverID) (fresh bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fresh = !g.isSidelined(v)
	g.sidelined.Add(v, time.Now().Add(sidelinedFor))
	return fresh
}

// restore has the taps of a driver who has won be like others' again.
func (g *inflight) restore(v dispatch.DriverID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sidelined.Remove(v)
}

// isSidelined reports whether the driver's taps turn nobody away. g.mu is held.
func (g *inflight) isSidelined(v dispatch.DriverID) bool {
	until, ok := g.sidelined.Get(v)
	return ok && time.Now().Before(until)
}

// claimSidelined lets the database decide about a tap of a driver who is set aside, without the lock, when there is a place.
func (a *Acceptor) claimSidelined(ctx context.Context, tap Tap) (Acceptance, error) {
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-ctx.Done():
		a.counter.CountDecision(LayerAside, DecisionFailed)
		return Acceptance{}, errors.Join(dispatch.ErrUnavailable, ctx.Err())
	}
	a.inflight.mu.Lock()
	err := a.inflight.refuseTaken(tap) // what was decided while it waited
	a.inflight.mu.Unlock()
	if err != nil {
		a.counter.CountDecision(LayerKnown, DecisionRefused)
		return Acceptance{}, err
	}
	return a.decide(ctx, tap, dispatch.NewClaimID(time.Now()), LayerAside, nil)
}

// cannotWin reports whether the tap can't win the dispatch in this round, open or not: its round has never been, or the
// driver can't take the work.
func cannotWin(d *dispatch.Dispatch, c dispatch.Candidate, round int, now time.Time) bool {
	return round > d.Round || round == 0 && c.GaveBack || c.Busy || len(c.Ineligible(d.Terms, now)) > 0
}

// mayBeOpen reports whether drivers who were turned away by a decision on that round, which ended with err, may wait for a
// dispatch that is open. Of a round that is not the current one there is nothing to wait for.
func mayBeOpen(round int, err error) bool {
	stale := round != 0 && errors.Is(err, dispatch.ErrOfferStale)
	return !isTaken(err) && !stale && !errors.Is(err, dispatch.ErrNotFound)
}
