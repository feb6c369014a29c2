package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/idempotency"
	"firsttap/repository/database"
	"firsttap/repository/journal"
	"firsttap/repository/primary"
)

// timedJob is a job, how many of its runs have not ended, and the database's time.
type timedJob struct {
	Row      JobRow `gorm:"embedded"`
	Open     int
	Now      int64
	ReadOnly bool
}

// JobStates returns the states of the jobs by name, and the database's time. ErrUnavailable.
func (s *Runs) JobStates(ctx context.Context, names []string) (states map[string]cronjob.JobState, now time.Time, err error) {
	db := s.db.Serve.With(primary.Unchecked(ctx))
	var jobs []timedJob
	// A condition on both states at once would read all runs of a job.
	unfinished := func(status cronjob.Status) string {
		return "(SELECT COUNT(*) FROM job_runs r WHERE r.job = j.name AND r.status = '" + string(status) + "')"
	}
	err = db.Raw("SELECT j.*, "+unfinished(cronjob.Running)+" + "+unfinished(cronjob.Queued)+" open, {now} now, "+
		"{read_only} read_only FROM jobs j WHERE j.name IN ?", names).Scan(&jobs).Error
	switch {
	case err != nil:
		return nil, now, database.Unavailable(err)
	case len(jobs) == 0:
		now, err = database.Clock(s.db.Serve.With(ctx))
		return nil, now, err
	case jobs[0].ReadOnly:
		return nil, now, s.db.Stale()
	}
	now = database.Time(jobs[0].Now)
	states = make(map[string]cronjob.JobState, len(jobs))
	open := 0
	for i := range jobs {
		states[jobs[i].Row.Name] = jobs[i].Row.state()
		open += jobs[i].Open
	}
	if open > 0 {
		err = s.addUnfinished(db, names, states)
	}
	return states, now, err
}

// addUnfinished reads the runs of the jobs that have not ended, and adds them to the states.
func (s *Runs) addUnfinished(db database.Tx, names []string, states map[string]cronjob.JobState) error {
	var open []RunRow
	if err := db.Where("job IN ? AND status IN ?", names, Unfinished).Order("slot").Find(&open).Error; err != nil {
		return database.Unavailable(err)
	}
	for i := range open {
		if state, ok := states[open[i].Job]; ok {
			state.Unfinished = append(state.Unfinished, open[i].run())
			states[open[i].Job] = state
		}
	}
	return nil
}

// LastRun returns the job's latest run that has ended, nil if there is none.
func (s *Runs) LastRun(ctx context.Context, job string) (*cronjob.Run, error) {
	var rows []RunRow
	err := s.db.Serve.With(ctx).Where("job = ? AND ended_at IS NOT NULL", job).Order("slot DESC").Limit(1).Find(&rows).Error
	if err != nil || len(rows) == 0 {
		return nil, database.Unavailable(err)
	}
	run := rows[0].run()
	return &run, nil
}

// RequestRun queues a run of the job, or returns the run that is queued already. ErrNotFound.
func (s *Runs) RequestRun(ctx context.Context, job, actor string) (cronjob.Run, error) {
	var run cronjob.Run
	err := s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		state, _, now, err := s.lockJob(tx, job)
		if err != nil {
			return err
		}
		switch applied, err := journal.AlreadyApplied(tx, journal.AuditProof); {
		case err != nil:
			return err
		case applied:
			run, err = requestedRun(tx)
			return err
		}
		queued := slices.IndexFunc(state.Unfinished, func(r cronjob.Run) bool { return r.Status == cronjob.Queued })
		if queued >= 0 {
			run = state.Unfinished[queued]
			return nil
		}
		row := RunRow{Job: job, Slot: database.Micros(now), Status: cronjob.Queued, RequestedBy: actor}
		run = row.run()
		if err := tx.Create(&row).Error; err != nil {
			return database.Unavailable(err)
		}
		return journal.Record(tx, dispatch.AuditJobRun, job, map[string]any{slotDetail: now.Format(time.RFC3339Nano)}, now)
	})
	return run, err
}

// slotDetail is the detail of a requested run's audit entry that holds the run's slot.
const slotDetail = "scheduled_at"

// requestedRun returns the run that the request of tx's context has queued before.
func requestedRun(tx database.Tx) (cronjob.Run, error) {
	var entry journal.AuditRow
	if err := tx.Where("id = ?", idempotency.AuditID(tx.Statement.Context, time.Time{})).Take(&entry).Error; err != nil {
		return cronjob.Run{}, database.Unavailable(err)
	}
	var detail map[string]time.Time
	if err := json.Unmarshal([]byte(entry.Detail), &detail); err != nil {
		return cronjob.Run{}, fmt.Errorf("audit entry %s: %w", entry.ID, err)
	}
	var rows []RunRow
	if err := tx.Where("job = ? AND slot = ?", entry.Target, database.Micros(detail[slotDetail])).Find(&rows).Error; err != nil {
		return cronjob.Run{}, database.Unavailable(err)
	}
	if len(rows) == 0 {
		return cronjob.Run{}, cronjob.ErrNotFound
	}
	return rows[0].run(), nil
}

// Runs returns the runs of a job, the latest slot first, and the cursor of the next page, "" after the last.
func (s *Runs) Runs(ctx context.Context, job string, page dispatch.Page) (items []cronjob.Run, next string, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		items, next, err = s.listRuns(db, job, page)
		return err
	})
	return items, next, err
}

func (s *Runs) listRuns(db database.Tx, job string, page dispatch.Page) ([]cronjob.Run, string, error) {
	now, err := database.Clock(db)
	if err != nil {
		return nil, "", err
	}
	db = db.Where("job = ?", job)
	if page.Cursor != "" {
		slot, _, err := database.ParseCursor(database.RunList, page.Cursor, func(s string) (string, error) {
			if s != job {
				return "", dispatch.ErrBadCursor
			}
			return s, nil
		})
		if err != nil {
			return nil, "", err
		}
		db = db.Where("slot < ?", slot)
	}
	rows, next, err := database.ReadPage(
		db.Order("slot DESC"), page.Limit, func(last *RunRow) string { return database.Cursor(database.RunList, last.Slot, job) },
	)
	runs := make([]cronjob.Run, len(rows))
	for i := range rows {
		runs[i] = rows[i].run().At(now)
	}
	return runs, next, err
}
