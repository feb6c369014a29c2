package repository

import (
	"context"
	"fmt"
	"slices"

	"gorm.io/gorm"

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
	if err := s.countDrivers(s.serve.WithContext(ctx), regions); err != nil {
		return 0, err
	}
	if err := s.countOpen(s.serve.WithContext(ctx), regions); err != nil {
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

// countDrivers counts the drivers on duty who are not suspended in each region, by the index.
func (s *Store) countDrivers(db *gorm.DB, regions map[string]supply) error {
	var rows []struct {
		Region  string
		Drivers int
	}
	// The two parts are one statement, which sees one state of the tables. Few of the drivers on duty are suspended.
	err := db.Raw(`SELECT region, SUM(on_duty) drivers FROM driver_counts GROUP BY region
		UNION ALL SELECT r.region, -COUNT(*) FROM drivers v {force ix_drivers_suspended} JOIN driver_regions r
		{force uq_driver_regions_driver} ON r.driver_id = v.id
		WHERE v.on_duty = 1 AND v.suspended_until > {now} GROUP BY r.region`).Scan(&rows).Error
	if err != nil {
		return unavailable(err)
	}
	counts := map[string]int{}
	for _, row := range rows {
		counts[row.Region] += row.Drivers
	}
	for region, n := range counts {
		if n > 0 {
			counted := regions[region]
			counted.onDuty += n
			regions[region] = counted
		}
	}
	return nil
}

func (s *Store) countOpen(db *gorm.DB, regions map[string]supply) error {
	var rows []stateCount
	err := db.Raw(s.pendingSQL("{now}", "0", "")).Scan(&rows).Error
	addOpen(regions, rows)
	return unavailable(err)
}

// pendingSQL selects stateCounts of the dispatches that are stored as PENDING. It counts them by an index, without reading them. It reads
// only the offers that have ended and are still stored as PENDING; the job expire-offers leaves few of these.
func (s *Store) pendingSQL(now, since, inRegion string) string {
	return `SELECT status state, region, COUNT(*) n, SUM(opens_at > ` + now + `) later, 0 expired FROM dispatches {force ix_dispatches_open}
		WHERE status = 'PENDING'` + inRegion + ` GROUP BY status, region
		UNION ALL SELECT status, region, -COUNT(*), 0, SUM(expires_at >= ` + since + `) FROM dispatches {force ix_dispatches_expiry}
		WHERE status = 'PENDING' AND expires_at <= ` + now + ` AND opens_at <= ` + now + inRegion + ` GROUP BY status, region`
}

// addOpen adds the open dispatches to their regions, and to the total.
func addOpen(regions map[string]supply, rows []stateCount) {
	counts := map[string]int{}
	for _, row := range rows {
		if row.State == string(dispatch.Pending) {
			counts[row.Region] += row.N - row.Later
		}
	}
	for region, n := range counts {
		if n == 0 {
			continue
		}
		for _, name := range []string{region, ""} {
			counted := regions[name]
			counted.open += n
			regions[name] = counted
		}
	}
}
