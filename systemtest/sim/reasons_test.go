package sim

import (
	"slices"
	"time"

	"firsttap/dispatch"
)

// everWas reports whether the dispatch was so at a time of the call, or shortly before: a tap may get the answer to an earlier one.
func (f *facts) everWas(o op, so func(change) bool) bool {
	all := f.changed[o.dispatch]
	for k, c := range slices.Backward(all) {
		if k+1 < len(all) && all[k+1].done < o.from-f.slack() {
			break
		}
		if c.done <= o.to && so(c) {
			return true
		}
	}
	return false
}

// isOpen reports whether the dispatch can be accepted after the change, now or later.
func (c change) isOpen() bool { return c.status == dispatch.Pending || c.status == dispatch.Scheduled }

// hasExpired reports whether the offer has ended by then, and nobody has accepted it.
func (c change) hasExpired(then time.Duration) bool {
	return c.status == dispatch.Expired || c.isOpen() && c.expires <= then
}

// checkReason checks an answer to a tap that is neither SUCCESS nor ALREADY_TAKEN.
func (f *facts) checkReason(o op) {
	ok := true
	switch o.result {
	case "DISPATCH_CANCELED":
		ok = f.everWas(o, func(c change) bool { return c.status == dispatch.Canceled })
	case "DISPATCH_EXPIRED":
		ok = f.everWas(o, func(c change) bool { return c.hasExpired(o.to) })
	case "OFFER_STALE":
		ok = f.everWas(o, func(c change) bool {
			return o.round != 0 && c.round != o.round || o.round == 0 && f.hasHeld(o)
		})
	case "NOT_OPEN_YET":
		ok = f.everWas(o, func(c change) bool { return c.isOpen() && c.opens > o.from-f.slack() })
	case "DRIVER_BUSY":
		ok = slices.ContainsFunc(f.held[o.actor], func(h hold) bool {
			return h.job.dispatch != o.dispatch && h.from <= o.to && h.lasts(o.from-f.slack()) &&
				f.everWas(o, func(c change) bool { return c.start.Before(h.job.end) && h.job.start.Before(c.end) })
		})
	case "NOT_ELIGIBLE":
		ok = f.everWas(o, func(c change) bool { return !slices.Contains(f.regions[o.actor], c.region) })
	case unknown, impossible, noAnswer, notReached, hungUp:
	default:
		ok = false // no tap gets this answer
	}
	if !ok {
		f.add(reasonIsTrue, o.dispatch, o.to, o)
	}
}

// hasHeld reports whether the actor had lost the dispatch again by the end of the call: a tap without a round may then be a late one.
func (f *facts) hasHeld(o op) bool {
	return slices.ContainsFunc(f.holds[o.dispatch], func(h hold) bool { return h.driver == o.actor && h.to > 0 && h.to <= o.to })
}

// checkReceipt checks what a receipt says of a claim.
func (f *facts) checkReceipt(o op) {
	mine := func(had func(hold) bool) bool {
		return slices.ContainsFunc(f.holds[o.dispatch], func(h hold) bool { return h.driver == o.actor && h.round == o.won && h.from <= o.to && had(h) })
	}
	ended := func(h hold) bool { return h.to > 0 && h.to <= o.to }
	ok := true
	switch o.outcome {
	case dispatch.OutcomeWon:
		ok = mine(func(h hold) bool { return h.overlaps(o) })
	case dispatch.OutcomeWithdrawn, dispatch.OutcomeUnassigned:
		ok = mine(ended)
	case dispatch.OutcomeLost:
		ok = slices.ContainsFunc(f.holds[o.dispatch], func(h hold) bool { return h.driver != o.actor && h.round == o.won && h.from <= o.to })
	case dispatch.OutcomeExpired:
		ok = f.everWas(o, func(c change) bool { return c.round == o.won && c.hasExpired(o.to) })
	case dispatch.OutcomeCanceled:
		ok = f.everWas(o, func(c change) bool { return c.round == o.won && c.status == dispatch.Canceled })
	case dispatch.OutcomeNoAttempt:
		ok = !f.called(o.dispatch, func(tap op) bool {
			return tap.actor == o.actor && tap.kind == "accept" && tap.round == o.won && tap.result == taken && tap.to <= o.from &&
				f.isStored(tap, o.from)
		})
	}
	if !ok {
		f.add(receiptIsTrue, o.dispatch, o.to, o)
	}
}

// isStored reports whether the tap must be stored by then: its instance was not killed, has had the time to try several times, and has not
// given up.
func (f *facts) isStored(tap op, then time.Duration) bool {
	if f.calm {
		return true
	}
	ended := slices.ContainsFunc(f.ends[tap.instance], func(at time.Duration) bool { return at >= tap.from })
	return f.dropped == 0 && !ended && then-tap.to > time.Minute
}
