package dispatch

import (
	"errors"
	"maps"
	"slices"
	"time"
)

// Attempt is a tap on Accept, won or lost. What is stored are a driver's taps in a round with one result.
type Attempt struct {
	ID       AttemptID
	Dispatch ID
	Round    int // of the offer that was tapped, 0 for the current one
	Driver   DriverID
	Result   AttemptResult
	At       time.Time // when the first tap arrived, by its instance's clock
	// LastAt is when the last tap arrived, and Count how many there were: in what is read from the ledger.
	LastAt time.Time
	Count  int
	// Instance is the process that answered, AppVersion the version of the driver's app; "" where unknown.
	Instance   string
	AppVersion string
}

// AttemptResult is the answer to a tap, as the API sends it.
type AttemptResult string

// The results that are not an error's code.
const (
	AttemptWon         AttemptResult = "SUCCESS"
	AttemptUnavailable AttemptResult = "CLAIM_UNAVAILABLE"
)

// The results of taps outside the race: before the opening, and on an offer that is not the current one.
const (
	AttemptEarly AttemptResult = "NOT_OPEN_YET"
	AttemptStale AttemptResult = "OFFER_STALE"
)

// attemptResults maps Accept's errors to results.
var attemptResults = []struct {
	err    error
	result AttemptResult
}{
	{ErrAlreadyTaken, "ALREADY_TAKEN"}, {ErrOfferStale, AttemptStale}, {ErrDriverBusy, "DRIVER_BUSY"},
	{ErrNotOpenYet, AttemptEarly}, {ErrNotEligible, "NOT_ELIGIBLE"}, {ErrExpired, "DISPATCH_EXPIRED"},
	{ErrCanceled, "DISPATCH_CANCELED"},
}

// ResultOf returns the result of a tap that ended with err. It reports false for ErrNotFound and ErrDriverNotFound, which are
// not recorded.
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

// AttemptRecord is a tap, compared with the others of its round.
type AttemptRecord struct {
	Attempt
	// After is the time since the first tap of the round.
	After time.Duration
	// Rank is the driver's rank: 1 for the winner, then by the first tap in the race; 0 outside the race.
	Rank int
	// Reaction is the time from when the driver could tap to the tap; nil where unknown.
	Reaction *time.Duration
}

// FirstTap is a driver's first tap in a round with that result.
type FirstTap struct {
	Driver DriverID
	Result AttemptResult
	At     time.Time
}

// Ranks ranks the drivers of one round. winner is "" if no driver got the dispatch. Drivers who tapped at the same time have
// the same rank. A driver with taps outside the race only has none.
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

// Reaction returns the time from the opening, or from the push if that was sent later, to the tap; nil for an earlier tap.
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

// TapStatistics describe how a driver has tapped recently, for the backoffice to read. No rule depends on them.
type TapStatistics struct {
	// Since is from when on taps were counted; wins and withdrawals are those of thirty days.
	Since     time.Time
	Taps      int
	Wins      int
	Withdrawn int // wins that the driver gave back
	// RecentWithdrawals and RecentUnwinnable count the withdrawals and the taps that could not win, of the last day.
	RecentWithdrawals, RecentUnwinnable int
	// Reactions are those of the first tap on each offer, fastest first.
	Reactions []time.Duration
}

// Median returns the median reaction, nil if there are none.
func (s TapStatistics) Median() *time.Duration {
	n := len(s.Reactions)
	if n == 0 {
		return nil
	}
	m := (s.Reactions[(n-1)/2] + s.Reactions[n/2]) / 2
	return &m
}

// CountFaster counts the reactions below d.
func (s TapStatistics) CountFaster(d time.Duration) int {
	n, _ := slices.BinarySearch(s.Reactions, d)
	return n
}
