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
	UpdateAs(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
		change func(*dispatch.Dispatch, dispatch.Driver, time.Time) ([]dispatch.Event, error)) (dispatch.Dispatch, error)
	Withdraw(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
		change func(*dispatch.Dispatch, dispatch.Withdrawals, time.Time) ([]dispatch.Event, error)) (dispatch.Dispatch, error)
	Offered(ctx context.Context, id dispatch.ID, driver dispatch.DriverID) (dispatch.Offered, error)
	Decline(ctx context.Context, id dispatch.ID, round int, driver dispatch.DriverID, reason string) error
	Standing(ctx context.Context, id dispatch.ID, round int, driver, winner dispatch.DriverID) (dispatch.Standing, error)
	Driver(ctx context.Context, id dispatch.DriverID) (dispatch.Driver, error)
	NewestClaim(ctx context.Context, id dispatch.ID, driver dispatch.DriverID) (*dispatch.PastClaim, error)
	ClaimIn(ctx context.Context, id dispatch.ID, driver dispatch.DriverID, round int) (*dispatch.PastClaim, error)
	OpenFor(ctx context.Context, v dispatch.Driver, page dispatch.Page) ([]dispatch.Offered, string, error)
}

// Work is what drivers see and do besides accepting.
type Work struct {
	store    WorkStore
	acceptor *Acceptor
	now      func() time.Time
	limited  func(dispatch.DriverID, dispatch.ID)
}

// NewWork returns the drivers' use cases. taps hears of claims that end.
func NewWork(store WorkStore, taps *Acceptor, now func() time.Time) *Work {
	return &Work{store: store, acceptor: taps, now: now, limited: func(dispatch.DriverID, dispatch.ID) {}}
}

// OnLimited has limited called with each withdrawal that is refused because there were too many. Call it before the first.
func (w *Work) OnLimited(limited func(dispatch.DriverID, dispatch.ID)) { w.limited = limited }

// Withdraw gives the driver's claim of that round, 0 for the current one, back and opens the next round. Asking again
// changes nothing: a driver who has withdrawn is told so. ErrNotFound where the driver may not see the dispatch,
// ErrNotYours, ErrInvalidState, ErrOfferStale where the driver has it in another round, ErrTooOften.
func (w *Work) Withdraw(ctx context.Context, me dispatch.DriverID, id dispatch.ID, round int, reason string) (dispatch.Dispatch, error) {
	var ended *dispatch.Claim
	d, err := w.store.Withdraw(ctx, id, me, func(d *dispatch.Dispatch, past dispatch.Withdrawals, now time.Time) ([]dispatch.Event, error) {
		ended = d.Claim
		if round != 0 && round != d.Round && d.HeldBy(me) {
			return nil, dispatch.ErrOfferStale
		}
		events, err := d.Withdraw(me, reason, now)
		if err == nil {
			err = past.Check(now)
		}
		if err != nil {
			return nil, err
		}
		past.Defer(events, d)
		return events, nil
	})
	if errors.Is(err, dispatch.ErrNotYours) || errors.Is(err, dispatch.ErrOfferStale) {
		return w.repeatedWithdrawal(ctx, me, id, round, err)
	}
	if errors.Is(err, dispatch.ErrTooOften) {
		w.limited(me, id)
	}
	if ended != nil && (err == nil || errors.Is(err, dispatch.ErrUnknown)) {
		// If it was not withdrawn after all, the next tap hears so from the database.
		w.acceptor.markEnded(ctx, id, *ended)
	}
	return d, err
}

// repeatedWithdrawal answers a withdrawal by one who does not have the dispatch in that round: a repeated one is answered as the
// first, any other with refused.
func (w *Work) repeatedWithdrawal(ctx context.Context, me dispatch.DriverID, id dispatch.ID, round int, refused error) (dispatch.Dispatch, error) {
	var past *dispatch.PastClaim
	var err error
	if round == 0 {
		past, err = w.store.NewestClaim(ctx, id, me)
	} else {
		past, err = w.store.ClaimIn(ctx, id, me, round)
	}
	if err != nil {
		return dispatch.Dispatch{}, err
	}
	d, err := w.See(ctx, me, id)
	if err == nil && (past == nil || past.Outcome != dispatch.Withdrawn) {
		err = refused
	}
	if err == nil {
		// The first withdrawal may have ended before it could say so.
		w.acceptor.markEnded(ctx, id, past.Claim)
	}
	return d, err
}

// Start begins the work on the driver's dispatch. Errors as of Withdraw, and ErrNotEligible while the driver is suspended.
func (w *Work) Start(ctx context.Context, me dispatch.DriverID, id dispatch.ID) (dispatch.Dispatch, error) {
	d, err := w.store.UpdateAs(ctx, id, me, (*dispatch.Dispatch).Start)
	return w.hideUnseen(ctx, me, id, d, err)
}

