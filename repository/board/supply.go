package board

import (
	"context"
	"fmt"
	"slices"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/repository/database"
	"firsttap/repository/drivers"
)

// RecordSupply counts the drivers on duty and the open dispatches of each region, writes the counts for the run's slot, and
// concludes the run in the same transaction. The totals have the region "", as a driver may be in several regions. It
// returns the number of regions. ErrNotLeased if another instance has taken the run over; then nothing was written.
func (s *Board) RecordSupply(ctx context.Context, run cronjob.Run) (int, error) {
	db, counts := s.db.Serve.With(ctx), []stateCount(nil)
	if err := db.Raw(pendingSQL(""), openIn("").values).Scan(&counts).Error; err != nil {
		return 0, database.Unavailable(err)
	}
	regions, err := countSupply(db, counts)
	if err != nil {
		return 0, err
	}
	n := len(regions) - 1
	return n, s.runs.ConcludeRun(ctx, run, fmt.Sprintf("%d regions", n), func(tx database.Tx) error {
		args := make([]any, 0, 4*len(regions))
		for region, counted := range regions {
			args = append(args, database.Micros(run.Slot), region, counted.OnDuty, counted.Open)
		}
		for part := range slices.Chunk(args, 4*database.RowsPerStatement) {
			rows := database.Placeholders(len(part)/4, 4)
			if err := tx.Exec("INSERT INTO supply (at, region, on_duty, open) VALUES "+rows, part...).Error; err != nil {
				return err
			}
		}
		return nil
	})
}

// stateCount counts dispatches of a region that are stored with a status.
type stateCount struct {
	Status  dispatch.Status // as stored
	Region  string
	N       int // negative for offers that are stored as PENDING and have ended: another row counts these offers, too
	Later   int // how many of N are not open yet
	Expired int // how many of the offers that have ended did so in the @window
}

// pendingSQL selects stateCounts of the dispatches that are stored as PENDING. It counts them by an index, without reading them. It reads
// only the offers that have ended and are still stored as PENDING; the job expire-offers leaves few of these.
func pendingSQL(where string) string {
	return `SELECT status, region, COUNT(*) n, SUM(opens_at > {now}) later, 0 expired FROM dispatches {force ix_dispatches_open}
		WHERE status = 'PENDING'` + where + ` GROUP BY status, region
		UNION ALL SELECT status, region, -COUNT(*), 0, SUM(expires_at >= {now} - @window) FROM dispatches {force ix_dispatches_expiry}
		WHERE status = 'PENDING' AND expires_at <= {now} AND opens_at <= {now}` + where + ` GROUP BY status, region`
}

// countSupply returns the drivers on duty and the open dispatches of each region, and in all, with the region "".
func countSupply(db database.Tx, counts []stateCount) (map[string]dispatch.Supply, error) {
	regions := map[string]dispatch.Supply{"": {}}
	onDuty, err := drivers.OnDuty(db)
	for region, n := range onDuty {
		regions[region] = dispatch.Supply{OnDuty: n}
	}
	open := map[string]int{}
	for _, c := range counts {
		if c.Status == dispatch.Pending {
			open[c.Region] += c.N - c.Later
			open[""] += c.N - c.Later
		}
	}
	for region, n := range open {
		if n > 0 {
			regions[region] = dispatch.Supply{OnDuty: regions[region].OnDuty, Open: n}
		}
	}
	return regions, err
}
