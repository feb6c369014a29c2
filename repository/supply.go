package repository

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"firsttap/cronjob"
	"firsttap/dispatch"
)

// supply counts drivers on duty and open dispatches.
type supply struct{ onDuty, open int }

// RecordSupply counts the drivers on duty and the open dispatches of each region, writes the counts for the run's slot, and
// concludes the run in the same transaction. The totals have the region "", as a driver may be in several regions. It
// returns the number of regions. ErrNotLeased if another instance has taken the run over; then nothing was written.
func (s *Store) RecordSupply(ctx context.Context, run cronjob.Run) (int, error) {
	regions := map[string]supply{"": {}}
	if err := s.countDrivers(ctx, regions); err != nil {
		return 0, err
	}
	if err := s.countOpen(ctx, regions); err != nil {
		return 0, err
	}
	n := len(regions) - 1
	return n, s.ConcludeRun(ctx, run, fmt.Sprintf("%d regions", n), func(ctx context.Context, tx Execer) error {
		args := make([]any, 0, 4*len(regions))
		for region, counted := range regions {
			args = append(args, micros(run.Slot), region, counted.onDuty, counted.open)
		}
		for part := range slices.Chunk(args, 4*rowsPerStatement) {
			_, err := tx.ExecContext(ctx, "INSERT INTO supply (at, region, on_duty, open) VALUES "+placeholders(len(part)/4, 4), part...)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) countDrivers(ctx context.Context, regions map[string]supply) error {
	var rows []struct {
		Regions string
		Drivers int
	}
	err := s.general.WithContext(ctx).Raw(`SELECT CAST(regions AS CHAR) regions, COUNT(*) drivers FROM drivers
		WHERE on_duty AND (suspended_until IS NULL OR suspended_until <= ` + s.dialect.now() + `) GROUP BY CAST(regions AS CHAR)`).Scan(&rows).Error
	if err != nil {
		return unavailable(err)
	}
	for _, row := range rows {
		var of []string
		if err := json.Unmarshal([]byte(row.Regions), &of); err != nil {
			return fmt.Errorf("regions of drivers: %w", err)
		}
		slices.Sort(of)
		for _, region := range append(slices.Compact(of), "") {
			counted := regions[region]
			counted.onDuty += row.Drivers
			regions[region] = counted
		}
	}
	return nil
}

func (s *Store) countOpen(ctx context.Context, regions map[string]supply) error {
	var rows []struct {
		Region string
		Open   int
	}
	err := s.general.WithContext(ctx).Table("dispatches" + s.dialect.forceIndex("ix_dispatches_open")).Where(s.statusSQL(dispatch.Pending)[0]).
		Select("region, COUNT(*) open").Group("region").Scan(&rows).Error
	for _, row := range rows {
		for _, region := range []string{row.Region, ""} {
			counted := regions[region]
			counted.open += row.Open
			regions[region] = counted
		}
	}
	return unavailable(err)
}
