package board

import (
	"context"
	"maps"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/drivers"
	"firsttap/repository/offers"
	"firsttap/repository/pushes"
)

// signalWindow is how far back a driver's signals go, recentWindow the recent ones.
const (
	signalWindow = 30 * 24 * time.Hour
	recentWindow = 24 * time.Hour
)

// openingsSQL selects, of rounds of dispatches, when the round began, when the dispatch opens if that is the current round, and when the
// push service accepted the offer to a driver.
const openingsSQL = `
SELECT d.id, e.round, MIN(e.at) began, CASE WHEN d.round = e.round THEN d.opens_at ELSE 0 END opens,
  (SELECT MIN(n.sent_at) FROM notifications n WHERE n.dispatch_id = d.id AND n.round = e.round AND n.driver_id = ?
    AND n.state = 1 AND n.type IN ` + pushes.OfferTypes + `) sent
FROM dispatches d JOIN events e ON e.dispatch_id = d.id WHERE d.id IN ? GROUP BY d.id, e.round, d.round, d.opens_at`

// maxTapped bounds one statement: SQLite takes 32,766 parameters.
const maxTapped = 1000

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
	since, late := now.Add(-signalWindow), now.Add(-recentWindow)
	signals := dispatch.TapStatistics{Since: s.firstTap(now, since)}
	err = db.Raw(`SELECT COUNT(*), COUNT(CASE WHEN outcome = 'WITHDRAWN' THEN 1 END),
		(SELECT COUNT(*) FROM claims WHERE driver_id = ? AND outcome = 'WITHDRAWN' AND ended_at >= ?)
		FROM claims WHERE driver_id = ? AND accepted_at >= ?`, v, database.Micros(late), v, database.Micros(since)).
		Row().Scan(&signals.Wins, &signals.Withdrawn, &signals.RecentWithdrawals)
	if err != nil {
		return dispatch.TapStatistics{}, database.Unavailable(err)
	}
	first := map[offer]time.Time{} // the driver's first tap in the race for each offer
	from, args := " {force ix_taps_driver} WHERE driver_id = ? AND last_at >= ?", []any{v, database.Micros(signals.Since)}
	err = offers.EachTap(db, from, args, func(t *dispatch.Attempt) {
		signals.Taps += t.Count
		if !t.LastAt.Before(late) && slices.Contains(unwinnable, t.Result) {
			signals.RecentUnwinnable += t.Count
		}
		of := offer{t.Dispatch, t.Round}
		if at, ok := first[of]; t.Result != dispatch.AttemptEarly && t.Result != dispatch.AttemptStale && (!ok || t.At.Before(at)) {
			first[of] = t.At
		}
	})
	if err == nil {
		signals.Reactions, err = reactions(db, v, first)
	}
	return signals, database.Unavailable(err)
}

// firstTap is since, or later if taps are not kept for as long.
func (s *Board) firstTap(now, since time.Time) time.Time {
	if kept := s.tapsKept; kept > 0 && now.Add(-kept).After(since) {
		return now.Add(-kept)
	}
	return since
}

// unwinnable are the results of taps that could not win.
var unwinnable = []dispatch.AttemptResult{"NOT_ELIGIBLE", "DRIVER_BUSY", dispatch.AttemptStale}

// offer is one round of a dispatch.
type offer struct {
	id    dispatch.ID
	round int
}

// reactions returns how long after the opening, or after the push, the driver tapped the offers, sorted.
func reactions(db database.Tx, v dispatch.DriverID, first map[offer]time.Time) (took []time.Duration, err error) {
	ids := make(map[dispatch.ID]bool, len(first))
	for of := range first {
		ids[of.id] = true
	}
	for some := range slices.Chunk(slices.Collect(maps.Keys(ids)), maxTapped) {
		var rows []struct {
			ID           dispatch.ID
			Round        int
			Began, Opens int64
			Sent         *int64
		}
		if err := db.Raw(openingsSQL, v, some).Scan(&rows).Error; err != nil {
			return nil, err
		}
		for _, r := range rows {
			at, tapped := first[offer{r.ID, r.Round}]
			if !tapped {
				continue
			}
			if after := dispatch.Reaction(at, database.Time(max(r.Began, r.Opens)), database.OptionalTime(r.Sent)); after != nil {
				took = append(took, *after)
			}
		}
	}
	slices.Sort(took)
	return took, nil
}
