package offers

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
)

// TapKey is what taps have in common that are one row of the ledger. A driver has few rows in a round, however often the app taps.
type TapKey struct {
	DispatchID dispatch.ID
	Round      int
	DriverID   dispatch.DriverID
	Result     dispatch.AttemptResult
}

// compare orders by the primary key.
func (k TapKey) compare(other TapKey) int {
	return cmp.Or(cmp.Compare(k.DispatchID, other.DispatchID), cmp.Compare(k.Round, other.Round), cmp.Compare(k.DriverID, other.DriverID),
		cmp.Compare(k.Result, other.Result))
}

// TapRow is a row of the ledger. ID, Instance and AppVersion are those of the tap that was stored first.
type TapRow struct {
	Of         TapKey `gorm:"embedded"`
	ID         dispatch.AttemptID
	At, LastAt int64 // in microseconds
	Count      int
	Instance   string
	AppVersion string
}

// TableName implements gorm.Tabler.
func (TapRow) TableName() string { return "taps" }

// tapPrimaryKey and tapColumns are columns of the table.
const (
	TapColumns = "dispatch_id, round, driver_id, result"
	tapColumns = TapColumns + ", id, at, last_at, count, instance, app_version"
)

func (r *TapRow) attempt() dispatch.Attempt {
	return dispatch.Attempt{
		ID: r.ID, Dispatch: r.Of.DispatchID, Round: r.Of.Round, Driver: r.Of.DriverID, Result: r.Of.Result, At: database.Time(r.At),
		LastAt: database.Time(r.LastAt), Count: r.Count, Instance: r.Instance, AppVersion: r.AppVersion,
	}
}

// tapsPerInsert bounds one INSERT: SQLite takes 32,766 parameters.
const tapsPerInsert = 1000

// AddAttempts counts all taps or none; it skips taps on unknown dispatches, and taps that are counted already if it is called with the same
// taps again. A tap without a round, or with a round that has not begun, is counted in the current round.
func (s *Offers) AddAttempts(ctx context.Context, taps []dispatch.Attempt) error {
	return s.db.Work.Transact(ctx, func(tx database.Tx) error {
		current, err := currentRounds(tx, taps)
		if err != nil {
			return database.Unavailable(err)
		}
		for rows := range slices.Chunk(tapRows(taps, current), tapsPerInsert) {
			var args []any
			for _, r := range rows {
				args = append(args, r.Of.DispatchID, r.Of.Round, r.Of.DriverID, r.Of.Result, r.ID, r.At, r.LastAt, r.Count, r.Instance, r.AppVersion)
			}
			query := "INSERT INTO taps (" + tapColumns + ") VALUES " + database.Placeholders(len(rows), 10) + countTapsAgain
			if err := tx.Exec(query, args...).Error; err != nil {
				return database.Unavailable(err)
			}
		}
		return nil
	})
}

// countTapsAgain is the SQL that adds taps to a row that exists. Taps come again if the reply to their COMMIT was lost; they are known by
// the time of the last one.
const countTapsAgain = ` {or_update} count = count + CASE WHEN last_at = {new last_at} THEN 0 ELSE {new count} END,
	at = CASE WHEN at < {new at} THEN at ELSE {new at} END,
	last_at = CASE WHEN last_at > {new last_at} THEN last_at ELSE {new last_at} END`

// tapRows returns the rows of the taps, in the order of the primary key: two instances lock rows in the same order. current is the current
// round of each dispatch that exists.
func tapRows(taps []dispatch.Attempt, current map[dispatch.ID]int) (rows []TapRow) {
	of := map[TapKey]int{} // the index of a key's row
	for i := range taps {
		t := &taps[i]
		round := t.Round
		if round == 0 || round > current[t.Dispatch] { // an app may send any number
			round = current[t.Dispatch]
		}
		if round <= 0 {
			continue
		}
		key, at := TapKey{t.Dispatch, round, t.Driver, t.Result}, database.Micros(t.At)
		k, found := of[key]
		if !found {
			of[key] = len(rows)
			rows = append(rows, TapRow{key, t.ID, at, at, 1, t.Instance, t.AppVersion})
			continue
		}
		rows[k].At, rows[k].LastAt, rows[k].Count = min(rows[k].At, at), max(rows[k].LastAt, at), rows[k].Count+1
	}
	slices.SortFunc(rows, func(a, b TapRow) int { return a.Of.compare(b.Of) })
	return rows
}

// currentRounds returns the current round of each tapped dispatch.
func currentRounds(tx database.Tx, taps []dispatch.Attempt) (map[dispatch.ID]int, error) {
	current := map[dispatch.ID]int{}
	var ids []dispatch.ID
	for i := range taps {
		id := taps[i].Dispatch
		if _, asked := current[id]; !asked {
			current[id] = 0
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	var rows []dispatches.Row
	if err := tx.Select("id, round").Where("id IN ?", ids).Find(&rows).Error; err != nil {
		return nil, err
	}
	for i := range rows {
		current[rows[i].ID] = rows[i].Round
	}
	return current, nil
}

// EachTap calls fn with each row of the ledger that from selects, which follows FROM taps, in no order. It holds one row at a time.
func EachTap(db database.Tx, from string, args []any, fn func(*dispatch.Attempt)) (err error) {
	rows, err := db.Raw("SELECT "+tapColumns+" FROM taps"+from, args...).Rows()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var r TapRow
		k := &r.Of
		err := rows.Scan(&k.DispatchID, &k.Round, &k.DriverID, &k.Result, &r.ID, &r.At, &r.LastAt, &r.Count, &r.Instance, &r.AppVersion)
		if err != nil {
			return err
		}
		a := r.attempt()
		fn(&a)
	}
	return rows.Err()
}
