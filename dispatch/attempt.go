package dispatch

import (
	"errors"
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
}

// AttemptResult is what a driver was told; the same words go to the wire.
type AttemptResult string

// The results that are no error's code.
const (
	AttemptWon         AttemptResult = "SUCCESS"
	AttemptUnavailable AttemptResult = "CLAIM_UNAVAILABLE"
)

// attemptResults are the codes of Accept's errors.
var attemptResults = []struct {
	err    error
	result AttemptResult
}{
	{ErrAlreadyTaken, "ALREADY_TAKEN"}, {ErrOfferStale, "OFFER_STALE"}, {ErrDriverBusy, "DRIVER_BUSY"},
	{ErrNotOpenYet, "NOT_OPEN_YET"}, {ErrNotEligible, "NOT_ELIGIBLE"}, {ErrExpired, "DISPATCH_EXPIRED"},
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
