package dispatch

import (
	"errors"
	"fmt"
	"time"
)

// Refusals.
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
	ErrNotHolder           = errors.New("the dispatch is another driver's")
	ErrVersionConflict     = errors.New("the dispatch has changed since that version")
	ErrDuplicateExternalID = errors.New("the external id is in use")
	ErrDuplicateDriver     = errors.New("the firebase_uid is another driver's")
	ErrDuplicatePhone      = errors.New("the phone number is another driver's")
	ErrDriverErased        = errors.New("the driver was erased")
	ErrDriverHasJob        = errors.New("the driver has a job that is not over")
	ErrKeyNotFound         = errors.New("no such key")
	ErrTooManyWithdrawals  = errors.New("too many withdrawals")

	// ErrWindow says that no driver could do the work by accepting within the window: every TimeError is one.
	ErrWindow = errors.New("the times do not fit together")

	ErrNotificationNotFound = errors.New("no such notification")
	ErrNotDead              = errors.New("the notification is not dead")
	ErrNotLeased            = errors.New("the lease is not held")
	ErrBadCursor            = errors.New("not a cursor of this list")
)

// Failures, which say nothing about the dispatch.
var (
	// ErrUnavailable says that nothing was changed, because the decision could not be made now.
	ErrUnavailable = errors.New("not possible now, and nothing was changed")
	// ErrInvalidValue says that nothing was changed, because the database can't store a value: the same request fails again.
	ErrInvalidValue = errors.New("a value can't be stored")
	// ErrUnknown says that the change may or may not be committed. A retry finds out.
	ErrUnknown = errors.New("the outcome is not known")
)

// PhoneTakenError is ErrDuplicatePhone with who has the numbers.
type PhoneTakenError struct {
	// By has the driver for the index of each new driver whose number is taken; "" for another one of the new drivers.
	By map[int]DriverID
}

func (e *PhoneTakenError) Error() string { return fmt.Sprintf("%v: %v", ErrDuplicatePhone, e.By) }

// Unwrap makes it an ErrDuplicatePhone.
func (e *PhoneTakenError) Unwrap() error { return ErrDuplicatePhone }

// TakenError is ErrAlreadyTaken with its certainty.
type TakenError struct {
	// Final says that another driver's claim is committed, in the tapped round or a later one. Otherwise a decision is under way and may
	// fail, or the tap has no round and may be on a later one.
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

// NotOpenYetError is ErrNotOpenYet with the opening time.
type NotOpenYetError struct{ OpensAt time.Time }

func (e *NotOpenYetError) Error() string {
	return fmt.Sprintf("the dispatch opens at %s", e.OpensAt.UTC().Format(time.RFC3339))
}

// Unwrap makes every NotOpenYetError an ErrNotOpenYet.
func (e *NotOpenYetError) Unwrap() error { return ErrNotOpenYet }

// NotEligibleError is ErrNotEligible with every reason.
type NotEligibleError struct{ Reasons []IneligibleReason }

func (e *NotEligibleError) Error() string {
	return fmt.Sprintf("the driver is not eligible: %v", e.Reasons)
}

// Unwrap makes every NotEligibleError an ErrNotEligible.
func (e *NotEligibleError) Unwrap() error { return ErrNotEligible }

// TimeError is ErrWindow with the API's name of the time that is wrong, and what it must be.
type TimeError struct{ Field, Must string }

func (e *TimeError) Error() string { return e.Field + " " + e.Must }

// Unwrap makes every TimeError an ErrWindow.
func (e *TimeError) Unwrap() error { return ErrWindow }

// TooManyWithdrawalsError is ErrTooManyWithdrawals with the time until the driver may withdraw.
type TooManyWithdrawalsError struct{ Wait time.Duration }

func (e *TooManyWithdrawalsError) Error() string {
	return fmt.Sprintf("%v, the next withdrawal is possible in %s", ErrTooManyWithdrawals, e.Wait)
}

// Unwrap makes every TooManyWithdrawalsError an ErrTooManyWithdrawals.
func (e *TooManyWithdrawalsError) Unwrap() error { return ErrTooManyWithdrawals }

// AnnouncedRecentlyError says that a dispatch was announced again too recently: Ago is the time since then, Wait the time until the
// next announcement.
type AnnouncedRecentlyError struct{ Ago, Wait time.Duration }

func (e *AnnouncedRecentlyError) Error() string {
	return fmt.Sprintf("announced again %s ago, the next announcement is possible in %s", e.Ago, e.Wait)
}

// StateError is ErrInvalidState with the dispatch's state.
type StateError struct{ Status Status }

func (e *StateError) Error() string {
	return fmt.Sprintf("not possible while the dispatch is %s", e.Status)
}

// Unwrap makes every StateError an ErrInvalidState.
func (e *StateError) Unwrap() error { return ErrInvalidState }

// InvalidValueError is ErrInvalidValue with the field's name, "" if the database did not name it.
type InvalidValueError struct {
	Field string
	Err   error
}

func (e *InvalidValueError) Error() string {
	return fmt.Sprintf("%v: field %q: %v", ErrInvalidValue, e.Field, e.Err)
}

func (e *InvalidValueError) Unwrap() []error { return []error{ErrInvalidValue, e.Err} }
