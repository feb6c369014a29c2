package offers

import (
	"cmp"
	"context"
	"slices"

	"firsttap/dispatch"
	"firsttap/repository/database"
)

// TapRow is a row of the ledger: a driver's taps on a round with one result. So a driver has few rows in a round, however often the app
// taps. ID, Instance and AppVersion are those of the tap that was stored first.
type TapRow struct {
	DispatchID dispatch.ID
	Round      int
	DriverID   dispatch.DriverID
	Result     dispatch.AttemptResult
	ID         dispatch.AttemptID
	At, LastAt int64 // in microseconds
	Count      int
	Instance   string
	AppVersion string
}

// TableName implements gorm.Tabler.
func (TapRow) TableName() string { return "taps" }

// compare orders rows by the primary key: it returns 0 for taps that are one row of the ledger.
func (r *TapRow) compare(other *TapRow) int {
	// This is called about twelve times for each tap. So it compares no more than decides, which cmp.Or does not.
	if c := cmp.Compare(r.DispatchID, other.DispatchID); c != 0 {
		return c
	}
	if c := cmp.Compare(r.Round, other.Round); c != 0 {
		return c
	}
	if c := cmp.Compare(r.DriverID, other.DriverID); c != 0 {
		return c
	}
	return cmp.Compare(r.Result, other.Result)
}

// Attempt returns the taps of the row.
func (r *TapRow) Attempt() dispatch.Attempt {
	return dispatch.Attempt{
		ID: r.ID, Dispatch: r.DispatchID, Round: r.Round, Driver: r.DriverID, Result: r.Result, At: database.Time(r.At),
		LastAt: database.Time(r.LastAt), Count: r.Count, Instance: r.Instance, AppVersion: r.AppVersion,
	}
}

// AddAttempts counts all taps or none; it skips taps on unknown dispatches, and taps that are counted already if it is called with the same
// taps again. A tap without a round, or with a round that has not begun, is counted in the current round. ErrUnavailable, and ErrUnknown
// if the COMMIT's reply is missing.
func (s *Offers) AddAttempts(ctx context.Context, taps []dispatch.Attempt) error {
	var ids []dispatch.ID
	for i := range taps {
		if i == 0 || taps[i].Dispatch != taps[i-1].Dispatch {
			ids = append(ids, taps[i].Dispatch)
		}
	}
	slices.Sort(ids)
	current, err := s.dispatches.Holders(ctx, slices.Compact(ids))
	if err != nil {
		return err
	}
	rows := tapRows(taps, current)
	return s.db.Work.Transact(ctx, func(tx database.Tx) error {
		for some := range slices.Chunk(rows, database.RowsPerStatement) {
			var args []any
			for _, r := range some {
				args = append(args, r.DispatchID, r.Round, r.DriverID, r.Result, r.ID, r.At, r.LastAt, r.Count, r.Instance, r.AppVersion)
			}
			if err := tx.Exec(addTaps+database.Placeholders(len(some), 10)+countTapsAgain, args...).Error; err != nil {
				return database.Unavailable(err)
			}
		}
		return nil
	})
}

const addTaps = "INSERT INTO taps (dispatch_id, round, driver_id, result, id, at, last_at, count, instance, app_version) VALUES "

// countTapsAgain is the SQL that adds taps to a row that exists. Taps come again if the reply to their COMMIT was lost; they are known by
// the time of the last one.
const countTapsAgain = ` {or_update} count = count + CASE WHEN last_at = {new last_at} THEN 0 ELSE {new count} END,
	at = CASE WHEN at < {new at} THEN at ELSE {new at} END,
	last_at = CASE WHEN last_at > {new last_at} THEN last_at ELSE {new last_at} END`

// tapRows returns the rows of the taps, in the order of the primary key: two instances lock rows in the same order. current has the
// dispatches that exist, with their current rounds.
func tapRows(taps []dispatch.Attempt, current map[dispatch.ID]dispatch.CurrentHolder) []TapRow {
	all := make([]TapRow, 0, len(taps))
	for i := range taps {
		t, at := &taps[i], database.Micros(taps[i].At)
		round, newest := t.Round, current[t.Dispatch].Round
		if round == 0 || round > newest { // an app may send any number
			round = newest
		}
		if round > 0 {
			all = append(all, TapRow{t.Dispatch, round, t.Driver, t.Result, t.ID, at, at, 1, t.Instance, t.AppVersion})
		}
	}
	slices.SortFunc(all, func(a, b TapRow) int { return cmp.Or(a.compare(&b), cmp.Compare(a.At, b.At)) })
	rows := all[:0] // no longer than what was read of all
	for _, r := range all {
		if n := len(rows); n > 0 && rows[n-1].compare(&r) == 0 {
			same := &rows[n-1]
			same.At, same.LastAt, same.Count = min(same.At, r.At), max(same.LastAt, r.LastAt), same.Count+1
			continue
		}
		rows = append(rows, r)
	}
	return rows
}
