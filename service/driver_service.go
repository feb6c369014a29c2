package service

import (
	"context"
	"errors"
	"time"

	"firsttap/dispatch"
)

// DriverServiceStore is the storage of a DriverService.
type DriverServiceStore interface {
	Update(ctx context.Context, id dispatch.ID,
		change func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error)) (dispatch.Dispatch, error)
	UpdateByDriver(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
		change func(*dispatch.Dispatch, dispatch.Driver, time.Time) ([]dispatch.Event, error)) (dispatch.Dispatch, error)
	Withdraw(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
		change func(*dispatch.Dispatch, dispatch.Withdrawals, time.Time) ([]dispatch.Event, error)) (dispatch.Dispatch, error)
	// ClaimOf returns the driver's claim of the round, of the newest for 0; nil if there is none.
	ClaimOf(ctx context.Context, id dispatch.ID, driver dispatch.DriverID, round int) (*dispatch.PastClaim, error)
}

// DriverOffers is what a DriverService knows of drivers' offers.
type DriverOffers interface {
	OfferTo(ctx context.Context, id dispatch.ID, driver dispatch.DriverID) (dispatch.Offered, error)
	OpenDispatchesFor(ctx context.Context, v dispatch.Driver, page dispatch.Page) ([]dispatch.Offered, string, error)
	Decline(ctx context.Context, id dispatch.ID, round int, driver dispatch.DriverID, reason string) error
	RaceStanding(ctx context.Context, id dispatch.ID, round int, driver, winner dispatch.DriverID) (dispatch.RaceStanding, error)
}

// DriverProfiles reads drivers.
type DriverProfiles interface {
	Driver(ctx context.Context, id dispatch.DriverID) (dispatch.Driver, error)
}

// DriverService has the use cases of drivers besides accepting.
type DriverService struct {
	store    DriverServiceStore
	offers   DriverOffers
	drivers  DriverProfiles
	acceptor *Acceptor
	now      func() time.Time
	limited  func(dispatch.DriverID, dispatch.ID)
}

// DriverServiceOptions configures a DriverService. All fields but OnLimited are required.
type DriverServiceOptions struct {
	Store   DriverServiceStore
	Offers  DriverOffers
	Drivers DriverProfiles
	// Acceptor is informed of claims that end. Its ledger is flushed for receipts.
	Acceptor *Acceptor
	Now      func() time.Time
	// OnLimited is called after each withdrawal that is refused with ErrTooManyWithdrawals; nil for no call.
	OnLimited func(dispatch.DriverID, dispatch.ID)
}

// NewDriverService returns the drivers' use cases.
func NewDriverService(o DriverServiceOptions) *DriverService {
	w := &DriverService{store: o.Store, offers: o.Offers, drivers: o.Drivers, acceptor: o.Acceptor, now: o.Now, limited: o.OnLimited}
	if w.limited == nil {
		w.limited = func(dispatch.DriverID, dispatch.ID) {}
	}
	return w
}

// Withdraw ends the driver's claim of that round, 0 for the current one, and opens the next round. A repeated
// withdrawal changes nothing and returns the same. ErrNotFound where the driver may not see the dispatch, ErrNotHolder,
// ErrInvalidState, ErrOfferStale where the driver has it in another round, ErrTooManyWithdrawals.
func (w *DriverService) Withdraw(
	ctx context.Context, me dispatch.DriverID, id dispatch.ID, round int, reason string,
) (dispatch.Dispatch, error) {
	var ended *dispatch.Claim
	d, err := w.store.Withdraw(ctx, id, me, func(d *dispatch.Dispatch, past dispatch.Withdrawals, now time.Time) ([]dispatch.Event, error) {
		ended = d.Claim
		if isOtherRound(d, me, round) {
			return nil, dispatch.ErrOfferStale
		}
		events, err := d.Withdraw(me, reason, now)
		if err == nil {
			err = past.Check(now)
		}
		return events, err
	})
	if errors.Is(err, dispatch.ErrNotHolder) || errors.Is(err, dispatch.ErrOfferStale) {
		return w.repeatedWithdrawal(ctx, me, id, round, err)
	}
	if errors.Is(err, dispatch.ErrTooManyWithdrawals) {
		w.limited(me, id)
	}
	if ended != nil && (err == nil || errors.Is(err, dispatch.ErrUnknown)) {
		// If the change was not committed, the database refuses the next tap.
		w.acceptor.markEnded(ctx, id, *ended)
	}
	return d, err
}

// isOtherRound reports whether the driver has the dispatch in another round than the one that a request is about, 0 for the current one.
func isOtherRound(d *dispatch.Dispatch, me dispatch.DriverID, round int) bool {
	return round != 0 && round != d.Round && d.HeldBy(me)
}

// repeatedWithdrawal handles a withdrawal by a driver who does not hold the dispatch in that round. A repeated withdrawal
// succeeds like the first one; any other gets the error refused.
func (w *DriverService) repeatedWithdrawal(
	ctx context.Context, me dispatch.DriverID, id dispatch.ID, round int, refused error,
) (dispatch.Dispatch, error) {
	past, err := w.store.ClaimOf(ctx, id, me, round)
	if err != nil {
		return dispatch.Dispatch{}, err
	}
	o, err := w.Offer(ctx, me, id)
	if err == nil && (past == nil || past.Outcome != dispatch.OutcomeWithdrawn) {
		err = refused
	}
	if err == nil {
		// The first withdrawal may have failed after its commit.
		w.acceptor.markEnded(ctx, id, past.Claim)
	}
	return o.Dispatch, err
}

