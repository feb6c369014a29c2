package repository

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"firsttap/dispatch"
)

// tapBatchRow holds the taps on one dispatch that an instance wrote together. A row and its index entries cost a server far more than
// the few bytes of a tap, and taps are read by dispatch.
type tapBatchRow struct {
	ID         dispatch.AttemptID `gorm:"primaryKey"` // of its first tap
	DispatchID dispatch.ID
	Instance   string
	Count      int
	Taps       string // a JSON array of storedTap
}

func (tapBatchRow) TableName() string { return "tap_batches" }

// storedTap is a tap in a tapBatchRow: a JSON array of its fields. Later versions may append fields.
type storedTap struct {
	ID         dispatch.AttemptID
	Round      int
	Driver     dispatch.DriverID
	Result     dispatch.AttemptResult
	At         int64 // in microseconds
	AppVersion string
}

// appendTap appends a tap as a storedTap's JSON. It does so without reflection: every tap passes here.
func appendTap(text []byte, t *dispatch.Attempt, round int) ([]byte, error) {
	version, err := json.Marshal(t.AppVersion)
	text = append(append(text, `["`...), t.ID...)
	text = strconv.AppendInt(append(text, `",`...), int64(round), 10)
	text = append(append(text, `,"`...), t.Driver...)
	text = append(append(text, `","`...), t.Result...)
	text = strconv.AppendInt(append(text, `",`...), micros(t.At), 10)
	return append(append(append(text, ','), version...), ']'), err
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *storedTap) UnmarshalJSON(data []byte) error {
	fields := []any{&t.ID, &t.Round, &t.Driver, &t.Result, &t.At, &t.AppVersion}
	want := len(fields)
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	if len(fields) < want {
		return fmt.Errorf("a stored tap has %d fields", len(fields))
	}
	return nil
}

// batchesPerInsert bounds one INSERT: SQLite takes 32,766 parameters.
const batchesPerInsert = 1000

// AddAttempts writes all taps or none; it skips taps on unknown dispatches, taps that are stored already if it is called with the same taps
// again, and a driver's endless repetitions of one tap. A tap without a round, or with a round that has not begun, is written for the current
// round.
func (s *Store) AddAttempts(ctx context.Context, taps []dispatch.Attempt) error {
	var stored map[tapKind]int
	err := s.transact(ctx, s.relay, func(tx *gorm.DB) error {
		current, err := currentRounds(tx, taps)
		if err != nil {
			return unavailable(err)
		}
		var rows []tapBatchRow
		rows, stored, err = s.tapBatches(taps, current)
		if err != nil || len(rows) == 0 {
			return err
		}
		// Taps come again if the reply to their COMMIT was lost.
		return unavailable(tx.Clauses(clause.OnConflict{DoNothing: true}).CreateInBatches(rows, batchesPerInsert).Error)
	})
	if err == nil {
		s.tapCounts.add(stored)
	}
	return err
}

// tapBatches packs the taps by dispatch, in their order, and counts them. current is the current round of each dispatch that exists.
func (s *Store) tapBatches(taps []dispatch.Attempt, current map[dispatch.ID]int) (rows []tapBatchRow, packed map[tapKind]int, err error) {
	var texts [][]byte
	packed = map[tapKind]int{}
	of := map[dispatch.ID]int{} // the index of a dispatch's row
	for i := range taps {
		t := &taps[i]
		round := t.Round
		if round == 0 || round > current[t.Dispatch] { // an app may send any number
			round = current[t.Dispatch]
		}
		kind := tapKind{t.Dispatch, round, t.Driver, t.Result}
		if round <= 0 || s.tapCounts.of(kind)+packed[kind] >= maxEqualTaps {
			continue
		}
		packed[kind]++
		k, found := of[t.Dispatch]
		if !found {
			k = len(rows)
			of[t.Dispatch] = k
			rows, texts = append(rows, tapBatchRow{ID: t.ID, DispatchID: t.Dispatch, Instance: t.Instance}), append(texts, []byte("["))
		} else {
			texts[k] = append(texts[k], ',')
		}
		if texts[k], err = appendTap(texts[k], t, round); err != nil {
			return nil, nil, err
		}
		rows[k].Count++
	}
	for k := range rows {
		rows[k].Taps = string(append(texts[k], ']'))
	}
	return rows, packed, nil
}

// currentRounds returns the current round of each tapped dispatch.
func currentRounds(tx *gorm.DB, taps []dispatch.Attempt) (map[dispatch.ID]int, error) {
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
	var rows []dispatchRow
	if err := tx.Select("id, round").Where("id IN ?", ids).Find(&rows).Error; err != nil {
		return nil, err
	}
	for i := range rows {
		current[rows[i].ID] = rows[i].Round
	}
	return current, nil
}

// tapFilter selects taps: on the dispatches, or, without any, since a time and in the batches from one on; and by the driver, "" for all.
type tapFilter struct {
	dispatches []dispatch.ID
	since      time.Time
	from       dispatch.AttemptID
	driver     dispatch.DriverID
}

// maxBatchSpan is more than the time between the first and the last tap of a batch.
const maxBatchSpan = time.Hour

// sql returns the statement that finds the batches with taps that are wanted, among others. Each row that an earlier version wrote for
// a tap is a batch, too.
func (f *tapFilter) sql() (query string, args []any) {
	batches, rows := "id >= ?", "at >= ?"
	batchArgs, rowArgs := []any{f.from}, []any{micros(f.since)}
	if len(f.dispatches) > 0 {
		batches, rows = "dispatch_id IN ?", "dispatch_id IN ?"
		batchArgs, rowArgs = []any{f.dispatches}, []any{f.dispatches}
	}
	if f.driver != "" {
		batches, rows = batches+" AND INSTR(taps, ?) > 0", rows+" AND driver_id = ?"
		batchArgs, rowArgs = append(batchArgs, f.driver), append(rowArgs, f.driver)
	}
	return "SELECT dispatch_id, instance, taps FROM tap_batches WHERE " + batches + " UNION ALL SELECT dispatch_id, instance," +
		" JSON_ARRAY(JSON_ARRAY(id, round, driver_id, result, at, app_version)) FROM attempts WHERE " + rows, append(batchArgs, rowArgs...)
}

func (f *tapFilter) wants(t *storedTap) bool {
	return (f.driver == "" || t.Driver == f.driver) && t.At >= micros(f.since)
}

// eachTap calls fn with each tap that the filter selects, in no order. It holds one row at a time.
func eachTap(db *gorm.DB, f tapFilter, fn func(*dispatch.Attempt)) (err error) {
	query, args := f.sql()
	rows, err := db.Raw(query, args...).Rows()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id dispatch.ID
		var instance string
		var text []byte
		var taps []storedTap
		if err := rows.Scan(&id, &instance, &text); err != nil {
			return err
		}
		if err := json.Unmarshal(text, &taps); err != nil {
			return fmt.Errorf("taps on %s: %w", id, err)
		}
		for i := range taps {
			if t := &taps[i]; f.wants(t) {
				fn(&dispatch.Attempt{
					ID: t.ID, Dispatch: id, Round: t.Round, Driver: t.Driver, Result: t.Result, At: fromMicros(t.At), Instance: instance,
					AppVersion: t.AppVersion,
				})
			}
		}
	}
	return rows.Err()
}
