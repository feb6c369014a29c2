//go:build soak

package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"firsttap/dispatch"
)

// violation is a promise that a history breaks.
type violation struct {
	promise string
	text    string
}

func (v violation) String() string { return v.promise + ": " + v.text }

// The promises.
const (
	oneWinner     = "a round has one winner"
	storedWin     = "an acknowledged win is stored, and stays until something ends it"
	finalIsTrue   = "a tap is refused for good only where somebody has the round"
	refusalIsTrue = "a tap is refused only where somebody else has the round or is being decided about"
	receiptIsTrue = "a receipt tells what happened"
	noOverlap     = "no driver has two jobs at the same hours"
	noLateWin     = "a tap wins no round but its own"
	nobodyUntold  = "who was refused in vain is told"
	eventsInOrder = "every change is in the events, in order"
	acknowledged  = "an acknowledged change is in the events"
	nothingHangs  = "nothing hangs"
)

const (
	// decisionTakes is the longest that a decision may go on behind its tap: its time limit, and a lock that stays.
	decisionTakes = 2*time.Second + lockTTL
	// standsFor is the longest that an instance stands still.
	standsFor = 6 * time.Second
	// markerStays is how long a marker outlives its claim.
	markerStays = time.Minute
)

// hold is a driver's possession of a dispatch, by the commits.
type hold struct {
	driver   string
	round    int
	from, to time.Duration // to is 0 where it has not ended; a completed job remains the driver's
	finished time.Duration // when the work was completed; 0 where it was not
	job      change        // the acceptance
}

// overlaps reports whether the driver had the dispatch at a time of the call.
func (h hold) overlaps(o op) bool { return h.from <= o.to && (h.to == 0 || h.to >= o.from) }

// lasts reports whether the driver still had work to do at that time or later.
func (h hold) lasts(at time.Duration) bool {
	end := max(h.to, h.finished)
	return end == 0 || end > at
}

// facts are a history by dispatch, in the order of time.
type facts struct {
	*history
	holds   map[string][]hold
	wins    map[string][]change // accepted
	openers map[string][]change // that tell drivers of an offer, or that there is none any more
	claims  map[string][]claim
	taps    map[string][]op
	found   []violation
}

// check returns the promises that the history breaks. It takes time in proportion to the history's length, times the taps on a
// dispatch that overlap.
func (h *history) check() []violation {
	f := &facts{history: h, wins: map[string][]change{}, openers: map[string][]change{}, claims: map[string][]claim{}, taps: map[string][]op{}, holds: map[string][]hold{}}
	for _, c := range h.changes {
		f.note(c)
	}
	for _, c := range h.claims {
		f.claims[c.dispatch] = append(f.claims[c.dispatch], c)
	}
	for _, o := range h.ops {
		if o.kind == "accept" || o.kind == "assign" {
			f.taps[o.dispatch] = append(f.taps[o.dispatch], o)
		}
	}
	f.checkEvents()
	f.checkWinners()
	f.checkOverlaps()
	for _, o := range h.ops {
		if o.to-o.from > 12*time.Second {
			f.add(nothingHangs, o)
		}
		switch {
		case o.kind == "accept" && o.result == taken:
			f.checkRefusal(o)
		case o.kind == "receipt" && o.result == success:
			f.checkReceipt(o)
		case o.result == success:
			f.checkAcknowledged(o)
		}
	}
	return f.found
}

// note adds a change to the facts.
func (f *facts) note(c change) {
	switch c.kind {
	case dispatch.EventAccepted:
		f.wins[c.dispatch] = append(f.wins[c.dispatch], c)
		f.holds[c.dispatch] = append(f.holds[c.dispatch], hold{driver: c.driver, round: c.round, from: c.done, job: c})
	case dispatch.EventStarted:
		return
	case dispatch.EventCompleted:
		if n := len(f.holds[c.dispatch]); n > 0 {
			f.holds[c.dispatch][n-1].finished = c.done
		}
	case dispatch.EventWithdrawn, dispatch.EventUnassigned, dispatch.EventCanceled:
		if n := len(f.holds[c.dispatch]); n > 0 && f.holds[c.dispatch][n-1].to == 0 {
			f.holds[c.dispatch][n-1].to = c.done
		}
	}
	if c.kind != dispatch.EventAccepted && c.kind != dispatch.EventCompleted {
		f.openers[c.dispatch] = append(f.openers[c.dispatch], c)
	}
}

func (f *facts) add(promise string, about ...any) {
	f.found = append(f.found, violation{promise, fmt.Sprint(about...)})
}

// checkEvents compares the events in the database with the commits.
func (f *facts) checkEvents() {
	byDispatch := func(all []change) map[string][]string {
		m := map[string][]string{}
		for _, c := range all {
			m[c.dispatch] = append(m[c.dispatch], fmt.Sprint(c.kind, c.round, c.driver, c.actor))
		}
		return m
	}
	committed, stored := byDispatch(f.changes), byDispatch(f.stored)
	for name, want := range committed {
		if !slices.Equal(want, stored[name]) {
			f.add(eventsInOrder, name, " has ", stored[name], ", and committed were ", want)
		}
	}
}

