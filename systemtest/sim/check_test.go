package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"firsttap/dispatch"
)

// violation is a promise that a history breaks.
type violation struct {
	promise  string
	dispatch string
	at       time.Duration // when it was broken
	text     string
}

func (v violation) String() string { return v.promise + ": " + v.text }

// The promises.
const (
	oneWinner     = "a round has one winner"
	storedWin     = "an acknowledged win is stored, and stays until something ends it"
	finalIsTrue   = "a tap is refused for good only where somebody has the round"
	refusalIsTrue = "a tap is refused only where somebody else has the round or is being decided about"
	reasonIsTrue  = "a tap is refused for a reason only where the reason holds"
	receiptIsTrue = "a receipt tells what happened"
	noOverlap     = "no driver has two jobs at the same hours"
	noLateWin     = "a tap wins no round but its own"
	inTheWindow   = "a tap wins only between the opening and the end of the offer"
	noIsNo        = "who hears that nothing was decided for them has not won"
	ownEnding     = "a driver gives back only their own claim, in the round that they name"
	rarelyGiven   = "a driver gives back no more than is allowed in an hour"
	versionIsRead = "an admin changes only what they have read"
	ownVersion    = "each change makes a version of its own"
	nobodyUntold  = "who was refused in vain is told"
	eventsInOrder = "every change is in the events, in order"
	acknowledged  = "an acknowledged change is in the events"
	nothingHangs  = "nothing hangs"
	isAnswered    = "a call has an answer, and where nothing fails it is a definite one"
)

const (
	// decisionTakes is the longest that a decision may go on behind its tap: its time limit, and a lock that stays.
	decisionTakes = 2*time.Second + lockTTL
	// standsFor is the longest that an instance stands still.
	standsFor = 6 * time.Second
	// decidesLate is how late the write of a claim may arrive after its caller has given up.
	decidesLate = 5 * time.Second
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
	holds    map[string][]hold
	changed  map[string][]change // all
	wins     map[string][]change // accepted
	openers  map[string][]change // that tell drivers of an offer, or that there is none any more
	claims   map[string][]storedClaim
	calls    map[string][]op
	hopeless map[place][]op      // the taps that sidelined their driver
	held     map[string][]hold   // by driver
	gave     map[string][]change // withdrawals, by driver
	calm     bool                // nothing has failed, so the checker can demand more
	found    []violation
}

// check returns the promises that the history breaks, the earliest first. Each call and each change is compared with those of its own
// dispatch only.
func (h *history) check() []violation {
	f := &facts{
		history: h, changed: map[string][]change{}, wins: map[string][]change{}, openers: map[string][]change{}, claims: map[string][]storedClaim{},
		calls: map[string][]op{}, hopeless: map[place][]op{}, held: map[string][]hold{}, gave: map[string][]change{}, holds: map[string][]hold{}, calm: h.isCalm(), found: h.reports,
	}
	for _, c := range h.changes {
		f.note(c)
	}
	for _, c := range h.claims {
		f.claims[c.dispatch] = append(f.claims[c.dispatch], c)
	}
	for _, o := range h.ops {
		f.calls[o.dispatch] = append(f.calls[o.dispatch], o)
		if f.sidelines(o) {
			at := place{o.actor, o.instance}
			f.hopeless[at] = append(f.hopeless[at], o)
		}
	}
	f.checkEvents()
	f.checkWinners()
	f.checkOverlaps()
	for _, c := range h.claims {
		f.checkClaim(c)
	}
	for _, c := range h.changes {
		f.checkChange(c)
	}
	f.checkVersions()
	for _, o := range h.ops {
		f.checkCall(o)
	}
	slices.SortStableFunc(f.found, func(a, b violation) int { return cmp.Compare(a.at, b.at) })
	return f.found
}

// checkCall checks the answer to a call.
func (f *facts) checkCall(o op) {
	switch {
	case strings.HasPrefix(o.result, "ERROR"), f.calm && (o.result == unknown || o.result == impossible || o.result == noAnswer || o.result == hungUp):
		f.add(isAnswered, o.dispatch, o.to, o)
	case o.kind == "accept" && o.result == taken:
		f.checkRefusal(o)
	case o.kind == "accept" && o.result != success:
		f.checkReason(o)
	case o.kind == "receipt" && o.result == success:
		f.checkReceipt(o)
	case o.result == success:
		f.checkAcknowledged(o)
	}
}

