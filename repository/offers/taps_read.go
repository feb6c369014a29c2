package offers

import (
	"cmp"
	"context"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/pushes"
)

// driverRound is one driver in one round of a dispatch.
type driverRound struct {
	Round    int
	DriverID dispatch.DriverID
}

// Attempts returns the taps on a dispatch in the round, 0 for all, the oldest first, and the cursor of the next page, ""
// after the last. The reaction time in an earlier round counts from the round's first event. ErrNotFound, ErrBadCursor.
func (s *Offers) Attempts(
	ctx context.Context, id dispatch.ID, round int, page dispatch.Page,
) (items []dispatch.AttemptRecord, next string, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		items, next, err = s.listAttempts(db, id, round, page)
		return err
	})
	return items, next, err
}

func (s *Offers) listAttempts(db database.Tx, id dispatch.ID, round int, page dispatch.Page) ([]dispatch.AttemptRecord, string, error) {
	d, _, err := dispatches.Find(db, id)
	if err != nil {
		return nil, "", err
	}
	taps, next, first, err := readTapPage(db, id, round, page)
	if err != nil || len(taps) == 0 {
		return nil, "", err
	}
	r := rounds{db: db, d: &d}
	records, err := r.records(taps, first)
	return records, next, database.Unavailable(err)
}

// readTapPage also returns the first taps of the rounds that it reads. ErrBadCursor.
func readTapPage(
	db database.Tx, id dispatch.ID, round int, page dispatch.Page,
) (taps []dispatch.Attempt, next string, first firstTaps, err error) {
	items := tapPage{limit: page.Limit}
	where, args := " WHERE dispatch_id = ?", []any{id}
	if round != 0 {
		where, args = where+" AND round = ?", append(args, round)
	}
	if page.Cursor != "" {
		if _, items.after, err = database.ParseCursor(database.AttemptList, page.Cursor, dispatch.ParseAttemptID); err != nil {
			return nil, "", nil, err
		}
	}
	first = firstTaps{}
	err = EachTap(db, where, args, func(t *dispatch.Attempt) {
		first.add(t)
		items.add(t)
	})
	taps, next = items.end()
	return taps, next, first, database.Unavailable(err)
}

// tapPage collects one page of taps, sorted by their identifiers. It holds no more than a page.
type tapPage struct {
	after dispatch.AttemptID // the last tap of the page before
	limit int
	taps  []dispatch.Attempt // one more than the page has, if there are more
}

func (p *tapPage) add(t *dispatch.Attempt) {
	if t.ID <= p.after {
		return
	}
	i, _ := slices.BinarySearchFunc(p.taps, t.ID, func(a dispatch.Attempt, id dispatch.AttemptID) int { return cmp.Compare(a.ID, id) })
	if i > p.limit {
		return
	}
	p.taps = slices.Insert(p.taps, i, *t)
	p.taps = p.taps[:min(len(p.taps), p.limit+1)]
}

// end returns the page, and the cursor of the next one.
func (p *tapPage) end() ([]dispatch.Attempt, string) {
	if len(p.taps) <= p.limit {
		return p.taps, ""
	}
	taps := p.taps[:p.limit]
	return taps, database.Cursor(database.AttemptList, 0, taps[p.limit-1].ID)
}

// firstTaps are the times of the drivers' first taps with each result, by round.
type firstTaps map[int]map[dispatch.FirstTap]time.Time

func (f firstTaps) add(t *dispatch.Attempt) {
	if f[t.Round] == nil {
		f[t.Round] = map[dispatch.FirstTap]time.Time{}
	}
	key := dispatch.FirstTap{Driver: t.Driver, Result: t.Result}
	if at, ok := f[t.Round][key]; !ok || t.At.Before(at) {
		f[t.Round][key] = t.At
	}
}

// of returns the first taps of a round.
func (f firstTaps) of(round int) (taps []dispatch.FirstTap) {
	for t, at := range f[round] {
		t.At = at
		taps = append(taps, t)
	}
	return taps
}

// rounds reads what the tables hold of a dispatch's rounds.
type rounds struct {
	db database.Tx
	d  *dispatch.Dispatch
}

