package board

import (
	"context"
	"fmt"
	"slices"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/drivers"
	"firsttap/repository/runs"
)

// supply counts drivers on duty and open dispatches.
type supply struct{ onDuty, open int }

// RecordSupply counts the drivers on duty and the open dispatches of each region, writes the counts for the run's slot, and
// concludes the run in the same transaction. The totals have the region "", as a driver may be in several regions. It
// returns the number of regions. ErrNotLeased if another instance has taken the run over; then nothing was written.
func (s *Board) RecordSupply(ctx context.Context, run cronjob.Run) (int, error) {
	regions := map[string]supply{"": {}}
	if err := countDrivers(s.db.Serve.With(ctx), regions); err != nil {
		return 0, err
	}
	if err := countOpen(s.db.Serve.With(ctx), regions); err != nil {
		return 0, err
	}
	n := len(regions) - 1
	return n, s.runs.ConcludeRun(ctx, run, fmt.Sprintf("%d regions", n), func(ctx context.Context, tx runs.Execer) error {
		args := make([]any, 0, 4*len(regions))
		for region, counted := range regions {
			args = append(args, database.Micros(run.Slot), region, counted.onDuty, counted.open)
		}
		for part := range slices.Chunk(args, 4*database.RowsPerStatement) {
			_, err := tx.ExecContext(ctx, "INSERT INTO supply (at, region, on_duty, open) VALUES "+database.Placeholders(len(part)/4, 4), part...)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// countDrivers adds the drivers on duty to their regions, and to the total.
func countDrivers(db database.Tx, regions map[string]supply) error {
	counts, err := drivers.OnDuty(db)
	for region, n := range counts {
		counted := regions[region]
		counted.onDuty += n
		regions[region] = counted
	}
	return err
}

func countOpen(db database.Tx, regions map[string]supply) error {
	var rows []stateCount
	err := db.Raw(pendingSQL("{now}", "0", "")).Scan(&rows).Error
	addOpen(regions, rows)
	return database.Unavailable(err)
}

// pendingSQL selects stateCounts of the dispatches that are stored as PENDING. It counts them by an index, without reading them. It reads
// only the offers that have ended and are still stored as PENDING; the job expire-offers leaves few of these.
func pendingSQL(now, since, inRegion string) string {
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
