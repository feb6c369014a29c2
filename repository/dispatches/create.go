package dispatches

import (
	"context"
	"errors"
	"fmt"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/idempotency"
	"firsttap/repository/database"
	"firsttap/repository/journal"
	"firsttap/repository/search"
)

// Create writes the dispatch that build returns for the database's time. If the request was carried out before, Create
// returns its dispatch as it is now. ErrDuplicateExternalID, and ErrUnavailable, ErrUnknown.
func (s *Dispatches) Create(ctx context.Context,
	build func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error),
) (dispatch.Dispatch, error) {
	return s.Commit(ctx, func(tx database.Tx) (d dispatch.Dispatch, events []dispatch.Event, _ time.Duration, err error) {
		if d, applied, err := created(tx); applied || err != nil {
			return d, nil, 0, err
		}
		now, err := database.Clock(tx)
		if err != nil {
			return d, nil, 0, err
		}
		if d, events, err = build(now); err != nil {
			return d, nil, 0, err
		}
		row := RowOf(d)
		switch err = tx.Create(&row).Error; {
		case errors.Is(err, database.ErrDuplicateKey):
			d, err = duplicate(tx)
			return d, nil, 0, err
		case err != nil:
			return d, nil, 0, database.Unavailable(err)
		}
		return d, events, 0, WordIndex.Add(tx, search.Entries(row.ID, row.Words()))
	})
}

// created returns the dispatch that the request of tx's context has created before.
func created(tx database.Tx) (d dispatch.Dispatch, applied bool, err error) {
	if applied, err = journal.AlreadyApplied(tx, journal.DispatchProof); applied {
		d, _, err = Find(tx, idempotency.DispatchID(tx.Statement.Context, time.Time{}))
	}
	return d, applied, err
}

// duplicate returns what to answer to a creation whose external_id or identifier is taken: the dispatch, if another instance has carried
// out the same request just now, and otherwise ErrDuplicateExternalID. ErrUnknown if the database does not say which: ErrUnavailable would
// say that nothing was written.
func duplicate(tx database.Tx) (dispatch.Dispatch, error) {
	d, applied, err := created(tx)
	if err != nil {
		const text = "%w: another dispatch, or this request's, has the external_id: %v"
		return d, fmt.Errorf(text, dispatch.ErrUnknown, err) // not %w: it is not ErrUnavailable
	}
	if !applied {
		err = dispatch.ErrDuplicateExternalID
	}
	return d, err
}
