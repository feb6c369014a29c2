package service

import (
	"context"
	"errors"
	"time"

	"firsttap/dispatch"
)

// Assign gives the driver a dispatch that stands at that version. Whoever taps from then on is told at once that it is
// taken. The errors are those of dispatch.Dispatch.Assign, and ErrNotFound, ErrDriverNotFound, ErrUnavailable, ErrUnknown.
func (s *Dispatcher) Assign(ctx context.Context, id dispatch.ID, version int, driver dispatch.DriverID, actor string) (dispatch.Dispatch, error) {
	// Who hangs up while the claim is being written would leave it neither made nor refused, and the taps not told.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), decideTimeout)
	defer cancel()
	claim := dispatch.NewClaimID(time.Now())
	d, err := s.store.Assign(ctx, id, driver, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
		return d.Assign(version, c, claim, actor, now)
	})
	if err == nil && d.Claim != nil { // it may have ended since, where a request is done again
		s.acceptor.markTaken(ctx, id, *d.Claim)
	}
	return d, err
}

// Unassign takes a dispatch that stands at that version from whoever has it, and opens the next round. The errors are those
// of dispatch.Dispatch.Unassign, and ErrNotFound, ErrUnavailable, ErrUnknown.
func (s *Dispatcher) Unassign(ctx context.Context, id dispatch.ID, version int, actor, reason string) (dispatch.Dispatch, error) {
	var ended *dispatch.Claim
	d, err := s.store.Update(ctx, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		ended = d.Claim
		return d.Unassign(version, actor, reason, now)
	})
	if ended != nil && (err == nil || errors.Is(err, dispatch.ErrUnknown)) {
		// If it was not unassigned after all, the next tap hears so from the database.
		s.acceptor.markEnded(ctx, id, *ended)
	}
	return d, err
}
