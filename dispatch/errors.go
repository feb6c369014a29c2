package dispatch

import (
	"errors"
	"fmt"
	"time"
)

// "No", each with its own identity.
var (
	ErrNotFound            = errors.New("no such dispatch")
	ErrDriverNotFound      = errors.New("no such driver")
	ErrAlreadyTaken        = errors.New("another driver has the dispatch")
	ErrOfferStale          = errors.New("the offer is not the current one")
	ErrDriverBusy          = errors.New("the driver's claimed work overlaps in time")
	ErrNotOpenYet          = errors.New("the dispatch is not open yet")
	ErrInvalidState        = errors.New("the dispatch's state does not allow it")
	ErrExpired             = errors.New("the dispatch has expired")
	ErrCanceled            = errors.New("the dispatch was canceled")
	ErrNotEligible         = errors.New("the driver is not eligible")
	ErrNotYours            = errors.New("the dispatch is another driver's")
	ErrVersionMoved        = errors.New("the dispatch has changed meanwhile")
	ErrDuplicateExternalID = errors.New("the external id is in use")
	ErrDuplicateDriver     = errors.New("the firebase_uid is another driver's")
	ErrKeyNotFound         = errors.New("no such key")
	ErrTooOften            = errors.New("withdrawn too often")

	// ErrWindow says that a dispatch would expire before it opens, or has expired already.
	ErrWindow   = errors.New("expires_at must be after opens_at and in the future")
	ErrNotLater = errors.New("expires_at must be later than the present one")

	ErrNotificationNotFound = errors.New("no such notification")
	ErrNotDead              = errors.New("the notification is not dead")
	ErrNotLeased            = errors.New("the lease is not held")
	ErrBadCursor            = errors.New("not a cursor of this list")
)

// "Busy" and "don't know": neither is an answer about the dispatch.
var (
	// ErrUnavailable says that nothing was changed, because the decision could not be made now.
	ErrUnavailable = errors.New("can't be decided now")
	// ErrUnknown says that the change may or may not have been made. Asking again gets the truth.
	ErrUnknown = errors.New("the outcome is not known")
)

// TakenError is ErrAlreadyTaken with how sure that is.
type TakenError struct {
	// Final says that the winner of the round that was tapped has committed. Otherwise a decision is under way, and may yet
	// fail, or the tap named no round and may be on a later one.
	Final bool
}

func (e *TakenError) Error() string {
	if e.Final {
		return ErrAlreadyTaken.Error()
	}
	return "another driver's claim is being decided"
}

// Unwrap makes every TakenError an ErrAlreadyTaken.
func (e *TakenError) Unwrap() error { return ErrAlreadyTaken }

// NotOpenYetError is ErrNotOpenYet with when it opens.
type NotOpenYetError struct{ OpensAt time.Time }

func (e *NotOpenYetError) Error() string {
	return fmt.Sprintf("the dispatch opens at %s", e.OpensAt.UTC().Format(time.RFC3339))
}

// Unwrap makes every NotOpenYetError an ErrNotOpenYet.
func (e *NotOpenYetError) Unwrap() error { return ErrNotOpenYet }

// NotEligibleError is ErrNotEligible with every reason.
type NotEligibleError struct{ Reasons []Reason }

func (e *NotEligibleError) Error() string {
	return fmt.Sprintf("the driver is not eligible: %v", e.Reasons)
}

// Unwrap makes every NotEligibleError an ErrNotEligible.
func (e *NotEligibleError) Unwrap() error { return ErrNotEligible }

// TooOftenError is ErrTooOften with how long it is until the driver may withdraw.
type TooOftenError struct{ Wait time.Duration }

func (e *TooOftenError) Error() string {
	return fmt.Sprintf("%v, the next withdrawal is possible in %s", ErrTooOften, e.Wait)
}

// Unwrap makes every TooOftenError an ErrTooOften.
func (e *TooOftenError) Unwrap() error { return ErrTooOften }

// QuietError says that a dispatch was announced again so recently that the next announcement has to wait: how long ago that
// was, and for how long to wait.
type QuietError struct{ Ago, For time.Duration }

func (e *QuietError) Error() string {
	return fmt.Sprintf("announced again %s ago, the next one is possible in %s", e.Ago, e.For)
}

// StateError is ErrInvalidState with the state that stood in the way.
type StateError struct{ Status Status }

func (e *StateError) Error() string {
	return fmt.Sprintf("not possible while the dispatch is %s", e.Status)
}

// Unwrap makes every StateError an ErrInvalidState.
func (e *StateError) Unwrap() error { return ErrInvalidState }
