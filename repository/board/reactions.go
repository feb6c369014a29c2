package board

import (
	"context"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/drivers"
	"firsttap/repository/offers"
)

// signalWindow is how far back a driver's signals go, recentWindow the recent ones.
const (
	signalWindow = 30 * 24 * time.Hour
	recentWindow = 24 * time.Hour
)

// firstTapsSQL selects, of each offer that the driver has tapped in the race, when that was first, when its round began, when the dispatch
// opens if that is the current round, and when the push service accepted the offer to the driver.
var firstTapsSQL = `
SELECT MIN(t.at) at, ` + offers.SentSQL("t.dispatch_id", "t.round", "@driver") + ` sent,
  (SELECT MIN(e.at) FROM events e {force ix_events_dispatch} WHERE e.dispatch_id = t.dispatch_id AND e.round = t.round) began,
  COALESCE((SELECT d.opens_at FROM dispatches d WHERE d.id = t.dispatch_id AND d.round = t.round), 0) opens
FROM taps t {force ix_taps_driver} WHERE t.driver_id = @driver AND t.last_at >= @since AND t.result NOT IN ` + offers.OutsideRace + `
GROUP BY t.dispatch_id, t.round`

// unwinnable are the results of taps that could not win.
const unwinnable = "('NOT_ELIGIBLE', 'DRIVER_BUSY', 'OFFER_STALE')"

const tapStatisticsSQL = `
SELECT c.wins, c.withdrawn, c.recently_withdrawn, t.taps, t.unwinnable FROM (
  SELECT COUNT(CASE WHEN accepted_at >= @window THEN 1 END) wins,
    COUNT(CASE WHEN accepted_at >= @window AND outcome = 'WITHDRAWN' THEN 1 END) withdrawn,
    COUNT(CASE WHEN ended_at >= @late AND outcome = 'WITHDRAWN' THEN 1 END) recently_withdrawn
  FROM claims WHERE driver_id = @driver
) c CROSS JOIN (
  SELECT COALESCE(SUM(count), 0) taps,
    COALESCE(SUM(CASE WHEN last_at >= @late AND result IN ` + unwinnable + ` THEN count END), 0) unwinnable
  FROM taps {force ix_taps_driver} WHERE driver_id = @driver AND last_at >= @since
) t`

// TapStatistics summarizes the driver's taps of the last thirty days. ErrDriverNotFound.
func (s *Board) TapStatistics(ctx context.Context, driver dispatch.DriverID) (taps dispatch.TapStatistics, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		taps, err = s.countTaps(db, driver)
		return err
	})
	return taps, err
}

func (s *Board) countTaps(db database.Tx, v dispatch.DriverID) (dispatch.TapStatistics, error) {
	if _, err := drivers.Find(db, v); err != nil {
		return dispatch.TapStatistics{}, err
	}
	now, err := database.Clock(db)
	if err != nil {
		return dispatch.TapStatistics{}, err
	}
	taps := dispatch.TapStatistics{Since: now.Add(-signalWindow)}
	if kept := s.tapsKept; kept > 0 && now.Add(-kept).After(taps.Since) {
		taps.Since = now.Add(-kept)
	}
	values := map[string]any{
		"driver": v, "since": database.Micros(taps.Since), "window": database.Micros(now.Add(-signalWindow)),
		"late": database.Micros(now.Add(-recentWindow)),
	}
	err = db.Raw(tapStatisticsSQL, values).Row().
		Scan(&taps.Wins, &taps.Withdrawn, &taps.RecentWithdrawals, &taps.Taps, &taps.RecentUnwinnable)
	if err != nil {
		return dispatch.TapStatistics{}, database.Unavailable(err)
	}
	taps.Reactions, err = reactions(db, values)
	return taps, database.Unavailable(err)
}

// reactions returns how long after the opening, or after the push, the driver tapped the offers, sorted.
func reactions(db database.Tx, values map[string]any) (took []time.Duration, err error) {
	var rows []struct {
		At, Opens   int64
		Began, Sent *int64
	}
	err = db.Raw(firstTapsSQL, values).Scan(&rows).Error
	for _, r := range rows {
		if r.Began == nil {
			continue // the dispatch was deleted
		}
		opened := database.Time(max(*r.Began, r.Opens))
		if after := dispatch.Reaction(database.Time(r.At), opened, database.OptionalTime(r.Sent)); after != nil {
			took = append(took, *after)
		}
	}
	slices.Sort(took)
	return took, err
}
