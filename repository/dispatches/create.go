package dispatches

import (
	"context"
	"errors"
	"fmt"
	"time"

	"firsttap/dispatch"
	"firsttap/idempotency"
	"firsttap/repository/database"
	"firsttap/repository/journal"
	"firsttap/repository/search"
)

// Create writes the dispatch that build returns for the database's time. If the request was carried out before, Create
// returns its dispatch as it is now. ErrDuplicateExternalID, and ErrUnavailable, ErrUnknown.
func (s *Dispatches) Create(ctx context.Context,
	build func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error),
) (dispatch.Dispatch, error) {
	general := s.db.Serve.With(ctx)
	switch applied, err := journal.AlreadyApplied(general, journal.DispatchProof); {
	case err != nil:
		return dispatch.Dispatch{}, err
	case applied:
		return s.Dispatch(ctx, idempotency.DispatchID(ctx, time.Time{}))
	}
	d, err := s.Commit(ctx, func(tx database.Tx) (d dispatch.Dispatch, events []dispatch.Event, _ time.Duration, err error) {
		d, events, err = s.create(tx, build)
		return d, events, 0, err
	})
	if errors.Is(err, dispatch.ErrDuplicateExternalID) {
		// The request may have been carried out just now, by another instance.
		switch applied, failed := journal.AlreadyApplied(general, journal.DispatchProof); {
		case failed != nil:
			const text = "%w: another dispatch, or this request's, has the external_id: %v"
			return dispatch.Dispatch{}, fmt.Errorf(text, dispatch.ErrUnknown, failed) // not %w: it is not ErrUnavailable
		case applied:
			return s.Dispatch(ctx, idempotency.DispatchID(ctx, time.Time{}))
		}
	}
	return d, err
}

func (s *Dispatches) create(tx database.Tx, build func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error),
) (d dispatch.Dispatch, events []dispatch.Event, err error) {
	now, err := database.Clock(tx)
	if err != nil {
		return d, nil, err
	}
	if d, events, err = build(now); err != nil {
		return d, nil, err
	}
	row := RowOf(d)
	err = tx.Create(&row).Error
	if errors.Is(err, database.ErrDuplicateKey) {
		return d, nil, dispatch.ErrDuplicateExternalID
	}
	if err != nil {
		return d, nil, database.Unavailable(err)
	}
	return d, events, s.words.Add(tx, search.Entries(row.ID, row.Words()))
}
