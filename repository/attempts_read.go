package repository

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// driverRound is one driver in one round of a dispatch.
type driverRound struct {
	Round    int
	DriverID dispatch.DriverID
}

// Attempts returns the taps on a dispatch in the round, 0 for all, the oldest first, and the cursor of the next page, ""
// after the last. The reaction time in an earlier round counts from the round's first event. ErrNotFound, ErrBadCursor.
func (s *Store) Attempts(ctx context.Context, id dispatch.ID, round int, page dispatch.Page) ([]dispatch.AttemptRecord, string, error) {
	db := s.general.WithContext(ctx)
	d, _, err := s.findDispatch(db, id, "")
	if err != nil {
		return nil, "", err
	}
	rows, next, err := s.attemptPage(db, id, round, page)
	if err != nil || len(rows) == 0 {
		return nil, "", err
	}
	r := rounds{db: db, d: &d, forceIndex: s.dialect.forceIndex}
	items, err := r.records(rows)
	return items, next, unavailable(err)
}

func (s *Store) attemptPage(db *gorm.DB, id dispatch.ID, round int, page dispatch.Page) ([]attemptRow, string, error) {
	query := db.Table("attempts"+s.dialect.forceIndex("ix_attempts_list")).Where("dispatch_id = ?", id)
	if round != 0 {
		query = query.Where("round = ?", round)
	}
	if page.Cursor != "" {
		_, last, err := parseCursor(attemptList, page.Cursor, dispatch.ParseAttemptID)
		if err != nil {
			return nil, "", err
		}
		query = query.Where("id > ?", last)
	}
	return readPage(query.Order("id"), page.Limit, func(last *attemptRow) string { return cursor(attemptList, 0, last.ID) })
}

// rounds reads what the tables hold of a dispatch's rounds.
type rounds struct {
	db         *gorm.DB
	d          *dispatch.Dispatch
	forceIndex func(index string) string
}

func (r *rounds) records(rows []attemptRow) ([]dispatch.AttemptRecord, error) {
	taps, err := r.firstTaps()
	if err != nil {
		return nil, err
	}
	winners, err := r.winners()
	if err != nil {
		return nil, err
	}
	opened, err := r.openings()
	if err != nil {
		return nil, err
	}
	sent, err := r.sent(rows)
	if err != nil {
		return nil, err
	}
	first, ranks := map[int]time.Time{}, map[int]map[dispatch.DriverID]int{}
	for round, of := range taps {
		ranks[round] = dispatch.Ranks(of, winners[round])
		for _, t := range of {
			if at, ok := first[round]; !ok || t.At.Before(at) {
				first[round] = t.At
			}
		}
	}
	items := make([]dispatch.AttemptRecord, len(rows))
	for i := range rows {
		row := &rows[i]
		a := row.attempt()
		// A tap that was stored after the first taps were read may be earlier than they are; its After is 0 then.
		items[i] = dispatch.AttemptRecord{
			Attempt: a, After: max(0, a.At.Sub(first[a.Round])), Rank: ranks[a.Round][a.Driver],
		}
		if at, ok := opened[a.Round]; ok {
			items[i].Reaction = dispatch.Reaction(a.At, at, sent[driverRound{a.Round, a.Driver}])
		}
	}
	return items, nil
}

// firstTaps returns each driver's first tap with each result, by round.
func (r *rounds) firstTaps() (map[int][]dispatch.FirstTap, error) {
	var rows []attemptRow
	err := r.db.Raw(`SELECT round, driver_id, result, MIN(at) at FROM attempts WHERE dispatch_id = ?
		GROUP BY round, driver_id, result`, r.d.ID).Scan(&rows).Error
	taps := map[int][]dispatch.FirstTap{}
	for _, row := range rows {
		taps[row.Round] = append(taps[row.Round], dispatch.FirstTap{Driver: row.DriverID, Result: row.Result, At: fromMicros(row.At)})
	}
	return taps, err
}