// checkWinners checks that each round has one winner, in the answers and in the database.
func (f *facts) checkWinners() {
	type round struct {
		dispatch string
		round    int
	}
	winners := map[round]string{}
	won := func(r round, driver string, about any) {
		if other, ok := winners[r]; ok && other != driver {
			f.add(oneWinner, r.dispatch, " round ", r.round, " has ", other, " and ", driver, ": ", about)
		}
		winners[r] = driver
	}
	for _, c := range f.history.claims {
		won(round{c.dispatch, c.round}, c.driver, "the claims")
	}
	for _, o := range f.ops {
		if o.result == success && (o.kind == "accept" || o.kind == "assign") && o.won > 0 {
			won(round{o.dispatch, o.won}, o.winner(), o)
			if o.round != 0 && o.won != o.round {
				f.add(noLateWin, o)
			}
			if !slices.ContainsFunc(f.claims[o.dispatch], func(c claim) bool { return c.round == o.won && c.driver == o.winner() && c.from <= o.to }) {
				f.add(storedWin, o)
			}
		}
	}
	for _, c := range f.history.claims {
		f.checkClaim(c)
	}
}

// winner is the driver of a success.
func (o op) winner() string {
	if o.kind == "assign" {
		return o.holder
	}
	return o.actor
}

// checkClaim checks that the claim ended as an event says, or that its driver still has the dispatch.
func (f *facts) checkClaim(c claim) {
	endings := map[dispatch.Outcome]dispatch.EventType{
		dispatch.OutcomeWithdrawn: dispatch.EventWithdrawn, dispatch.OutcomeUnassigned: dispatch.EventUnassigned, dispatch.OutcomeCanceled: dispatch.EventCanceled,
	}
	ended := slices.ContainsFunc(f.openers[c.dispatch], func(e change) bool { return e.kind == endings[c.outcome] && e.round == c.round && e.at >= c.from })
	switch status := f.status[c.dispatch]; {
	case c.outcome != dispatch.OutcomeWon && !ended:
		f.add(storedWin, fmt.Sprintf("%+v has ended, and no event says so", c))
	case c.outcome == dispatch.OutcomeWon && (status == dispatch.Pending || status == dispatch.Expired || status == dispatch.Canceled):
		f.add(storedWin, fmt.Sprintf("%+v is valid, and the dispatch is %s", c, status))
	}
}

// checkOverlaps checks the jobs that each driver has at a time.
func (f *facts) checkOverlaps() {
	held := map[string][]hold{} // by driver
	for _, name := range slices.Sorted(maps.Keys(f.holds)) {
		for _, h := range f.holds[name] {
			for _, other := range held[h.driver] {
				if other.lasts(h.from) && h.lasts(other.from) && other.job.start.Before(h.job.end) && h.job.start.Before(other.job.end) {
					f.add(noOverlap, h.job, " beside ", other.job)
				}
			}
			held[h.driver] = append(held[h.driver], h)
		}
	}
}

// checkRefusal checks the answer ALREADY_TAKEN.
func (f *facts) checkRefusal(o op) {
	has := slices.ContainsFunc(f.wins[o.dispatch], func(c change) bool {
		return c.done <= o.to && c.driver != o.actor && (c.round >= o.round && o.round > 0 || o.round == 0 && c.done+markerStays+standsFor > o.from)
	})
	current := f.holderAt(o)
	switch {
	case has || current:
		return
	case o.final:
		f.add(finalIsTrue, o)
		return
	case !slices.ContainsFunc(f.taps[o.dispatch], func(other op) bool {
		return other.actor != o.actor && other.from <= o.to && other.to+decisionTakes+standsFor >= o.from
	}):
		f.add(refusalIsTrue, o)
		return
	}
	mine := func(h hold) bool { return h.driver == o.actor && h.overlaps(o) }
	if !f.mayBeOpen(o) || slices.ContainsFunc(f.holds[o.dispatch], mine) {
		return // the driver knows that from elsewhere
	}
	// Nobody had the dispatch yet. Whoever gets it, or whatever is announced, ends the matter, unless the instance that knew was killed.
	later := func(c change) bool { return c.done >= o.from }
	if slices.ContainsFunc(f.wins[o.dispatch], later) || slices.ContainsFunc(f.openers[o.dispatch], later) ||
		slices.ContainsFunc(f.kills[o.instance], func(at time.Duration) bool { return at >= o.from }) {
		return
	}
	f.add(nobodyUntold, o)
}

// mayBeOpen reports whether the dispatch was on offer at a time of the call. A tap before the opening may be refused in vain: the driver
// sees the countdown, and taps again.
func (f *facts) mayBeOpen(o op) bool {
	all := f.openers[o.dispatch]
	for k, c := range slices.Backward(all) {
		next := o.to + 1
		if k+1 < len(all) {
			next = all[k+1].done
		}
		if c.done <= o.to && next >= o.from && (c.status == dispatch.Pending || c.status == dispatch.Scheduled) && c.expires > o.from && c.opens <= o.to {
			return true
		}
		if c.done < o.from {
			break
		}
	}
	return false
}

// holderAt reports whether a driver other than the actor had the dispatch at a time of the call.
func (f *facts) holderAt(o op) bool {
	return slices.ContainsFunc(f.holds[o.dispatch], func(h hold) bool { return h.driver != o.actor && h.overlaps(o) })
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
	case dispatch.OutcomeNoAttempt:
		ok = !slices.ContainsFunc(f.taps[o.dispatch], func(tap op) bool {
			return tap.actor == o.actor && tap.kind == "accept" && tap.round == o.won && tap.result == taken && tap.to <= o.from &&
				len(f.kills[tap.instance]) == 0 && o.from-tap.to > time.Minute // what an instance could not store for so long is dropped
		})
	}
	if !ok {
		f.add(receiptIsTrue, o)
	}
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
	if !slices.ContainsFunc(f.changes, func(c change) bool { return c.dispatch == o.dispatch && c.kind == kind && c.at <= o.to }) {
		f.add(acknowledged, o)
	}
}
