package service

import (
	"errors"

	"firsttap/dispatch"
)

// Counter counts every tap on Accept twice: by its result, and by the layer that decided it. A tap that joined an earlier one, and whose
// client hung up before the decision, has no result. Its methods are called concurrently, before the tap is answered, and must not block.
type Counter interface {
	CountClaim(r ClaimResult)
	CountDecision(l Layer, d Decision)
}

// ClaimResult is the answer to a tap: a dispatch.AttemptResult, or one of two more.
type ClaimResult string

// The results that no AttemptResult has.
const (
	ClaimReplayed ClaimResult = "REPLAYED"           // the driver already had the dispatch
	ClaimNotFound ClaimResult = "DISPATCH_NOT_FOUND" // no such dispatch, or no such driver
)

// Layer is the part of Accept that decided a tap.
type Layer string

// The layers of Accept, the cheapest first.
const (
	LayerMemory    Layer = "known"        // this process knows the holder
	LayerInFlight  Layer = "flight"       // this process is deciding about another tap
	LayerMarker    Layer = "redis_marker" // Redis knows the holder
	LayerLock      Layer = "redis_lock"   // another instance is deciding
	LayerDatabase  Layer = "database"
	LayerSidelined Layer = "aside" // the database, for a sidelined driver
)

// Decision is what a layer decided.
type Decision string

// The decisions.
const (
	DecisionRefused  Decision = "refused"
	DecisionJoined   Decision = "joined" // it got the result of the same driver's earlier tap
	DecisionWon      Decision = "won"
	DecisionReplayed Decision = "replayed"
	DecisionFailed   Decision = "failed" // the outcome is unavailable or unknown
)

// count counts what a layer has decided.
func (a *Acceptor) count(l Layer, d Decision) {
	if a.counter != nil {
		a.counter.CountDecision(l, d)
	}
}

// resultOf returns the tap's answer, for counting.
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

// refusedBy returns the layer in this process that refused a tap.
func refusedBy(refused error) Layer {
	if taken, ok := errors.AsType[*dispatch.TakenError](refused); ok && taken.Final {
		return LayerMemory
	}
	return LayerInFlight
}

// decisionOf returns what the database decided.
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
