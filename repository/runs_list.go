package repository

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/idempotency"
	"firsttap/repository/primary"
)

// timedJob is a job, how many of its runs have not ended, and the database's time.
type timedJob struct {
	Row      jobRow `gorm:"embedded"`
	Open     int
	Now      int64
	ReadOnly bool
}

// JobStates returns the states of the jobs by name, and the database's time. ErrUnavailable.
func (s *Store) JobStates(ctx context.Context, names []string) (states map[string]cronjob.JobState, now time.Time, err error) {
	db := s.serve.WithContext(primary.Unchecked(ctx))
	var jobs []timedJob
	// A condition on both states at once would read all runs of a job.
	unfinished := func(status cronjob.Status) string {
		return "(SELECT COUNT(*) FROM job_runs r WHERE r.job = j.name AND r.status = '" + string(status) + "')"
	}
	err = db.Raw("SELECT j.*, "+unfinished(cronjob.Running)+" + "+unfinished(cronjob.Queued)+" open, {now} now, "+
		"{read_only} read_only FROM jobs j WHERE j.name IN ?", names).Scan(&jobs).Error
	switch {
	case err != nil:
		return nil, now, unavailable(err)
	case len(jobs) == 0:
		now, err = s.clock(s.serve.WithContext(ctx))
		return nil, now, err
	case jobs[0].ReadOnly:
		return nil, now, s.staleLook()
	}
	now = fromMicros(jobs[0].Now)
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
func (s *Store) addUnfinished(db *gorm.DB, names []string, states map[string]cronjob.JobState) error {
	var open []runRow
	if err := db.Where("job IN ? AND status IN ?", names, unfinished).Order("slot").Find(&open).Error; err != nil {
		return unavailable(err)
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
func (s *Store) LastRun(ctx context.Context, job string) (*cronjob.Run, error) {
	var rows []runRow
	err := s.serve.WithContext(ctx).Where("job = ? AND ended_at IS NOT NULL", job).Order("slot DESC").Limit(1).Find(&rows).Error
	if err != nil || len(rows) == 0 {
		return nil, unavailable(err)
	}
	run := rows[0].run()
	return &run, nil
}

// RequestRun queues a run of the job, or returns the run that is queued already. ErrNotFound.
func (s *Store) RequestRun(ctx context.Context, job, actor string) (cronjob.Run, error) {
	var run cronjob.Run
	err := s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		state, _, now, err := s.lockJob(tx, job)
		if err != nil {
			return err
		}
		switch applied, err := alreadyApplied(tx, auditProof); {
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
		row := runRow{Job: job, Slot: micros(now), Status: cronjob.Queued, RequestedBy: actor}
		run = row.run()
		if err := tx.Create(&row).Error; err != nil {
			return unavailable(err)
		}
		return audit(tx, dispatch.AuditJobRun, job, map[string]any{slotDetail: now.Format(time.RFC3339Nano)}, now)
	})
	return run, err
}

// slotDetail is the detail of a requested run's audit entry that holds the run's slot.
const slotDetail = "scheduled_at"

// requestedRun returns the run that the request of tx's context has queued before.
func requestedRun(tx *gorm.DB) (cronjob.Run, error) {
	var entry auditRow
	if err := tx.Where("id = ?", idempotency.AuditID(tx.Statement.Context, time.Time{})).Take(&entry).Error; err != nil {
		return cronjob.Run{}, unavailable(err)
	}
	var detail map[string]time.Time
	if err := json.Unmarshal([]byte(entry.Detail), &detail); err != nil {
		return cronjob.Run{}, fmt.Errorf("audit entry %s: %w", entry.ID, err)
	}
	var rows []runRow
	if err := tx.Where("job = ? AND slot = ?", entry.Target, micros(detail[slotDetail])).Find(&rows).Error; err != nil {
		return cronjob.Run{}, unavailable(err)
	}
	if len(rows) == 0 {
		return cronjob.Run{}, cronjob.ErrNotFound
	}
	return rows[0].run(), nil
}

// Runs returns the runs of a job, the latest slot first, and the cursor of the next page, "" after the last.
func (s *Store) Runs(ctx context.Context, job string, page dispatch.Page) (items []cronjob.Run, next string, err error) {
	err = s.list(ctx, func(db *gorm.DB) error {
		items, next, err = s.listRuns(db, job, page)
		return err
	})
	return items, next, err
}

func (s *Store) listRuns(db *gorm.DB, job string, page dispatch.Page) ([]cronjob.Run, string, error) {
	now, err := s.clock(db)
	if err != nil {
		return nil, "", err
	}
	db = db.Where("job = ?", job)
	if page.Cursor != "" {
		slot, _, err := parseCursor(runList, page.Cursor, func(s string) (string, error) {
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
	rows, next, err := readPage(db.Order("slot DESC"), page.Limit, func(last *runRow) string { return cursor(runList, last.Slot, job) })
	runs := make([]cronjob.Run, len(rows))
	for i := range rows {
		runs[i] = rows[i].run().At(now)
	}
	return runs, next, err
}
