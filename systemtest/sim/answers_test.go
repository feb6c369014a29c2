package sim

import (
	"slices"
	"time"

	"firsttap/dispatch"
)

// checkWithdrawals checks how often the driver has given back before. A history is shorter than the hour in which that counts.
func (f *facts) checkWithdrawals(c change) {
	fromIt := 1
	for _, earlier := range f.gave[c.driver] {
		if earlier.dispatch == c.dispatch {
			fromIt++
		}
	}
	f.gave[c.driver] = append(f.gave[c.driver], c)
	if fromIt > dispatch.MaxWithdrawalsPerDispatch || len(f.gave[c.driver]) > dispatch.MaxWithdrawalsPerDriver {
		f.add(rarelyGiven, c.dispatch, c.done, c, ", their withdrawal ", len(f.gave[c.driver]), ", and ", fromIt, " from this dispatch")
	}
}

// checkChange checks a change's actor, its time and its version.
func (f *facts) checkChange(c change) {
	asked := func(kind string, match func(op) bool) bool {
		return f.called(c.dispatch, func(o op) bool { return o.kind == kind && o.from <= c.done && match(o) })
	}
	switch {
	case c.kind == dispatch.EventAccepted && c.actor == c.driver:
		if c.opens-c.done > time.Microsecond || c.done-c.expires > time.Microsecond {
			f.add(inTheWindow, c.dispatch, c.done, c)
		}
		if !asked("accept", func(o op) bool { return o.actor == c.driver && o.mayHaveWon(c) }) {
			f.add(noIsNo, c.dispatch, c.done, c)
		}
	case c.kind == dispatch.EventWithdrawn:
		held := func(h hold) bool {
			return h.driver == c.driver && c.actor == c.driver && h.round == c.round && h.to == c.done
		}
		named := func(o op) bool { return o.actor == c.driver && (o.round == 0 || o.round == c.round) }
		if !slices.ContainsFunc(f.holds[c.dispatch], held) || !asked("withdraw", named) {
			f.add(ownEnding, c.dispatch, c.done, c)
		}
		f.checkWithdrawals(c)
	case c.isByAdmin():
		if !f.called(c.dispatch, func(o op) bool { return o.actor == c.actor && o.from <= c.done && o.version == c.version-1 }) {
			f.add(versionIsRead, c.dispatch, c.done, c)
		}
	}
}

// mayHaveWon reports whether the tap's answer leaves open that the tap has made the claim.
func (o op) mayHaveWon(c change) bool {
	if o.round != 0 && o.round != c.round {
		return false
	}
	switch o.result {
	case success:
		return o.won == c.round
	case unknown, noAnswer, hungUp:
		return o.to+decisionTakes+decidesLate+standsFor >= c.done
	}
	return o.twice // the other one of the two may have won
}

// isByAdmin reports whether an admin has changed the dispatch at a version.
func (c change) isByAdmin() bool {
	switch c.kind {
	case dispatch.EventAccepted:
		return c.actor != c.driver
	case dispatch.EventUpdated, dispatch.EventCanceled, dispatch.EventUnassigned:
		return true
	case dispatch.EventReopened:
		return c.actor != dispatch.System
	}
	return false
}

// checkRefusal checks the answer ALREADY_TAKEN.
func (f *facts) checkRefusal(o op) {
	if f.holderAt(o) || slices.ContainsFunc(f.wins[o.dispatch], func(c change) bool { return c.done <= o.to && c.driver != o.actor && f.refuses(c, o) }) {
		return
	}
	decided := func(other op) bool {
		return (other.kind == "accept" || other.kind == "assign") && other.actor != o.actor && other.from <= o.to && other.to+f.slack() >= o.from &&
			(other.round == o.round || other.round == 0 || o.round == 0) && !f.wasSidelined(other)
	}
	switch {
	case o.final:
		f.add(finalIsTrue, o.dispatch, o.to, o)
	case !f.called(o.dispatch, decided):
		f.add(refusalIsTrue, o.dispatch, o.to, o)
	case f.untold(o):
		f.add(nobodyUntold, o.dispatch, o.to, o)
	}
}

