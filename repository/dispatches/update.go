package dispatches

import (
	"context"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/drivers"
	"firsttap/repository/journal"
)

// Update calls change with the locked dispatch and commits the changed row with the events that change returns. If change
// returns no events, nothing is written. After a deadlock Update calls change again.
//
// ErrNotFound; change's own errors unchanged; ErrUnavailable if nothing was written; ErrUnknown if the COMMIT's reply is
// missing and the database does not say whether the events were written.
func (s *Dispatches) Update(ctx context.Context, id dispatch.ID,
	change func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	return s.UpdateIn(ctx, id, func(_ database.Tx, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return change(d, now)
	})
}

// UpdateByDriver is Update with the driver as a second argument of change. The driver's row is locked until the commit. It also
// returns ErrDriverNotFound.
func (s *Dispatches) UpdateByDriver(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
	change func(d *dispatch.Dispatch, v dispatch.Driver, now time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	return s.UpdateIn(ctx, id, func(tx database.Tx, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		row, err := drivers.Share(tx, driver)
		if err != nil {
			return nil, err
		}
		v, err := row.Driver()
		if err != nil {
			return nil, database.Unavailable(err)
		}
		return change(d, v, now)
	})
}

// UpdateIn is Update whose change may also read and write in the transaction.
func (s *Dispatches) UpdateIn(ctx context.Context, id dispatch.ID,
	change func(tx database.Tx, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	return s.Commit(ctx, func(tx database.Tx) (d dispatch.Dispatch, events []dispatch.Event, ahead time.Duration, err error) {
		row, now, err := lockRow(tx, id)
		if err != nil {
			return d, nil, 0, err
		}
		before := row.At(now)
		d = before
		if applied, err := journal.AlreadyApplied(tx, journal.KeyProof); applied || err != nil {
			return d, nil, 0, err
		}
		at := NotBefore(now, d.UpdatedAt)
		events, err = change(tx, &d, at)
		if err != nil || len(events) == 0 {
			return d, nil, 0, err
		}
		return d, events, at.Sub(now), s.save(tx, before, d, events, at.Sub(now))
	})
}

// save replaces before with d. The row is locked; round and version are conditions all the same, so that no caller can overwrite a change
// that it has not read.
func (s *Dispatches) save(tx database.Tx, before, d dispatch.Dispatch, events []dispatch.Event, ahead time.Duration) error {
	was, row := RowOf(before), RowOf(d)
	saved := tx.Model(&Row{}).
		Where("id = ? AND round = ? AND version = ?", before.ID, before.Round, before.Version).
		Select("*").Omit("id", "created_at").Updates(&row)
	if saved.Error != nil {
		return database.Unavailable(saved.Error)
	}
	if saved.RowsAffected != 1 {
		return database.Unavailable(database.ErrConflict)
	}
	if !row.sameText(&was) {
		if err := WordIndex.Change(tx, string(d.ID), was.Words(), row.Words()); err != nil {
			return err
		}
	}
	if outcome, ended := claimEnd(events); ended && before.Claim != nil {
		err := tx.Model(&ClaimRow{}).
			Where("id = ? AND round = ?", before.Claim.ID, before.Round).
			Updates(map[string]any{"outcome": outcome, "ended_at": database.Micros(d.UpdatedAt)}).Error
		if err != nil {
			return database.Unavailable(err)
		}
	}
	if err := journal.MarkApplied(tx); err != nil {
		return err
	}
	return database.Unavailable(s.delayPush(tx, &d, &events[len(events)-1], ahead))
}

// delayPush delays the push of the event if it reopens the dispatch soon after others did. The dispatch's row is locked. Ahead is as in
// writeEvents.
func (s *Dispatches) delayPush(tx database.Tx, d *dispatch.Dispatch, e *dispatch.Event, ahead time.Duration) error {
	if !e.Reopens() {
		return nil
	}
	var rows []struct {
		At, NextAt int64
		Claim      string
	}
	err := tx.Raw(`SELECT at, COALESCE(next_at, 0) next_at, claim FROM events {force ix_events_dispatch}
		WHERE dispatch_id = ? AND id > ? AND (type = ? OR type = ? AND reason_code NOT IN ?) ORDER BY dispatch_id DESC, id DESC LIMIT ?`,
		d.ID, dispatch.MinEventID(e.At.Add(-dispatch.OpeningPeriod)), dispatch.EventReopened, dispatch.EventUpdated,
		[]string{dispatch.ReasonWindowChanged, dispatch.ReasonExtended}, dispatch.MaxOpenings).Scan(&rows).Error
	recent := make([]dispatch.Opening, len(rows))
	for i, row := range rows {
		recent[i].At = database.Time(row.At)
		if next := database.Time(row.NextAt).Add(ahead); row.Claim == "" && next.After(e.At) {
			recent[i].Waits = &next
		}
	}
	e.DelayPush(recent, d)
	return err
}

// claimEnd returns the outcome that the events give the dispatch's claim, and whether they end it.
func claimEnd(events []dispatch.Event) (dispatch.Outcome, bool) {
	for _, e := range events {
		switch e.Type {
		case dispatch.EventWithdrawn:
			return dispatch.OutcomeWithdrawn, true
		case dispatch.EventUnassigned:
			return dispatch.OutcomeUnassigned, true
		case dispatch.EventCanceled:
			return dispatch.OutcomeCanceled, true
		}
	}
	return "", false
}

// Reannounce writes the event that the dispatch is open, for drivers that were refused in favor of a claim that failed.
// round is the one that they tapped in, 0 for the current one. Reannounce returns false if the dispatch is not open in that
// round, and a NotOpenYetError before the opening. AnnouncedRecentlyError if the last announcement is less than quiet ago; quiet
// doubles with each announcement within an hour.
func (s *Dispatches) Reannounce(ctx context.Context, id dispatch.ID, round int, quiet time.Duration) (bool, error) {
	announced := false
	_, err := s.UpdateIn(ctx, id, func(tx database.Tx, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		events, err := d.Reannounce(round, now)
		if announced = len(events) > 0; !announced {
			return nil, err
		}
		var before struct{ Times, Last int64 }
		err = tx.Raw(`SELECT COUNT(*) times, COALESCE(MAX(at), 0) last FROM events
			WHERE dispatch_id = ? AND type = ? AND reason_code = ? AND at > ?`,
			id, dispatch.EventOpened, dispatch.ReasonClaimFailed, database.Micros(now.Add(-reannouncedFor))).Scan(&before).Error
		if err != nil {
			return nil, database.Unavailable(err)
		}
		wait, ago := quiet<<min(max(before.Times-1, 0), quietDoubles), now.Sub(database.Time(before.Last))
		if before.Times > 0 && ago < wait {
			return nil, &dispatch.AnnouncedRecentlyError{Ago: ago, Wait: wait - ago}
		}
		return events, nil
	})
	return announced && err == nil, err
}

const (
	// reannouncedFor is how long an announcement counts for the doubling of quiet.
	reannouncedFor = time.Hour
	quietDoubles   = 5
)
