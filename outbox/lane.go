package outbox

import (
	"firsttap/dispatch"
)

// Lane is a queue of pushes. All lanes go to the same push service, and each has a share of it: nobody waits for a whole
// lane, however much is in it.
type Lane int

// The lanes.
const (
	// LaneOwn is what drivers hear of a job of their own: they may be on the way to it. One to a few pushes an event.
	LaneOwn Lane = iota
	// LaneAgain is what was leased before and is due again, of whatever kind: after a failure, or after the end of an
	// instance. A phone may wait for it, but it has had its turn.
	LaneAgain
	// LaneOffer is what a driver may accept. It may be thousands of pushes an event, and seconds matter.
	LaneOffer
	// LaneOver is silent: it takes an offer off the screen. As many pushes as LaneOffer, and a driver who taps before it
	// arrives is told by the answer.
	LaneOver
	// Lanes is how many there are.
	Lanes = iota
)

// LaneOf is the lane of what is told for the first time.
func LaneOf(t dispatch.EventType, silent bool) Lane {
	switch {
	case silent:
		return LaneOver
	case t.IsOffer():
		return LaneOffer
	}
	return LaneOwn
}

// laneOrder is who is served while something waits in each lane: of ten pushes four are about a driver's own job, three
// are offers, two go out again and one takes an offer off a screen.
var laneOrder = [...]Lane{
	LaneOwn, LaneOffer, LaneOwn, LaneAgain, LaneOwn, LaneOffer, LaneOver, LaneOwn, LaneOffer, LaneAgain,
}

// LaneTurns says which lane is next. The zero value begins with LaneOwn.
type LaneTurns struct{ at int }

// Next returns the lane whose turn it is, of those in which something waits: the share of an empty one is the others'.
// False says that nothing waits.
func (t *LaneTurns) Next(waiting [Lanes]bool) (Lane, bool) {
	for range laneOrder {
		l := laneOrder[t.at]
		t.at = (t.at + 1) % len(laneOrder)
		if waiting[l] {
			return l, true
		}
	}
	return 0, false
}
