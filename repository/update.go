package repository

import (
	"context"
	"errors"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// Update calls change with the locked dispatch and commits the changed row with the events that change returns. If change
// returns no events, nothing is written. After a deadlock Update calls change again.
//
// ErrNotFound; change's own errors unchanged; ErrUnavailable if nothing was written; ErrUnknown if the COMMIT's reply is
// missing and the database does not say whether the events were written.
func (s *Store) Update(ctx context.Context, id dispatch.ID,
	change func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	return s.update(ctx, id, func(_ *gorm.DB, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return change(d, now)
	})
}

// UpdateByDriver is Update with the driver as a second argument of change. The driver's row is locked until the commit. It also
// returns ErrDriverNotFound.
func (s *Store) UpdateByDriver(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
	change func(d *dispatch.Dispatch, v dispatch.Driver, now time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	return s.update(ctx, id, func(tx *gorm.DB, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		var rows []driverRow
		if err := tx.Raw("SELECT * FROM drivers WHERE id = ? {for_share}", driver).Scan(&rows).Error; err != nil {
			return nil, unavailable(err)
		}
		if len(rows) == 0 {
			return nil, dispatch.ErrDriverNotFound
		}
		v, err := rows[0].driver()
		if err != nil {
			return nil, unavailable(err)
		}
		return change(d, v, now)
	})
}

func (s *Store) update(ctx context.Context, id dispatch.ID,
	change func(tx *gorm.DB, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	var d dispatch.Dispatch
	var events []dispatch.Event
	err := s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		row, now, err := s.findDispatchRow(tx, id, "{for_update}")
		if err != nil {
			return err
		}
		before := row.at(now)
		d, events = before, nil
		if applied, err := alreadyApplied(tx, keyProof); applied || err != nil {
			return err
		}
		at := notBefore(now, d.UpdatedAt)
		events, err = change(tx, &d, at)
		if err != nil || len(events) == 0 {
			return err
		}
		return s.save(tx, &row, before, d, events, at.Sub(now))
	})
	if err = s.settleLost(ctx, events, err); err == nil {
		s.announce(d, events)
	}
	return d, err
}

// settleLost settles a transaction that has written the events and ended with err, if that says that the reply to its COMMIT is missing.
func (s *Store) settleLost(ctx context.Context, events []dispatch.Event, err error) error {
	if !errors.Is(err, dispatch.ErrUnknown) || len(events) == 0 {
		return err
	}
	ctx, cancel := s.settling(ctx)
	defer cancel()
	return s.settle(ctx, events[0].ID, err)
}

// save replaces before, whose row is was, with d. The row is locked; round and version are conditions all the same, so that no caller can
// overwrite a change that it has not read.
func (s *Store) save(tx *gorm.DB, was *dispatchRow, before, d dispatch.Dispatch, events []dispatch.Event, ahead time.Duration) error {
	row := toDispatchRow(d)
	saved := tx.Model(&dispatchRow{}).
		Where("id = ? AND round = ? AND version = ?", before.ID, before.Round, before.Version).
		Select("*").Omit("id", "created_at").Updates(&row)
	if saved.Error != nil {
		return unavailable(saved.Error)
	}
	if saved.RowsAffected != 1 {
		return unavailable(errConflict)
	}
	if !row.sameText(was) {
		if err := s.changeWords(tx, s.dispatchWords(), string(d.ID), was.words(), row.words()); err != nil {
			return err
		}
	}
	if outcome, ended := claimEnd(events); ended && before.Claim != nil {
		err := tx.Model(&claimRow{}).
			Where("id = ? AND round = ?", before.Claim.ID, before.Round).
			Updates(map[string]any{"outcome": outcome, "ended_at": micros(d.UpdatedAt)}).Error
		if err != nil {
			return unavailable(err)
		}
	}
	if before.Round == d.Round && !before.ExpiresAt.Equal(d.ExpiresAt) {
		if err := s.updateOfferExpiry(tx, d); err != nil {
			return err
		}
	}
	if err := markApplied(tx); err != nil {
		return err
	}
	if err := s.delayPush(tx, &d, &events[len(events)-1], ahead); err != nil {
		return unavailable(err)
	}
	return unavailable(s.writeEvents(tx, events, ahead))
}

// delayPush delays the push of the event if it reopens the dispatch soon after others did. The dispatch's row is locked. Ahead is as in
// writeEvents.
func (s *Store) delayPush(tx *gorm.DB, d *dispatch.Dispatch, e *dispatch.Event, ahead time.Duration) error {
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
		recent[i].At = fromMicros(row.At)
		if next := fromMicros(row.NextAt).Add(ahead); row.Claim == "" && next.After(e.At) {
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
func (s *Store) Reannounce(ctx context.Context, id dispatch.ID, round int, quiet time.Duration) (bool, error) {
	announced := false
	_, err := s.update(ctx, id, func(tx *gorm.DB, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		events, err := d.Reannounce(round, now)
		if announced = len(events) > 0; !announced {
			return nil, err
		}
		var before struct{ Times, Last int64 }
		err = tx.Raw(`SELECT COUNT(*) times, COALESCE(MAX(at), 0) last FROM events
			WHERE dispatch_id = ? AND type = ? AND reason_code = ? AND at > ?`,
			id, dispatch.EventOpened, dispatch.ReasonClaimFailed, micros(now.Add(-reannouncedFor))).Scan(&before).Error
		if err != nil {
			return nil, unavailable(err)
		}
		wait, ago := quiet<<min(max(before.Times-1, 0), quietDoubles), now.Sub(fromMicros(before.Last))
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

// updateOfferExpiry sets the end of the round's unsent offers to that of the dispatch. It waits for no lock:
// the sender reads the end from the dispatch.
func (s *Store) updateOfferExpiry(tx *gorm.DB, d dispatch.Dispatch) error {
	var ids []dispatch.NotificationID
	err := tx.Raw(`SELECT id FROM notifications {force ix_notifications_driver}
		WHERE dispatch_id = ? AND round = ? AND type IN `+offerTypes+` AND state = 0 {skip_locked}`, d.ID, d.Round).Scan(&ids).Error
	if err != nil || len(ids) == 0 {
		return unavailable(err)
	}
	for len(ids) > 0 {
		n := min(len(ids), rowsPerStatement)
		err := tx.Exec("UPDATE notifications {force PRIMARY} SET expires_at = ? WHERE id IN ?", micros(d.ExpiresAt), ids[:n]).Error
		if err != nil {
			return unavailable(err)
		}
		ids = ids[n:]
	}
	return nil
}
