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

// AddAttempts writes all taps or none; it skips taps that are stored already and taps on unknown dispatches. A tap without a
// round, or with a round that has not begun, is written for the current round.
func (s *Store) AddAttempts(ctx context.Context, taps []dispatch.Attempt) error {
	return transact(ctx, s.relay, func(tx *gorm.DB) error {
		current, err := currentRounds(tx, taps)
		if err != nil {
			return unavailable(err)
		}
		rows := make([]attemptRow, 0, len(taps))
		for _, t := range taps {
			// An app may send any number as the round.
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
		// Taps come again if the reply to their COMMIT was lost.
		return unavailable(tx.Clauses(clause.OnConflict{DoNothing: true}).CreateInBatches(rows, attemptsPerInsert).Error)
	})
}

// currentRounds returns the current round of each tapped dispatch.
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
