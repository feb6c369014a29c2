package service

import (
	"errors"

	"firsttap/dispatch"
)

// Counter hears of every tap on Accept: once of what became of it, and once of where that was decided. It is called in
// the tap's way, by many at once, and must return at once.
type Counter interface {
	CountClaim(r ClaimResult)
	CountDecision(l Layer, d Decision)
}

// ClaimResult is what a tap was told: the words of dispatch.AttemptResult, and two more.
type ClaimResult string

// The results that are no attempt's.
const (
	ClaimReplayed ClaimResult = "REPLAYED"           // the driver had it already
	ClaimNotFound ClaimResult = "DISPATCH_NOT_FOUND" // no such dispatch, or no such driver
)

// Layer is where a tap was decided, the cheapest first.
type Layer string

// The layers of Accept.
const (
	LayerKnown    Layer = "known"        // this process knows who has it
	LayerFlight   Layer = "flight"       // this process is deciding about it
	LayerMarker   Layer = "redis_marker" // Redis knows who has it
	LayerLock     Layer = "redis_lock"   // another instance is deciding about it
	LayerDatabase Layer = "database"
	LayerAside    Layer = "aside" // the database, for a driver whose taps could not win of late
)

// Decision is what a layer made of a tap.
type Decision string

// The decisions of a layer.
const (
	DecisionRefused  Decision = "refused"
	DecisionJoined   Decision = "joined" // it waits for what the same driver's earlier tap is told
	DecisionWon      Decision = "won"
	DecisionReplayed Decision = "replayed"
	DecisionFailed   Decision = "failed" // nobody could tell
)

// Count has every tap counted. Call it before the first.
func (a *Acceptor) Count(c Counter) { a.counter = c }

// noCounter is for an Acceptor that nobody watches.
type noCounter struct{}

func (noCounter) CountClaim(ClaimResult)        {}
func (noCounter) CountDecision(Layer, Decision) {}

// resultOf is what the tap was told, for counting.
func resultOf(won Acceptance, err error) ClaimResult {
	if err == nil && won.Replayed {
		return ClaimReplayed
	}
	r, ok := dispatch.ResultOf(err)
	if !ok {
		return ClaimNotFound
	}
	return ClaimResult(r)
}

// inflightLayer is which half of the gate in this process has refused a tap.
func inflightLayer(refused error) Layer {
	var taken *dispatch.TakenError
	if errors.As(refused, &taken) && taken.Final {
		return LayerKnown
	}
	return LayerFlight
}

// decisionOf is what the database made of a tap.
func decisionOf(replayed bool, err error) Decision {
	switch {
	case err == nil && replayed:
		return DecisionReplayed
	case err == nil:
		return DecisionWon
	case errors.Is(err, dispatch.ErrUnknown) || errors.Is(err, dispatch.ErrUnavailable):
		return DecisionFailed
	}
	return DecisionRefused
}
