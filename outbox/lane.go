package outbox

import "firsttap/dispatch"

// Lane is a queue of pushes. Each lane has its share of the one push service, so a long queue in one lane does not hold up
// the others.
type Lane int

// The lanes.
const (
	// LaneClaimant holds pushes about a driver's own job, a few for each event. The driver may be on the way.
	LaneClaimant Lane = iota
	// LaneRetry holds pushes of any kind that were leased before and are due again, after a failure or the end of a process.
	LaneRetry
	// LaneOffer holds offers. An event may have thousands, and seconds matter.
	LaneOffer
	// LaneOfferEnd holds silent pushes that take an offer off the screen, as many as LaneOffer. A driver who taps before one
	// arrives learns the same from the answer.
	LaneOfferEnd
	// LaneCount is the number of lanes.
	LaneCount = iota
)

// LaneOf returns the lane of a push that was not leased before.
func LaneOf(t dispatch.EventType, silent bool) Lane {
	switch {
	case silent:
		return LaneOfferEnd
	case t.IsOffer():
		return LaneOffer
	}
	return LaneClaimant
}

// laneOrder is the order in which the lanes are served while none is empty: of ten pushes LaneClaimant gets four,
// LaneOffer three, LaneRetry two and LaneOfferEnd one.
var laneOrder = [...]Lane{
	LaneClaimant, LaneOffer, LaneClaimant, LaneRetry, LaneClaimant, LaneOffer, LaneOfferEnd, LaneClaimant, LaneOffer, LaneRetry,
}

// LaneRotation chooses the next lane. The zero value begins with LaneClaimant.
type LaneRotation struct{ at int }

// Next returns the next lane of those that are not empty; the others get the share of an empty one. It returns false if
// all are empty.
func (t *LaneRotation) Next(waiting [LaneCount]bool) (Lane, bool) {
	for range laneOrder {
		l := laneOrder[t.at]
		t.at = (t.at + 1) % len(laneOrder)
		if waiting[l] {
			return l, true
		}
	}
	return 0, false
}
