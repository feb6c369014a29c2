package service

import (
	"context"
	"errors"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/idempotency"
)

// DispatchStore is the storage of a Backoffice.
type DispatchStore interface {
	Create(ctx context.Context, build func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error)) (dispatch.Dispatch, error)
	Update(ctx context.Context, id dispatch.ID,
		change func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error)) (dispatch.Dispatch, error)
	// Assign calls rule with the dispatch and the driver, and commits its result if both are unchanged, or nothing. It may call
	// rule again. See dispatches.Dispatches.
	Assign(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
		rule func(*dispatch.Dispatch, dispatch.Candidate, time.Time) ([]dispatch.Event, error)) (dispatch.Dispatch, error)
}

// PreviewStore counts the drivers who could get a dispatch.
type PreviewStore interface {
	// Preview counts every driver as a candidate for the terms, and returns the time of the counts.
	Preview(ctx context.Context, terms dispatch.Terms) (dispatch.Preview, time.Time, error)
}

// Backoffice has the use cases of the backoffice that need more than the dispatch. The other changes are rules of the dispatch alone, which
// the caller commits with the store.
type Backoffice struct {
	store    DispatchStore
	drivers  PreviewStore
	acceptor *Acceptor
}

// NewBackoffice returns a Backoffice, which informs the acceptor of claims that it makes or ends.
func NewBackoffice(store DispatchStore, drivers PreviewStore, acceptor *Acceptor) *Backoffice {
	return &Backoffice{store: store, drivers: drivers, acceptor: acceptor}
}

// DispatchRequest is a dispatch to be made.
type DispatchRequest struct {
	ExternalID string
	Terms      dispatch.Terms
	OpensAt    *time.Time // nil: now
	ExpiresAt  *time.Time // nil: the default window after opening, or the end of the work
}

func (o DispatchRequest) window(now time.Time) (dispatch.Window, error) {
	opens := now
	if o.OpensAt != nil {
		opens = *o.OpensAt
	}
	window := o.Terms.Window(opens, dispatch.DefaultWindow)
	if o.ExpiresAt != nil {
		window.ExpiresAt = *o.ExpiresAt
	}
	return window, window.Check(o.Terms, now)
}

// Create makes a dispatch, once per idempotent request. dispatch.ErrWindow, ErrDuplicateExternalID, ErrUnavailable,
// ErrUnknown.
func (s *Backoffice) Create(ctx context.Context, o DispatchRequest, actor string) (dispatch.Dispatch, error) {
	return s.store.Create(ctx, func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
		window, err := o.window(now)
		if err != nil {
			return dispatch.Dispatch{}, nil, err
		}
		d, events := dispatch.New(idempotency.DispatchID(ctx, now), o.ExternalID, o.Terms, window, actor, now)
		return d, events, nil
	})
}

// Preview counts the drivers who would be offered the order now, and the reasons of the others. dispatch.ErrWindow,
// ErrUnavailable.
func (s *Backoffice) Preview(ctx context.Context, o DispatchRequest) (dispatch.Preview, error) {
	p, now, err := s.drivers.Preview(ctx, o.Terms)
	if err == nil {
		_, err = o.window(now)
	}
	return p, err
}

// Assign gives a dispatch at that version to the driver. Taps are refused from then on without a query. The errors are
// those of dispatch.Dispatch.Assign, and ErrNotFound, ErrDriverNotFound, ErrUnavailable, ErrUnknown.
func (s *Backoffice) Assign(
	ctx context.Context, id dispatch.ID, version int, driver dispatch.DriverID, actor string,
) (dispatch.Dispatch, error) {
	// The assignment goes on when the client hangs up: a canceled COMMIT would leave its outcome unknown and unmarked.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.acceptor.timeout)
	defer cancel()
	claim := dispatch.NewClaimID(time.Now())
	d, err := s.store.Assign(ctx, id, driver, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
		return d.Assign(version, c, claim, actor, now)
	})
	if err == nil && d.Claim != nil { // a replayed request's claim may have ended
		s.acceptor.markTaken(ctx, id, *d.Claim)
	}
	return d, err
}

// Unassign takes a dispatch at that version away from its driver and opens the next round. The errors are those of
// dispatch.Dispatch.Unassign, and ErrNotFound, ErrUnavailable, ErrUnknown.
func (s *Backoffice) Unassign(ctx context.Context, id dispatch.ID, version int, actor, reason string) (dispatch.Dispatch, error) {
	var ended *dispatch.Claim
	d, err := s.store.Update(ctx, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		ended = d.Claim
		return d.Unassign(version, actor, reason, now)
	})
	if ended != nil && (err == nil || errors.Is(err, dispatch.ErrUnknown)) {
		// If the change was not committed, the database refuses the next tap.
		s.acceptor.markEnded(ctx, id, *ended)
	}
	return d, err
}

// Cancel ends a dispatch at that version. ErrNotFound, ErrVersionConflict, ErrInvalidState, ErrUnavailable, ErrUnknown.
func (s *Backoffice) Cancel(ctx context.Context, id dispatch.ID, version int, actor, reason string) (dispatch.Dispatch, error) {
	d, err := s.store.Update(ctx, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.Cancel(version, actor, reason, now)
	})
	if d.Claim != nil && (err == nil || errors.Is(err, dispatch.ErrUnknown)) {
		s.acceptor.markEnded(ctx, id, *d.Claim)
	}
	return d, err
}
