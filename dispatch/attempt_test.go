package dispatch

import (
	"errors"
	"fmt"
	"testing"
)

func TestResultOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want AttemptResult
		kept bool
	}{
		{nil, AttemptWon, true},
		{&TakenError{Final: true}, "ALREADY_TAKEN", true},
		{&TakenError{}, "ALREADY_TAKEN", true},
		{fmt.Errorf("wrapped: %w", ErrOfferStale), "OFFER_STALE", true},
		{ErrDriverBusy, "DRIVER_BUSY", true},
		{&NotOpenYetError{}, "NOT_OPEN_YET", true},
		{&NotEligibleError{}, "NOT_ELIGIBLE", true},
		{ErrExpired, "DISPATCH_EXPIRED", true},
		{ErrCanceled, "DISPATCH_CANCELED", true},
		{ErrUnavailable, AttemptUnavailable, true},
		{ErrUnknown, AttemptUnavailable, true},
		{errors.New("anything else"), AttemptUnavailable, true},
		{ErrNotFound, "", false},
		{ErrDriverNotFound, "", false},
	} {
		if got, kept := ResultOf(c.err); got != c.want || kept != c.kept {
			t.Errorf("%v: %q, %v", c.err, got, kept)
		}
	}
}
