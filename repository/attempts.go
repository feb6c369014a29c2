package repository

import (
	"context"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"firsttap/dispatch"
)

type attemptRow struct {
	ID         dispatch.AttemptID `gorm:"primaryKey"`
	DispatchID dispatch.ID
	Round      int
	DriverID   dispatch.DriverID
	Result     dispatch.AttemptResult
	At         int64
	Instance   string
	AppVersion string
}

func (attemptRow) TableName() string { return "attempts" }

// attemptsPerInsert bounds one INSERT: SQLite takes 32,766 parameters.
const attemptsPerInsert = 1000

// AddAttempts writes taps, all or none; those that are there already stay as they are. Where one names no round, or one
// that there is not yet, it was on the one that is current now; where there is no such dispatch, it is not written.
func (s *Store) AddAttempts(ctx context.Context, taps []dispatch.Attempt) error {
	return transact(ctx, s.relay, func(tx *gorm.DB) error {
		current, err := currentRounds(tx, taps)
		if err != nil {
			return unavailable(err)
		}
		rows := make([]attemptRow, 0, len(taps))
		for _, t := range taps {
			// A round that there is not yet is what the app made of it: the tap was on the one that there is.
			if t.Round == 0 || t.Round > current[t.Dispatch] {
				t.Round = current[t.Dispatch]
			}
			if t.Round > 0 {
				rows = append(rows, attemptRow{t.ID, t.Dispatch, t.Round, t.Driver, t.Result, micros(t.At), t.Instance, t.AppVersion})
			}
		}
		if len(rows) == 0 {
			return nil
		}
		// Those whose COMMIT's reply was lost are offered again.
		return unavailable(tx.Clauses(clause.OnConflict{DoNothing: true}).CreateInBatches(rows, attemptsPerInsert).Error)
	})
}

// currentRounds are those of the dispatches that were tapped.
func currentRounds(tx *gorm.DB, taps []dispatch.Attempt) (map[dispatch.ID]int, error) {
	current := map[dispatch.ID]int{}
	var ids []dispatch.ID
	for _, t := range taps {
		if _, asked := current[t.Dispatch]; !asked {
			current[t.Dispatch] = 0
			ids = append(ids, t.Dispatch)
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
