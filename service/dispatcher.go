package service

import (
	"context"
	"errors"
	"time"

	"firsttap/dispatch"
)

// DispatchStore is what running dispatches needs of the storage.
type DispatchStore interface {
	Create(ctx context.Context, build func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error)) (dispatch.Dispatch, error)
	Update(ctx context.Context, id dispatch.ID,
		change func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error)) (dispatch.Dispatch, error)
}

// Dispatcher is what the backoffice does to dispatches.
type Dispatcher struct {
	store DispatchStore
	taps  *Acceptor
}

// NewDispatcher returns the backoffice's use cases. taps hears of claims that end.
func NewDispatcher(store DispatchStore, taps *Acceptor) *Dispatcher {
	return &Dispatcher{store: store, taps: taps}
}

// ErrWindow says that a dispatch would expire before it opens, or has expired already.
var ErrWindow = errors.New("expires_at must be after opens_at and in the future")

// Order is a dispatch to be made.
type Order struct {
	ExternalID string
	Terms      dispatch.Terms
	OpensAt    *time.Time // nil: now
	ExpiresAt  *time.Time // nil: the default window after opening
}

// Create opens a dispatch. ErrWindow, ErrDuplicateExternalID, ErrUnavailable, ErrUnknown.
func (s *Dispatcher) Create(ctx context.Context, o Order, actor string) (dispatch.Dispatch, error) {
	return s.store.Create(ctx, func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
		window := dispatch.Window{OpensAt: now}
		if o.OpensAt != nil {
			window.OpensAt = *o.OpensAt
		}
		window.ExpiresAt = window.OpensAt.Add(dispatch.DefaultWindow)
		if o.ExpiresAt != nil {
			window.ExpiresAt = *o.ExpiresAt
		}
		if !window.ExpiresAt.After(window.OpensAt) || !window.ExpiresAt.After(now) {
			return dispatch.Dispatch{}, nil, ErrWindow
		}
		d, events := dispatch.New(dispatch.NewID(now), o.ExternalID, o.Terms, window, actor, now)
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
		s.taps.Ended(ctx, id, *d.Claim)
	}
	return d, err
}
