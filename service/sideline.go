package service

import (
	"context"
	"errors"
	"time"

	"firsttap/dispatch"
)

// A tap that cannot win holds the flight and the lock while the database finds that out, and other drivers are refused
// meanwhile. So its driver is sidelined for a while: the database still decides about their taps, but apart from others', and
// they refuse no other driver.
const (
	// sidelinedFor is how long a driver stays sidelined after a tap that could not win. Meanwhile the driver can win, but may wait for a slot,
	// and gets ErrUnavailable if none is free in time.
	sidelinedFor = 10 * time.Minute
	maxSidelined = 4096
	// sidelinedSlots bounds the decisions about sidelined drivers at a time, so that connections are left for other claims.
	sidelinedSlots = 2
)

// sideline keeps the driver's taps from refusing other drivers for a while, and reports whether the driver was not sidelined.
func (g *inflight) sideline(v dispatch.DriverID) (fresh bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fresh = !g.isSidelined(v)
	g.sidelined.Add(v, time.Now().Add(sidelinedFor))
	return fresh
}

// restore ends the sidelining of a driver who has won.
func (g *inflight) restore(v dispatch.DriverID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sidelined.Remove(v)
}

// isSidelined needs g.mu.
func (g *inflight) isSidelined(v dispatch.DriverID) bool {
	until, ok := g.sidelined.Get(v)
	return ok && time.Now().Before(until)
}

// claimSidelined lets the database decide about a sidelined driver's tap, without the lock, when a slot is free.
func (a *Acceptor) claimSidelined(ctx context.Context, tap Tap) (Acceptance, error) {
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-ctx.Done():
		a.counter.CountDecision(LayerSidelined, DecisionFailed)
		return Acceptance{}, errors.Join(dispatch.ErrUnavailable, ctx.Err())
	}
	a.inflight.mu.Lock()
	err := a.inflight.refuseTaken(tap) // the dispatch may have been taken while the tap waited
	a.inflight.mu.Unlock()
	if err != nil {
		a.counter.CountDecision(LayerMemory, DecisionRefused)
		return Acceptance{}, err
	}
	return a.claim(ctx, tap, dispatch.NewClaimID(time.Now()), LayerSidelined, nil)
}

// cannotWin reports whether the tap cannot win the dispatch in this round, open or not: its round does not exist yet, or
// the driver cannot take the work.
func cannotWin(d *dispatch.Dispatch, c dispatch.Candidate, round int, now time.Time) bool {
	return round > d.Round || round == 0 && c.Withdrew || c.Busy || len(c.Ineligible(d.Terms, now)) > 0
}

// mayBeOpen reports whether the dispatch may still be open in that round, or in the current one for 0, after a decision
// that ended with err.
func mayBeOpen(round int, err error) bool {
	stale := round != 0 && errors.Is(err, dispatch.ErrOfferStale)
	return !isTaken(err) && !stale && !errors.Is(err, dispatch.ErrNotFound)
}
