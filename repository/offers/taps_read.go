package offers

import (
	"context"
	"maps"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
)

// OutsideRace is the SQL for the results of taps before the opening, and of taps on another round's offer.
const OutsideRace = "('" + string(dispatch.AttemptEarly) + "', '" + string(dispatch.AttemptStale) + "')"

// Attempts returns the taps on a dispatch in the round, 0 for all, the oldest first, and the cursor of the next page, ""
// after the last. The reaction time in an earlier round counts from the round's first event. ErrNotFound, ErrBadCursor.
func (s *Offers) Attempts(
	ctx context.Context, id dispatch.ID, round int, page dispatch.Page,
) (items []dispatch.AttemptRecord, next string, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		items, next, err = listAttempts(db, id, round, page)
		return err
	})
	return items, next, err
}

// sentTapRow is a row of the ledger, and when the push service accepted the offer to its driver.
type sentTapRow struct {
	Tap    TapRow `gorm:"embedded"`
	SentAt *int64
}

var sentTapColumns = "t.*, " + SentSQL("t.dispatch_id", "t.round", "t.driver_id") + " sent_at"

func listAttempts(db database.Tx, id dispatch.ID, round int, page dispatch.Page) ([]dispatch.AttemptRecord, string, error) {
	d, _, err := dispatches.Find(db, id)
	if err != nil {
		return nil, "", err
	}
	where, args := "dispatch_id = ?", []any{id}
	if round != 0 {
		where, args = where+" AND round = ?", append(args, round)
	}
	if page.Cursor != "" {
		_, last, err := database.ParseCursor(database.AttemptList, page.Cursor, dispatch.ParseAttemptID)
		if err != nil {
			return nil, "", err
		}
		where, args = where+" AND id > ?", append(args, last)
	}
	// The page is read by a query of its own: a server may look for the pushes before it sorts.
	query := db.Select(sentTapColumns).
		Table("(SELECT * FROM taps WHERE "+where+" ORDER BY id LIMIT ?) t", append(args, page.Limit+1)...).Order("id")
	taps, next, err := database.ReadPage(query, page.Limit, func(last *sentTapRow) string {
		return database.Cursor(database.AttemptList, 0, last.Tap.ID)
	})
	if err != nil || len(taps) == 0 {
		return nil, "", err
	}
	records, err := compareTaps(db, &d, taps)
	return records, next, database.Unavailable(err)
}

// compareTaps compares the taps with the first taps of their rounds, and with the openings. The opens_at of earlier rounds is not stored.
func compareTaps(db database.Tx, d *dispatch.Dispatch, taps []sentTapRow) ([]dispatch.AttemptRecord, error) {
	rounds, err := readRounds(db, d.ID)
	if err != nil {
		return nil, err
	}
	ranks, began, err := readRaces(db, d.ID, taps, rounds)
	if err != nil {
		return nil, err
	}
	items := make([]dispatch.AttemptRecord, len(taps))
	for i := range taps {
		a := taps[i].Tap.Attempt()
		items[i] = dispatch.AttemptRecord{Attempt: a, After: a.At.Sub(began[a.Round]), Rank: ranks[a.Round][a.Driver]}
		if r, ok := rounds[a.Round]; ok {
			opened := database.Time(r.Began)
			if a.Round == d.Round && d.OpensAt.After(opened) {
				opened = d.OpensAt
			}
			items[i].Reaction = dispatch.Reaction(a.At, opened, database.OptionalTime(taps[i].SentAt))
		}
	}
	return items, nil
}

// readRaces returns the ranks of all drivers in the rounds of these taps, and when the first tap of each round arrived.
func readRaces(
	db database.Tx, id dispatch.ID, taps []sentTapRow, rounds map[int]round,
) (ranks map[int]map[dispatch.DriverID]int, began map[int]time.Time, err error) {
	first := map[int][]dispatch.FirstTap{}
	for i := range taps {
		first[taps[i].Tap.Round] = nil
	}
	var rows []struct {
		Round    int
		DriverID dispatch.DriverID
		Result   dispatch.AttemptResult
		At       int64
	}
	err = db.Raw("SELECT round, driver_id, result, at FROM taps WHERE dispatch_id = ? AND round IN ?", id,
		slices.Collect(maps.Keys(first))).
		Scan(&rows).Error
	began = map[int]time.Time{}
	for _, r := range rows {
		at := database.Time(r.At)
		first[r.Round] = append(first[r.Round], dispatch.FirstTap{Driver: r.DriverID, Result: r.Result, At: at})
		if earliest, ok := began[r.Round]; !ok || at.Before(earliest) {
			began[r.Round] = at
		}
	}
	ranks = map[int]map[dispatch.DriverID]int{}
	for round, taps := range first {
		ranks[round] = dispatch.Ranks(taps, rounds[round].Winner)
	}
	return ranks, began, err
}

// standingSQL selects the time, how many kinds of taps on the offer of the round a driver has, and the first taps in the race of the driver
// and of the winner.
const standingSQL = `SELECT {now},
	(SELECT COUNT(*) FROM taps WHERE dispatch_id = @id AND round = @round AND driver_id = @driver AND result <> 'OFFER_STALE'),
	(SELECT MIN(at) FROM taps WHERE dispatch_id = @id AND round = @round AND driver_id = @driver AND result NOT IN ` + OutsideRace + `),
	(SELECT MIN(at) FROM taps WHERE dispatch_id = @id AND round = @round AND driver_id = @winner AND result NOT IN ` + OutsideRace + `)`

const aheadSQL = `SELECT COUNT(DISTINCT driver_id) FROM taps WHERE dispatch_id = @id AND round = @round AND at < @first
	AND driver_id NOT IN (@driver, @winner) AND result NOT IN ` + OutsideRace

// RaceStanding compares the driver's taps in the round with those of its winner, "" if there is none. ErrUnavailable.
func (s *Offers) RaceStanding(ctx context.Context, id dispatch.ID, round int, v, winner dispatch.DriverID) (dispatch.RaceStanding, error) {
	db := s.db.Serve.With(ctx)
	of := map[string]any{"id": id, "round": round, "driver": v, "winner": winner}
	var standing dispatch.RaceStanding
	var now int64
	var kinds int
	var first, winners *int64
	err := db.Raw(standingSQL, of).Row().Scan(&now, &kinds, &first, &winners)
	if err == nil && first != nil {
		of["first"] = *first
		err = db.Raw(aheadSQL, of).Row().Scan(&standing.Ahead)
	}
	standing.Now, standing.Tapped = database.Time(now), kinds > 0
	standing.FirstTap, standing.WinnerFirstTap = database.OptionalTime(first), database.OptionalTime(winners)
	return standing, database.Unavailable(err)
}