// slack is how long after a call its decision may still refuse others.
func (f *facts) slack() time.Duration {
	if f.calm {
		return 100 * time.Millisecond
	}
	return decisionTakes + standsFor
}

// refuses reports whether a committed claim of another driver, which may be over, refuses the tap. Its marker may have outlived it.
func (f *facts) refuses(c change, o op) bool {
	if o.round > 0 {
		return c.round >= o.round
	}
	return !o.final && !f.calm && c.done+markerStays+standsFor > o.from
}

// untold reports whether nobody got the dispatch on which the tap was refused, though it stayed open, and its driver was not told so.
func (f *facts) untold(o op) bool {
	offer, ok := f.offerAt(o)
	mine := slices.ContainsFunc(f.holds[o.dispatch], func(h hold) bool { return h.driver == o.actor && h.overlaps(o) })
	if !ok || mine || o.round > offer.round { // nobody has been offered a round that is made up
		return false
	}
	// An announcement waits after the last one, for twice as long each time.
	announced := 0
	for _, c := range f.openers[o.dispatch] {
		if c.kind == dispatch.EventOpened && c.done < o.to {
			announced++
		}
	}
	until := max(o.to, offer.opens) + 10*time.Second<<min(announced, 5) + time.Minute
	if f.calm {
		until -= 55 * time.Second
	}
	ended := slices.ContainsFunc(f.ends[o.instance], func(at time.Duration) bool { return at >= o.from && at <= until }) // what it knew is lost
	told := func(c change) bool {
		return c.done >= o.from && c.done <= until && (c.offers || c.status != dispatch.Pending && c.status != dispatch.Scheduled)
	}
	return offer.expires > until && !ended && !slices.ContainsFunc(f.changed[o.dispatch], told)
}

// offerAt returns the change that made the offer which was open at a time of the call, or was to open later.
func (f *facts) offerAt(o op) (change, bool) {
	all := f.openers[o.dispatch]
	for k, c := range slices.Backward(all) {
		next := o.to + 1
		if k+1 < len(all) {
			next = all[k+1].done
		}
		if c.done <= o.to && next >= o.from && (c.status == dispatch.Pending || c.status == dispatch.Scheduled) && c.expires > o.from {
			return c, true
		}
		if c.done < o.from {
			break
		}
	}
	return change{}, false
}

// holderAt reports whether a driver other than the actor had the dispatch at a time of the call.
func (f *facts) holderAt(o op) bool {
	return slices.ContainsFunc(f.holds[o.dispatch], func(h hold) bool { return h.driver != o.actor && h.overlaps(o) })
}

// checkAcknowledged checks that the change of a successful call is among the events.
func (f *facts) checkAcknowledged(o op) {
	kinds := map[string]dispatch.EventType{
		"create": dispatch.EventCreated, "withdraw": dispatch.EventWithdrawn, "start": dispatch.EventStarted, "complete": dispatch.EventCompleted,
		"cancel": dispatch.EventCanceled, "unassign": dispatch.EventUnassigned, "assign": dispatch.EventAccepted, "reopen": dispatch.EventReopened,
		"extend": dispatch.EventUpdated, "update": dispatch.EventUpdated,
	}
	kind, ok := kinds[o.kind]
	if !ok {
		return
	}
	made := func(c change) bool {
		switch {
		case c.kind != kind || c.at > o.to:
			return false
		case o.version > 0:
			return c.actor == o.actor && c.version == o.version+1
		case o.kind == "create":
			return c.actor == o.actor
		}
		return c.driver == o.actor && (o.round == 0 || c.round == o.round)
	}
	hadIt := func(h hold) bool {
		return o.kind == "assign" && h.driver == o.holder && h.from < o.from && h.overlaps(o)
	}
	if !slices.ContainsFunc(f.changed[o.dispatch], made) && !slices.ContainsFunc(f.holds[o.dispatch], hadIt) {
		f.add(acknowledged, o.dispatch, o.to, o)
	}
}