// Start starts the work on the driver's dispatch of that round, 0 for the current one. Errors as of Withdraw, and ErrNotEligible while the
// driver is suspended.
func (w *DriverService) Start(ctx context.Context, me dispatch.DriverID, id dispatch.ID, round int) (dispatch.Dispatch, error) {
	d, err := w.store.UpdateByDriver(ctx, id, me, func(d *dispatch.Dispatch, v dispatch.Driver, now time.Time) ([]dispatch.Event, error) {
		if isOtherRound(d, me, round) {
			return nil, dispatch.ErrOfferStale
		}
		return d.Start(v, now)
	})
	return w.hideUnseen(ctx, me, id, d, err)
}

// Complete completes the work on the driver's dispatch of that round, 0 for the current one. Errors as of Withdraw.
func (w *DriverService) Complete(ctx context.Context, me dispatch.DriverID, id dispatch.ID, round int) (dispatch.Dispatch, error) {
	d, err := w.store.Update(ctx, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		if isOtherRound(d, me, round) {
			return nil, dispatch.ErrOfferStale
		}
		return d.Complete(me, now)
	})
	return w.hideUnseen(ctx, me, id, d, err)
}

// hideUnseen replaces ErrNotHolder with ErrNotFound where the driver may not see the dispatch.
func (w *DriverService) hideUnseen(
	ctx context.Context, me dispatch.DriverID, id dispatch.ID, d dispatch.Dispatch, err error,
) (dispatch.Dispatch, error) {
	if !errors.Is(err, dispatch.ErrNotHolder) {
		return d, err
	}
	if _, unseen := w.Offer(ctx, me, id); unseen != nil {
		return d, unseen
	}
	return d, err
}

// Offer returns a dispatch that the driver may see, with the state of their offer: one that they have or had, or could be offered.
// Otherwise ErrNotFound.
func (w *DriverService) Offer(ctx context.Context, me dispatch.DriverID, id dispatch.ID) (dispatch.Offered, error) {
	o, _, err := w.seeWithClaim(ctx, me, id)
	return o, err
}

func (w *DriverService) seeWithClaim(
	ctx context.Context, me dispatch.DriverID, id dispatch.ID,
) (dispatch.Offered, *dispatch.PastClaim, error) {
	v, err := w.drivers.Driver(ctx, me)
	if err != nil {
		return dispatch.Offered{}, nil, err
	}
	o, err := w.offers.OfferTo(ctx, id, me)
	if err != nil {
		return dispatch.Offered{}, nil, err
	}
	past, err := w.store.ClaimOf(ctx, id, me, 0)
	if err != nil {
		return dispatch.Offered{}, nil, err
	}
	if past == nil && !v.MatchesTerms(o.Terms) {
		return dispatch.Offered{}, nil, dispatch.ErrNotFound
	}
	return o, past, nil
}

// Decline records that the driver does not want the offer of that round, 0 for the current one. The driver may still accept
// it. A closed offer does not change. ErrNotFound as for Offer; ErrInvalidState for the dispatch's holder, ErrOfferStale for a
// round that does not exist yet.
func (w *DriverService) Decline(ctx context.Context, me dispatch.DriverID, id dispatch.ID, round int, reason string) error {
	if _, err := w.Offer(ctx, me, id); err != nil {
		return err
	}
	return w.offers.Decline(ctx, id, round, me, reason)
}

// Receipt returns the driver's outcome. Before it says that another driver got the dispatch without a tap of this one, it
// waits for the attempts that are not stored yet, here and at other instances; it returns PENDING if ctx ends first.
// ErrNotFound as for Offer.
func (w *DriverService) Receipt(ctx context.Context, me dispatch.DriverID, id dispatch.ID) (dispatch.Receipt, error) {
	written := w.acceptor.attempts.written(ctx)
	r, untapped, err := w.receipt(ctx, me, id)
	if err != nil || !untapped {
		return r, err
	}
	if !written || !w.acceptor.attempts.writtenElsewhere(ctx) {
		return dispatch.Receipt{Outcome: dispatch.OutcomePending, Round: r.Round}, nil
	}
	r, _, err = w.receipt(ctx, me, id)
	return r, err
}

// receipt returns the outcome by the stored attempts. untapped says that a driver has the dispatch, and that no tap of this
// driver is stored.
func (w *DriverService) receipt(ctx context.Context, me dispatch.DriverID, id dispatch.ID) (r dispatch.Receipt, untapped bool, err error) {
	o, past, err := w.seeWithClaim(ctx, me, id)
	if err != nil {
		return dispatch.Receipt{}, false, err
	}
	var standing dispatch.RaceStanding
	if past == nil || past.Round < o.Round {
		var winner dispatch.DriverID
		if o.Claim != nil {
			winner = o.Claim.Driver
		}
		if standing, err = w.offers.RaceStanding(ctx, id, o.Round, me, winner); err != nil {
			return dispatch.Receipt{}, false, err
		}
	}
	r = o.ReceiptFor(past, o.Contact, standing)
	return r, r.Outcome == dispatch.OutcomeNoAttempt || r.Outcome == dispatch.OutcomeDeclined && o.Claim != nil, nil
}

// Offers returns a page of the dispatches that the driver could accept now or soon, latest opening first, and the next
// page's cursor. A driver who is off duty or suspended has no offers.
func (w *DriverService) Offers(ctx context.Context, me dispatch.DriverID, page dispatch.Page) ([]dispatch.Offered, string, error) {
	v, err := w.drivers.Driver(ctx, me)
	if err != nil {
		return nil, "", err
	}
	if !v.OnDuty || v.Suspended(w.now()) {
		return nil, "", nil
	}
	return w.offers.OpenDispatchesFor(ctx, v, page)
}
