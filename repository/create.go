package repository

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/idempotency"
)

// Create writes the dispatch that build returns for the database's time. If the request was carried out before, Create
// returns its dispatch as it is now. ErrDuplicateExternalID, and ErrUnavailable, ErrUnknown.
func (s *Store) Create(ctx context.Context,
	build func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error),
) (dispatch.Dispatch, error) {
	general := s.serve.WithContext(ctx)
	switch applied, err := alreadyApplied(general, dispatchProof); {
	case err != nil:
		return dispatch.Dispatch{}, err
	case applied:
		return s.Dispatch(ctx, idempotency.DispatchID(ctx, time.Time{}))
	}
	var d dispatch.Dispatch
	var events []dispatch.Event
	err := s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) (err error) {
		d, events, err = s.create(tx, build)
		return err
	})
	if errors.Is(err, dispatch.ErrDuplicateExternalID) {
		// The request may have been carried out just now, by another instance.
		switch applied, failed := alreadyApplied(general, dispatchProof); {
		case failed != nil:
			return dispatch.Dispatch{}, fmt.Errorf("%w: another dispatch, or this request's, has the external_id: %v", dispatch.ErrUnknown, failed) //nolint:errorlint // it is not ErrUnavailable
		case applied:
			return s.Dispatch(ctx, idempotency.DispatchID(ctx, time.Time{}))
		}
	}
	if err = s.settleLost(ctx, events, err); err == nil {
		s.announce(d, events)
	}
	return d, err
}

func (s *Store) create(tx *gorm.DB, build func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error),
) (d dispatch.Dispatch, events []dispatch.Event, err error) {
	now, err := s.clock(tx)
	if err != nil {
		return d, nil, err
	}
	if d, events, err = build(now); err != nil {
		return d, nil, err
	}
	row := toDispatchRow(d)
	err = tx.Create(&row).Error
	if errors.Is(err, gorm.ErrDuplicatedKey) {
		return d, nil, dispatch.ErrDuplicateExternalID
	}
	if err != nil {
		return d, nil, unavailable(err)
	}
	if err := s.addWords(tx, s.dispatchWords(), wordEntries(row.ID, row.words())); err != nil {
		return d, nil, err
	}
	return d, events, unavailable(s.writeEvents(tx, events, 0))
}
