package repository

import (
	"context"
	"slices"
	"time"

	"firsttap/dispatch"
)

// signalWindow is how far back a driver's signals go, recentWindow the recent ones.
const (
	signalWindow = 30 * 24 * time.Hour
	recentWindow = 24 * time.Hour
)

// firstTapsSQL selects a driver's first tap in the race for each offer, when the offer's round began, when the dispatch opens
// if that is the current round, and when the push service accepted the offer.
const firstTapsSQL = `
SELECT f.at, COALESCE((SELECT MIN(e.at) FROM events e WHERE e.dispatch_id = f.dispatch_id AND e.round = f.round), 0) began,
  CASE WHEN d.round = f.round THEN d.opens_at ELSE 0 END opens,
  (SELECT MIN(n.sent_at) FROM notifications n WHERE n.dispatch_id = f.dispatch_id AND n.round = f.round AND n.driver_id = ?
    AND n.state = 1 AND n.type IN ` + offerTypes + `) sent
FROM (SELECT dispatch_id, round, MIN(at) at FROM attempts WHERE driver_id = ? AND at >= ? AND ` + inRace + `
  GROUP BY dispatch_id, round) f
JOIN dispatches d ON d.id = f.dispatch_id`

// TapStatistics summarizes the driver's taps of the last thirty days. ErrDriverNotFound.
func (s *Store) TapStatistics(ctx context.Context, v dispatch.DriverID) (dispatch.TapStatistics, error) {
	if _, err := s.Driver(ctx, v); err != nil {
		return dispatch.TapStatistics{}, err
	}
	db := s.general.WithContext(ctx)
	now, err := s.clock(db)
	if err != nil {
		return dispatch.TapStatistics{}, err
	}
	since, late := micros(now.Add(-signalWindow)), micros(now.Add(-recentWindow))
	var signals dispatch.TapStatistics
	err = db.Raw(`SELECT (SELECT COUNT(*) FROM attempts WHERE driver_id = ? AND at >= ?) taps, COUNT(*) wins,
		COUNT(CASE WHEN outcome = 'WITHDRAWN' THEN 1 END) withdrawn FROM claims WHERE driver_id = ? AND accepted_at >= ?`,
		v, since, v, since).Row().Scan(&signals.Taps, &signals.Wins, &signals.Withdrawn)
	if err != nil {
		return dispatch.TapStatistics{}, unavailable(err)
	}
	err = db.Raw(`SELECT (SELECT COUNT(*) FROM claims WHERE driver_id = ? AND outcome = 'WITHDRAWN' AND ended_at >= ?),
		(SELECT COUNT(*) FROM attempts WHERE driver_id = ? AND at >= ? AND result IN ('NOT_ELIGIBLE', 'DRIVER_BUSY', 'OFFER_STALE'))`,
		v, late, v, late).Row().Scan(&signals.RecentWithdrawals, &signals.RecentUnwinnable)
	if err != nil {
		return dispatch.TapStatistics{}, unavailable(err)
	}
	var taps []struct {
		At           int64
		Began, Opens int64
		Sent         *int64
	}
	if err := db.Raw(firstTapsSQL, v, v, since).Scan(&taps).Error; err != nil {
		return dispatch.TapStatistics{}, unavailable(err)
	}
	for _, t := range taps {
		opened := max(t.Began, t.Opens)
		if opened == 0 {
			continue
		}
		if took := dispatch.Reaction(fromMicros(t.At), fromMicros(opened), fromOptionalMicros(t.Sent)); took != nil {
			signals.Reactions = append(signals.Reactions, *took)
		}
	}
	slices.Sort(signals.Reactions)
	return signals, nil
}