// note adds a change to the facts.
func (f *facts) note(c change) {
	f.changed[c.dispatch] = append(f.changed[c.dispatch], c)
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

func (f *facts) add(promise, dispatch string, at time.Duration, about ...any) {
	f.found = append(f.found, violation{promise, dispatch, at, fmt.Sprint(about...)})
}

// called reports whether a call on the dispatch is as match wants it.
func (f *facts) called(dispatch string, match func(op) bool) bool {
	return slices.ContainsFunc(f.calls[dispatch], match)
}

// checkEvents compares the events in the database with the commits. An announcement changes no version: it may be committed between the
// decision and the write of a claim, which has the time of its decision.
func (f *facts) checkEvents() {
	type trail struct{ changes, announcements []string }
	byDispatch := func(all []change) map[string]*trail {
		m := map[string]*trail{}
		for _, c := range all {
			if m[c.dispatch] == nil {
				m[c.dispatch] = &trail{}
			}
			of := &m[c.dispatch].changes
			if c.kind == dispatch.EventOpened {
				of = &m[c.dispatch].announcements
			}
			*of = append(*of, fmt.Sprint(c.kind, c.round, c.driver, c.actor))
		}
		return m
	}
	committed, stored := byDispatch(f.changes), byDispatch(f.stored)
	for _, name := range slices.Sorted(maps.Keys(f.current)) {
		got, want := stored[name], committed[name]
		if got == nil || want == nil || !slices.Equal(got.changes, want.changes) || !slices.Equal(got.announcements, want.announcements) {
			f.add(eventsInOrder, name, f.lastChange(name), name, " has ", got, ", and committed were ", want)
		}
	}
}

func (f *facts) lastChange(name string) time.Duration {
	if all := f.changed[name]; len(all) > 0 {
		return all[len(all)-1].done
	}
	return 0
}

// checkVersions checks the versions of each dispatch. An announcement makes none, and a claim that is given back makes one with the next
// round.
func (f *facts) checkVersions() {
	for _, name := range slices.Sorted(maps.Keys(f.changed)) {
		all, version := f.changed[name], 0
		for k, c := range all {
			same := c.kind == dispatch.EventOpened || k > 0 && c.kind == dispatch.EventReopened && c.actor == dispatch.System && all[k-1].done == c.done
			if !same {
				version++
			}
			if c.version != version {
				f.add(ownVersion, name, c.done, c, ", its version is ", c.version, ", and not ", version)
				break
			}
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
	won := func(r round, driver string, at time.Duration, about any) {
		if other, ok := winners[r]; ok && other != driver {
			f.add(oneWinner, r.dispatch, at, r.dispatch, " round ", r.round, " has ", other, " and ", driver, ": ", about)
		}
		winners[r] = driver
	}
	for _, c := range f.history.claims {
		won(round{c.dispatch, c.round}, c.driver, c.from, "the claims")
	}
	for _, o := range f.ops {
		if o.result == success && (o.kind == "accept" || o.kind == "assign") && o.won > 0 {
			won(round{o.dispatch, o.won}, o.winner(), o.to, o)
			if o.round != 0 && o.won != o.round {
				f.add(noLateWin, o.dispatch, o.to, o)
			}
			if f.withoutRound(o) {
				f.add(noLateWin, o.dispatch, o.to, o)
			}
			if !slices.ContainsFunc(f.claims[o.dispatch], func(c storedClaim) bool { return c.round == o.won && c.driver == o.winner() && c.from <= o.to }) {
				f.add(storedWin, o.dispatch, o.to, o)
			}
		}
	}
}

// withoutRound reports whether a tap without a round has won a round after the driver had given back an earlier one: such a tap may be a
// late retry of the earlier one.
func (f *facts) withoutRound(o op) bool {
	if o.kind != "accept" || o.round != 0 {
		return false
	}
	if slices.ContainsFunc(f.holds[o.dispatch], func(h hold) bool { return h.round == o.won && h.job.actor != o.actor }) {
		return false // an admin has assigned it
	}
	gaveBack := func(c change) bool {
		return c.kind == dispatch.EventWithdrawn && c.driver == o.actor && c.round < o.won && c.done < o.from
	}
	named := func(other op) bool {
		return other.kind == "accept" && other.actor == o.actor && other.round == o.won && other.from <= o.to
	}
	return slices.ContainsFunc(f.changed[o.dispatch], gaveBack) && !f.called(o.dispatch, named)
}

// winner is the driver of a success.
func (o op) winner() string {
	if o.kind == "assign" {
		return o.holder
	}
	return o.actor
}

// checkClaim checks that the claim ended as an event says, or that its driver still has the dispatch.
func (f *facts) checkClaim(c storedClaim) {
	endings := map[dispatch.Outcome]dispatch.EventType{
		dispatch.OutcomeWithdrawn: dispatch.EventWithdrawn, dispatch.OutcomeUnassigned: dispatch.EventUnassigned, dispatch.OutcomeCanceled: dispatch.EventCanceled,
	}
	ended := slices.ContainsFunc(f.openers[c.dispatch], func(e change) bool { return e.kind == endings[c.outcome] && e.round == c.round && e.at >= c.from })
	switch now := f.current[c.dispatch]; {
	case c.outcome != dispatch.OutcomeWon && !ended:
		f.add(storedWin, c.dispatch, c.from, fmt.Sprintf("%+v has ended, and no event says so", c))
	case c.outcome == dispatch.OutcomeWon && (!slices.Contains([]dispatch.Status{dispatch.Accepted, dispatch.InProgress, dispatch.Completed}, now.status) || now.round != c.round || now.driver != c.driver):
		f.add(storedWin, c.dispatch, c.from, fmt.Sprintf("%+v is valid, and the dispatch is %+v", c, now))
	}
}

// checkOverlaps checks the jobs that each driver has at a time.
func (f *facts) checkOverlaps() {
	for _, name := range slices.Sorted(maps.Keys(f.holds)) {
		for _, h := range f.holds[name] {
			for _, other := range f.held[h.driver] {
				if other.lasts(h.from) && h.lasts(other.from) && other.job.start.Before(h.job.end) && h.job.start.Before(other.job.end) {
					f.add(noOverlap, name, h.from, h.job, " beside ", other.job)
				}
			}
			f.held[h.driver] = append(f.held[h.driver], h)
		}
	}
}
