package dispatches

import (
	"context"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/drivers"
)

// Withdraw is Update with the driver's withdrawals that count towards the limits. It reads them only if the driver has the dispatch.
func (s *Dispatches) Withdraw(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
	change func(d *dispatch.Dispatch, past dispatch.Withdrawals, now time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	return s.UpdateIn(ctx, id, func(tx database.Tx, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		var past dispatch.Withdrawals
		if d.HeldBy(driver) {
			var err error
			if past, now, err = s.withdrawals(tx, id, driver); err != nil {
				return nil, err
			}
			now = NotBefore(now, d.UpdatedAt)
		}
		return change(d, past, now)
	})
}

// withdrawals reads the withdrawals that count, and a time that is not before any of them.
func (s *Dispatches) withdrawals(
	tx database.Tx, id dispatch.ID, driver dispatch.DriverID,
) (past dispatch.Withdrawals, now time.Time, err error) {
	// If one driver withdraws twice at the same time, the second waits here and counts the first.
	if _, now, err = drivers.Lock(tx, driver); err != nil {
		return past, now, err
	}
	var rows []struct {
		DispatchID dispatch.ID
		EndedAt    int64
	}
	err = tx.Raw(`SELECT dispatch_id, ended_at FROM claims
		WHERE outcome = 'WITHDRAWN' AND ended_at > ? AND driver_id = ? ORDER BY ended_at`,
		database.Micros(now.Add(-dispatch.WithdrawalPeriod)), driver).Scan(&rows).Error
	if err != nil {
		return past, now, database.Unavailable(err)
	}
	for _, row := range rows {
		at := database.Time(row.EndedAt)
		past.ByDriver = append(past.ByDriver, at)
		if row.DispatchID == id {
			past.OfDispatchByDriver = append(past.OfDispatchByDriver, at)
		}
	}
	return past, now, nil
}