// Complete ends the work on the driver's dispatch. Errors as of Withdraw.
func (w *Work) Complete(ctx context.Context, me dispatch.DriverID, id dispatch.ID) (dispatch.Dispatch, error) {
	d, err := w.store.Update(ctx, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.Complete(me, now)
	})
	return w.hideUnseen(ctx, me, id, d, err)
}

// hideUnseen answers a step by one who does not have the dispatch with ErrNotFound where they may not see it.
func (w *Work) hideUnseen(ctx context.Context, me dispatch.DriverID, id dispatch.ID, d dispatch.Dispatch, err error) (dispatch.Dispatch, error) {
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
	o, _, err := w.seeWithClaim(ctx, me, id)
	return o.Dispatch, err
}

// Offer is See with what is known of the driver's offer.
func (w *Work) Offer(ctx context.Context, me dispatch.DriverID, id dispatch.ID) (dispatch.Offered, error) {
	o, _, err := w.seeWithClaim(ctx, me, id)
	return o, err
}

func (w *Work) seeWithClaim(ctx context.Context, me dispatch.DriverID, id dispatch.ID) (dispatch.Offered, *dispatch.PastClaim, error) {
	v, err := w.store.Driver(ctx, me)
	if err != nil {
		return dispatch.Offered{}, nil, err
	}
	o, err := w.store.Offered(ctx, id, me)
	if err != nil {
		return dispatch.Offered{}, nil, err
	}
	past, err := w.store.NewestClaim(ctx, id, me)
	if err != nil {
		return dispatch.Offered{}, nil, err
	}
	if past == nil && !v.MaySee(o.Terms) {
		return dispatch.Offered{}, nil, dispatch.ErrNotFound
	}
	return o, past, nil
}

// Decline takes note that the driver does not want the offer of that round, 0 for the current one, and may yet accept it.
// Of one that is no longer open nothing is written. ErrNotFound as of See; ErrInvalidState for who has the dispatch,
// ErrOfferStale for a round that has not been.
func (w *Work) Decline(ctx context.Context, me dispatch.DriverID, id dispatch.ID, round int, reason string) error {
	if _, err := w.See(ctx, me, id); err != nil {
		return err
	}
	return w.store.Decline(ctx, id, round, me, reason)
}

// Receipt tells the driver how the dispatch went for them. Before it says that they let somebody else have it without a
// tap, it waits for the taps that are still to be written, here and elsewhere: PENDING where ctx ends first. ErrNotFound
// as of See.
func (w *Work) Receipt(ctx context.Context, me dispatch.DriverID, id dispatch.ID) (dispatch.Receipt, error) {
	written := w.acceptor.written(ctx)
	r, untapped, err := w.receipt(ctx, me, id)
	if err != nil || !untapped {
		return r, err
	}
	if !written || !w.acceptor.writtenElsewhere(ctx) {
		return dispatch.Receipt{Outcome: dispatch.Undecided, Round: r.Round}, nil
	}
	r, _, err = w.receipt(ctx, me, id)
	return r, err
}

// receipt is how it went by what is written now. untapped: somebody has it, and no tap of the driver's was found.
func (w *Work) receipt(ctx context.Context, me dispatch.DriverID, id dispatch.ID) (r dispatch.Receipt, untapped bool, err error) {
	o, past, err := w.seeWithClaim(ctx, me, id)
	if err != nil {
		return dispatch.Receipt{}, false, err
	}
	var standing dispatch.Standing
	if past == nil || past.Round < o.Round {
		var winner dispatch.DriverID
		if o.Claim != nil {
			winner = o.Claim.Driver
		}
		if standing, err = w.store.Standing(ctx, id, o.Round, me, winner); err != nil {
			return dispatch.Receipt{}, false, err
		}
	}
	r = o.ReceiptFor(past, o.Contact, standing)
	return r, r.Outcome == dispatch.OutcomeNoAttempt || r.Outcome == dispatch.OutcomeDeclined && o.Claim != nil, nil
}

// Offers returns a page of what the driver could accept now or soon, what opens latest first, and the next page's
// cursor. One who is off duty or suspended is offered nothing.
func (w *Work) Offers(ctx context.Context, me dispatch.DriverID, page dispatch.Page) ([]dispatch.Offered, string, error) {
	v, err := w.store.Driver(ctx, me)
	if err != nil {
		return nil, "", err
	}
	if !v.OnDuty || v.Suspended(w.now()) {
		return nil, "", nil
	}
	return w.store.OpenFor(ctx, v, page)
}