// records compares the taps with the first taps of their rounds.
func (r *rounds) records(taps []dispatch.Attempt, first firstTaps) ([]dispatch.AttemptRecord, error) {
	winners, err := r.winners()
	if err != nil {
		return nil, err
	}
	opened, err := r.openings()
	if err != nil {
		return nil, err
	}
	sent, err := r.sent(taps)
	if err != nil {
		return nil, err
	}
	began, ranks := map[int]time.Time{}, map[int]map[dispatch.DriverID]int{}
	for round := range first {
		of := first.of(round)
		ranks[round] = dispatch.Ranks(of, winners[round])
		began[round] = slices.MinFunc(of, func(a, b dispatch.FirstTap) int { return a.At.Compare(b.At) }).At
	}
	items := make([]dispatch.AttemptRecord, len(taps))
	for i, a := range taps {
		items[i] = dispatch.AttemptRecord{Attempt: a, After: a.At.Sub(began[a.Round]), Rank: ranks[a.Round][a.Driver]}
		if at, ok := opened[a.Round]; ok {
			items[i].Reaction = dispatch.Reaction(a.At, at, sent[driverRound{a.Round, a.Driver}])
		}
	}
	return items, nil
}

func (r *rounds) winners() (map[int]dispatch.DriverID, error) {
	var rows []dispatches.ClaimRow
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
	err := r.db.Raw("SELECT round, MIN(at) at FROM events {force ix_events_dispatch} WHERE dispatch_id = ? GROUP BY round", r.d.ID).
		Scan(&rows).Error
	opened := map[int]time.Time{}
	for _, row := range rows {
		opened[row.Round] = database.Time(row.At)
	}
	if began, ok := opened[r.d.Round]; !ok || r.d.OpensAt.After(began) {
		opened[r.d.Round] = r.d.OpensAt
	}
	return opened, err
}

// sent returns, for each driver who tapped, the time at which the push service accepted the offer.
func (r *rounds) sent(taps []dispatch.Attempt) (map[driverRound]*time.Time, error) {
	var which []int
	var drivers []dispatch.DriverID
	for i := range taps {
		which, drivers = append(which, taps[i].Round), append(drivers, taps[i].Driver)
	}
	var found []struct {
		Of     driverRound `gorm:"embedded"`
		SentAt *int64
	}
	err := r.db.Raw(`SELECT round, driver_id, MIN(sent_at) sent_at FROM notifications
		WHERE dispatch_id = ? AND round IN ? AND driver_id IN ? AND state = 1 AND type IN `+pushes.OfferTypes+`
		GROUP BY round, driver_id`, r.d.ID, unique(which), unique(drivers)).Scan(&found).Error
	sent := map[driverRound]*time.Time{}
	for _, f := range found {
		sent[f.Of] = database.OptionalTime(f.SentAt)
	}
	return sent, err
}

// outsideRace are the results of taps before the opening, and of taps on another round's offer.
const outsideRace = "('" + string(dispatch.AttemptEarly) + "', '" + string(dispatch.AttemptStale) + "')"

// standingSQL selects how many kinds of taps on the current offer a driver has, and the first taps in the race of the driver and of the
// winner.
const standingSQL = `SELECT
	(SELECT COUNT(*) FROM taps WHERE dispatch_id = ? AND round = ? AND driver_id = ? AND result <> 'OFFER_STALE'),
	(SELECT MIN(at) FROM taps WHERE dispatch_id = ? AND round = ? AND driver_id = ? AND result NOT IN ` + outsideRace + `),
	(SELECT MIN(at) FROM taps WHERE dispatch_id = ? AND round = ? AND driver_id = ? AND result NOT IN ` + outsideRace + `)`

// RaceStanding compares the driver's taps in the round with those of its winner, "" if there is none.
func (s *Offers) RaceStanding(ctx context.Context, id dispatch.ID, round int, v, winner dispatch.DriverID) (dispatch.RaceStanding, error) {
	db := s.db.Serve.With(ctx)
	now, err := database.Clock(db)
	if err != nil {
		return dispatch.RaceStanding{}, err
	}
	standing := dispatch.RaceStanding{Now: now}
	var kinds int
	var first, winners *int64
	err = db.Raw(standingSQL, id, round, v, id, round, v, id, round, winner).Row().Scan(&kinds, &first, &winners)
	if err == nil && first != nil {
		err = db.Raw(
			"SELECT COUNT(DISTINCT driver_id) FROM taps WHERE dispatch_id = ? AND round = ? AND at < ? "+
				"AND driver_id NOT IN (?, ?) AND result NOT IN "+outsideRace,
			id, round, *first, v, winner,
		).Row().Scan(&standing.Ahead)
	}
	standing.Tapped, standing.FirstTap, standing.WinnerFirstTap = kinds > 0, database.OptionalTime(first), database.OptionalTime(winners)
	return standing, database.Unavailable(err)
}
