package dispatch

import (
	"errors"
	"maps"
	"slices"
	"time"
)

// Attempt is one tap on Accept, won or lost.
type Attempt struct {
	ID       AttemptID
	Dispatch ID
	Round    int // of the offer that was tapped, 0 for whichever was current
	Driver   DriverID
	Result   AttemptResult
	At       time.Time // when the tap arrived, by its instance's clock
	// Instance is the process that answered, AppVersion the app that asked; "" where that is not known.
	Instance   string
	AppVersion string
}

// AttemptResult is what a driver was told; the same words go to the wire.
type AttemptResult string

// The results that are no error's code.
const (
	AttemptWon         AttemptResult = "SUCCESS"
	AttemptUnavailable AttemptResult = "CLAIM_UNAVAILABLE"
)

// The results of taps that are in no race: before the opening, and on an offer that is no longer the current one.
const (
	AttemptEarly AttemptResult = "NOT_OPEN_YET"
	AttemptStale AttemptResult = "OFFER_STALE"
)

// attemptResults are the codes of Accept's errors.
var attemptResults = []struct {
	err    error
	result AttemptResult
}{
	{ErrAlreadyTaken, "ALREADY_TAKEN"}, {ErrOfferStale, AttemptStale}, {ErrDriverBusy, "DRIVER_BUSY"},
	{ErrNotOpenYet, AttemptEarly}, {ErrNotEligible, "NOT_ELIGIBLE"}, {ErrExpired, "DISPATCH_EXPIRED"},
	{ErrCanceled, "DISPATCH_CANCELED"},
}

// ResultOf returns what an acceptance that ended with err was told. False where the tap was no attempt: there is no such
// dispatch, or no such driver.
func ResultOf(err error) (AttemptResult, bool) {
	if err == nil {
		return AttemptWon, true
	}
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrDriverNotFound) {
		return "", false
	}
	for _, r := range attemptResults {
		if errors.Is(err, r.err) {
			return r.result, true
		}
	}
	return AttemptUnavailable, true
}

// AttemptRecord is a tap and how it compares with the others of its round.
type AttemptRecord struct {
	Attempt
	// After is how long after the first tap of the round it came.
	After time.Duration
	// Rank is the driver's: 1 for who got it, then by the first tap in the race; 0 for who is not in it.
	Rank int
	// Reaction is from when the driver could tap to when they did; nil where that is not known.
	Reaction *time.Duration
}

// FirstTap is a driver's first tap of those in one round that had the same result.
type FirstTap struct {
	Driver DriverID
	Result AttemptResult
	At     time.Time
}

// Ranks ranks the drivers of one round. winner is who got it, "" if nobody did. Who tapped at the same time has the same
// rank; who has only tapped before the opening has none.
func Ranks(taps []FirstTap, winner DriverID) map[DriverID]int {
	first := map[DriverID]time.Time{}
	for _, t := range taps {
		if at, ok := first[t.Driver]; t.Result != AttemptEarly && t.Result != AttemptStale && (!ok || t.At.Before(at)) {
			first[t.Driver] = t.At
		}
	}
	ranks := make(map[DriverID]int, len(first)+1)
	next := 1
	if winner != "" {
		delete(first, winner)
		ranks[winner] = 1
		next = 2
	}
	order := slices.SortedFunc(maps.Keys(first), func(a, b DriverID) int { return first[a].Compare(first[b]) })
	for i, v := range order {
		if ranks[v] = next + i; i > 0 && first[v].Equal(first[order[i-1]]) {
			ranks[v] = ranks[order[i-1]]
		}
	}
	return ranks
}

// Reaction returns how long the driver took to tap: since the opening, or since the push was sent if that came later. nil
// for a tap that came before.
func Reaction(tap, opened time.Time, sent *time.Time) *time.Duration {
	if sent != nil && sent.After(opened) {
		opened = *sent
	}
	took := tap.Sub(opened)
	if took < 0 {
		return nil
	}
	return &took
}

// Signals say how a driver has tapped of late. They are shown, and nothing acts on them.
type Signals struct {
	Taps      int
	Wins      int // dispatches that they got
	Withdrawn int // and gave back
	// WithdrawnOfLate and HopelessOfLate are of the last day: dispatches given back, and taps that could not win.
	WithdrawnOfLate, HopelessOfLate int
	// Reactions are those of the first taps on each offer, the fastest first.
	Reactions []time.Duration
}

// Median returns the middle one of the reactions, nil if there are none.
func (s Signals) Median() *time.Duration {
	n := len(s.Reactions)
	if n == 0 {
		return nil
	}
	m := (s.Reactions[(n-1)/2] + s.Reactions[n/2]) / 2
	return &m
}

// Under returns how many reactions took less than d.
func (s Signals) Under(d time.Duration) int {
	n, _ := slices.BinarySearch(s.Reactions, d)
	return n
}
