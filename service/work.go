package service

import (
	"context"
	"errors"
	"time"

	"firsttap/dispatch"
)

// WorkStore is what a driver's own work needs of the storage.
type WorkStore interface {
	Update(ctx context.Context, id dispatch.ID,
		change func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error)) (dispatch.Dispatch, error)
	Dispatch(ctx context.Context, id dispatch.ID) (dispatch.Dispatch, error)
	Driver(ctx context.Context, id dispatch.DriverID) (dispatch.Driver, error)
	NewestClaim(ctx context.Context, id dispatch.ID, driver dispatch.DriverID) (*dispatch.PastClaim, error)
	OpenFor(ctx context.Context, v dispatch.Driver, page dispatch.Page) ([]dispatch.Dispatch, string, error)
}

// Work is what drivers see and do besides accepting.
type Work struct {
	store WorkStore
	taps  *Acceptor
	now   func() time.Time
}

// NewWork returns the drivers' use cases. taps hears of claims that end.
func NewWork(store WorkStore, taps *Acceptor, now func() time.Time) *Work {
	return &Work{store: store, taps: taps, now: now}
}

// Withdraw gives the driver's claim back and opens the next round. Asking again changes nothing: whoever has
// withdrawn is told so. ErrNotFound where the driver may not see the dispatch, ErrNotYours, ErrInvalidState.
func (w *Work) Withdraw(ctx context.Context, me dispatch.DriverID, id dispatch.ID, reason string) (dispatch.Dispatch, error) {
	var ended *dispatch.Claim
	d, err := w.store.Update(ctx, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		ended = d.Claim
		return d.Withdraw(me, reason, now)
	})
	if errors.Is(err, dispatch.ErrNotYours) {
		return w.withdrawn(ctx, me, id)
	}
	if ended != nil && (err == nil || errors.Is(err, dispatch.ErrUnknown)) {
		// If it was not withdrawn after all, the next tap hears so from the database.
		w.taps.Ended(ctx, id, *ended)
	}
	return d, err
}

// withdrawn answers a withdrawal by one who does not have the dispatch: a repeated one is answered as the first.
func (w *Work) withdrawn(ctx context.Context, me dispatch.DriverID, id dispatch.ID) (dispatch.Dispatch, error) {
	past, err := w.store.NewestClaim(ctx, id, me)
	if err != nil {
		return dispatch.Dispatch{}, err
	}
	d, err := w.See(ctx, me, id)
	if err == nil && (past == nil || past.Outcome != dispatch.Withdrawn) {
		err = dispatch.ErrNotYours
	}
	if err == nil {
		// The first withdrawal may have ended before it could say so.
		w.taps.Ended(ctx, id, past.Claim)
	}
	return d, err
}

// Start begins the work on the driver's dispatch. Errors as of Withdraw.
func (w *Work) Start(ctx context.Context, me dispatch.DriverID, id dispatch.ID) (dispatch.Dispatch, error) {
	return w.advance(ctx, me, id, (*dispatch.Dispatch).Start)
}

// Complete ends the work on the driver's dispatch. Errors as of Withdraw.
func (w *Work) Complete(ctx context.Context, me dispatch.DriverID, id dispatch.ID) (dispatch.Dispatch, error) {
	return w.advance(ctx, me, id, (*dispatch.Dispatch).Complete)
}

func (w *Work) advance(ctx context.Context, me dispatch.DriverID, id dispatch.ID,
	step func(*dispatch.Dispatch, dispatch.DriverID, time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	d, err := w.store.Update(ctx, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return step(d, me, now)
	})
	if !errors.Is(err, dispatch.ErrNotYours) {
		return d, err
	}
	if _, unseen := w.See(ctx, me, id); unseen != nil {
		return d, unseen
	}
	return d, err
}

// See returns a dispatch that the driver may see: one they have, or had, or could be offered. Otherwise ErrNotFound.
func (w *Work) See(ctx context.Context, me dispatch.DriverID, id dispatch.ID) (dispatch.Dispatch, error) {
	d, _, err := w.seeWithClaim(ctx, me, id)
	return d, err
}

func (w *Work) seeWithClaim(ctx context.Context, me dispatch.DriverID, id dispatch.ID) (dispatch.Dispatch, *dispatch.PastClaim, error) {
	v, err := w.store.Driver(ctx, me)
	if err != nil {
		return dispatch.Dispatch{}, nil, err
	}
	d, err := w.store.Dispatch(ctx, id)
	if err != nil {
		return dispatch.Dispatch{}, nil, err
	}
	past, err := w.store.NewestClaim(ctx, id, me)
	if err != nil {
		return dispatch.Dispatch{}, nil, err
	}
	if past == nil && !v.MaySee(d.Terms) {
		return dispatch.Dispatch{}, nil, dispatch.ErrNotFound
	}
	return d, past, nil
}

// Receipt tells the driver how the dispatch went for them. ErrNotFound as of See.
func (w *Work) Receipt(ctx context.Context, me dispatch.DriverID, id dispatch.ID) (dispatch.Receipt, error) {
	d, past, err := w.seeWithClaim(ctx, me, id)
	if err != nil {
		return dispatch.Receipt{}, err
	}
	return d.ReceiptFor(past), nil
}

// Offers returns a page of what the driver could accept now or soon, what opens latest first, and the next page's
// cursor. One who is off duty or suspended is offered nothing.
func (w *Work) Offers(ctx context.Context, me dispatch.DriverID, page dispatch.Page) ([]dispatch.Dispatch, string, error) {
	v, err := w.store.Driver(ctx, me)
	if err != nil {
		return nil, "", err
	}
	if !v.OnDuty || v.SuspendedUntil != nil && w.now().Before(*v.SuspendedUntil) {
		return nil, "", nil
	}
	return w.store.OpenFor(ctx, v, page)
}
