package outbox

import "firsttap/dispatch"

// Priority says which of the pushes that are due are leased first. The lower priorities have a share of each lease, so that a flood of
// higher ones stops none of them.
type Priority int

// The priorities, the highest first.
const (
	// PriorityNone is that of a push that is done.
	PriorityNone Priority = iota
	// PriorityOffer is that of an offer: an event may have thousands, and seconds matter.
	PriorityOffer
	// PriorityJob is that of a push about a driver's own job, of which an event has a few.
	PriorityJob
	// PriorityOfferEnd is that of a silent push that takes an offer off the screen. An event may have as many as offers. A driver who taps
	// before one arrives learns the same from the answer.
	PriorityOfferEnd
	// PriorityCount is the number of priorities.
	PriorityCount = iota
)

// PriorityOf returns the priority of a push that is to be sent.
func PriorityOf(t dispatch.EventType, silent bool) Priority {
	switch {
	case silent:
		return PriorityOfferEnd
	case t.IsOffer():
		return PriorityOffer
	}
	return PriorityJob
}
