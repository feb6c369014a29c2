package service

import (
	"context"
	"errors"
	"time"

	"firsttap/dispatch"
	"firsttap/idempotency"
)

// DispatchStore is what running dispatches needs of the storage.
type DispatchStore interface {
	Create(ctx context.Context, build func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error)) (dispatch.Dispatch, error)
	Update(ctx context.Context, id dispatch.ID,
		change func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error)) (dispatch.Dispatch, error)
	// Assign commits what rule decides over the dispatch and driver as they are, or nothing; see repository.Store.
	Assign(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
		rule func(*dispatch.Dispatch, dispatch.Candidate, time.Time) ([]dispatch.Event, error)) (dispatch.Dispatch, error)
	// EachCandidate has look see every driver as a candidate for the terms; see repository.Store.
	EachCandidate(ctx context.Context, terms dispatch.Terms,
		look func(c dispatch.Candidate, reachable bool, now time.Time)) (time.Time, error)
}

// Dispatcher is what the backoffice does to dispatches.
type Dispatcher struct {
	store    DispatchStore
	acceptor *Acceptor
}

// NewDispatcher returns the backoffice's use cases. taps hears of claims that end.
func NewDispatcher(store DispatchStore, taps *Acceptor) *Dispatcher {
	return &Dispatcher{store: store, acceptor: taps}
}

// Order is a dispatch to be made.
type Order struct {
	ExternalID string
	Terms      dispatch.Terms
	OpensAt    *time.Time // nil: now
	ExpiresAt  *time.Time // nil: the default window after opening
}

func (o Order) window(now time.Time) (dispatch.Window, error) {
	window := dispatch.Window{OpensAt: now}
	if o.OpensAt != nil {
		window.OpensAt = *o.OpensAt
	}
	window.ExpiresAt = window.OpensAt.Add(dispatch.DefaultWindow)
	if o.ExpiresAt != nil {
		window.ExpiresAt = *o.ExpiresAt
	}
	return window, window.Check(now)
}

// Create opens a dispatch, once for each request. dispatch.ErrWindow, ErrDuplicateExternalID, ErrUnavailable, ErrUnknown.
func (s *Dispatcher) Create(ctx context.Context, o Order, actor string) (dispatch.Dispatch, error) {
	return s.store.Create(ctx, func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
		window, err := o.window(now)
		if err != nil {
			return dispatch.Dispatch{}, nil, err
		}
		d, events := dispatch.New(idempotency.DispatchID(ctx, now), o.ExternalID, o.Terms, window, actor, now)
		return d, events, nil
	})
}

// Cancel ends a dispatch that stands at that version. ErrNotFound, ErrVersionMoved, ErrInvalidState, ErrUnavailable,
// ErrUnknown.
func (s *Dispatcher) Cancel(ctx context.Context, id dispatch.ID, version int, actor, reason string) (dispatch.Dispatch, error) {
	d, err := s.store.Update(ctx, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.Cancel(version, actor, reason, now)
	})
	if d.Claim != nil && (err == nil || errors.Is(err, dispatch.ErrUnknown)) {
		s.acceptor.markEnded(ctx, id, *d.Claim)
	}
	return d, err
}