func (r *rounds) winners() (map[int]dispatch.DriverID, error) {
	var rows []claimRow
	err := r.db.Select("round, driver_id").Where("dispatch_id = ?", r.d.ID).Find(&rows).Error
	winners := map[int]dispatch.DriverID{}
	for _, row := range rows {
		winners[row.Round] = row.DriverID
	}
	return winners, err
}

// openings returns when each round opened: at its first event and, in the current round, not before opens_at. The opens_at
// of earlier rounds is not stored.
func (r *rounds) openings() (map[int]time.Time, error) {
	var rows []struct {
		Round int
		At    int64
	}
	err := r.db.Raw("SELECT round, MIN(at) at FROM events"+r.forceIndex("ix_events_dispatch")+" WHERE dispatch_id = ? GROUP BY round", r.d.ID).Scan(&rows).Error
	opened := map[int]time.Time{}
	for _, row := range rows {
		opened[row.Round] = fromMicros(row.At)
	}
	if began, ok := opened[r.d.Round]; !ok || r.d.OpensAt.After(began) {
		opened[r.d.Round] = r.d.OpensAt
	}
	return opened, err
}

// sent returns when the push service accepted the offer to each driver in rows.
func (r *rounds) sent(rows []attemptRow) (map[driverRound]*time.Time, error) {
	var which []int
	var drivers []dispatch.DriverID
	for _, row := range rows {
		which, drivers = append(which, row.Round), append(drivers, row.DriverID)
	}
	var found []struct {
		Of     driverRound `gorm:"embedded"`
		SentAt *int64
	}
	err := r.db.Raw(`SELECT round, driver_id, MIN(sent_at) sent_at FROM notifications
		WHERE dispatch_id = ? AND round IN ? AND driver_id IN ? AND state = 1 AND type IN `+offerTypes+`
		GROUP BY round, driver_id`, r.d.ID, unique(which), unique(drivers)).Scan(&found).Error
	sent := map[driverRound]*time.Time{}
	for _, f := range found {
		sent[f.Of] = fromOptionalMicros(f.SentAt)
	}
	return sent, err
}

func (row *attemptRow) attempt() dispatch.Attempt {
	return dispatch.Attempt{
		ID: row.ID, Dispatch: row.DispatchID, Round: row.Round, Driver: row.DriverID, Result: row.Result,
		At: fromMicros(row.At), Instance: row.Instance, AppVersion: row.AppVersion,
	}
}

type standingRow struct {
	Tapped        bool
	Mine, Winners *int64
	Earlier       int
	Now           int64
}

// inRace excludes taps before the opening and taps on another round's offer.
const inRace = `result NOT IN ('NOT_OPEN_YET', 'OFFER_STALE')`

const standingSQL = `
SELECT m.*, (SELECT COUNT(DISTINCT driver_id) FROM attempts WHERE dispatch_id = ? AND round = ? AND driver_id NOT IN (?, ?)
  AND at < m.mine AND ` + inRace + `) earlier
FROM (SELECT
  (SELECT MIN(at) FROM attempts WHERE dispatch_id = ? AND round = ? AND driver_id = ? AND ` + inRace + `) mine,
  (SELECT MIN(at) FROM attempts WHERE dispatch_id = ? AND round = ? AND driver_id = ? AND ` + inRace + `) winners,
  EXISTS (SELECT 1 FROM attempts WHERE dispatch_id = ? AND round = ? AND driver_id = ? AND result <> 'OFFER_STALE') tapped,
  %s now) m`

// RaceStanding compares the driver's taps in the round with those of its winner, "" if there is none.
func (s *Store) RaceStanding(ctx context.Context, id dispatch.ID, round int, v, winner dispatch.DriverID) (dispatch.RaceStanding, error) {
	var row standingRow
	err := s.general.WithContext(ctx).Raw(fmt.Sprintf(standingSQL, s.dialect.now()),
		id, round, v, winner, id, round, v, id, round, winner, id, round, v).Scan(&row).Error
	return dispatch.RaceStanding{
		Tapped: row.Tapped, FirstTap: fromOptionalMicros(row.Mine), WinnerFirstTap: fromOptionalMicros(row.Winners), Ahead: row.Earlier,
		Now: fromMicros(row.Now),
	}, unavailable(err)
}
