package runs

import (
	"context"
	"math"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/dispatch/idempotency"
	"firsttap/repository/database"
	"firsttap/repository/journal"
)

// timedJob is a job, how many of its runs have not ended, and the database's time.
type timedJob struct {
	Row       JobRow `gorm:"embedded"`
	Open, Now int64
}

// statesSQL selects timed jobs. A condition on both states at once would read all runs of a job.
const statesSQL = `SELECT j.*, {now} now, (SELECT COUNT(*) FROM job_runs r WHERE r.job = j.name AND r.status = 'RUNNING')
	+ (SELECT COUNT(*) FROM job_runs r WHERE r.job = j.name AND r.status = 'QUEUED') open FROM jobs j WHERE j.name IN ?`

// JobStates returns the states of the jobs by name, without times of a wrong clock, and the database's time. It writes a row for each
// job that has none. While no run is open this costs one statement. ErrUnavailable.
func (s *Runs) JobStates(ctx context.Context, names []string) (states map[string]cronjob.JobState, now time.Time, err error) {
	db := s.db.Serve.With(ctx)
	if len(names) == 0 {
		now, err = database.Clock(db)
		return nil, now, err
	}
	var jobs []timedJob
	err = db.Raw(statesSQL, names).Scan(&jobs).Error
	if err == nil && len(jobs) < len(names) {
		if err = s.register(ctx, names); err == nil {
			err = db.Raw(statesSQL, names).Scan(&jobs).Error
		}
	}
	if err != nil {
		return nil, now, database.Unavailable(err)
	}
	open := int64(0)
	states = make(map[string]cronjob.JobState, len(jobs))
	for i := range jobs {
		now, open = database.Time(jobs[i].Now), open+jobs[i].Open
		state := jobs[i].Row.state()
		state.ForgetFuture(now)
		states[jobs[i].Row.Name] = state
	}
	if open == 0 {
		return states, now, nil
	}
	var rows []RunRow
	if err := db.Where("job IN ? AND status IN ?", names, Unfinished).Order("slot").Find(&rows).Error; err != nil {
		return nil, now, database.Unavailable(err)
	}
	for i := range rows {
		state := states[rows[i].Job]
		state.Unfinished = append(state.Unfinished, rows[i].run())
		states[rows[i].Job] = state
	}
	return states, now, nil
}

// register writes a row for each job that has none.
func (s *Runs) register(ctx context.Context, names []string) error {
	return s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		now, err := database.Clock(tx)
		if err != nil {
			return err
		}
		rows := make([]JobRow, len(names))
		for i, name := range names {
			rows[i] = JobRow{Name: name, RegisteredAt: database.Micros(now)}
		}
		return database.Unavailable(tx.Clauses(database.KeepPresent).Create(&rows).Error)
	})
}

// RequestRun queues a run of the job, or returns the run that is queued already. ErrNotFound.
func (s *Runs) RequestRun(ctx context.Context, job, actor string) (cronjob.Run, error) {
	var row RunRow
	err := s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		row = RunRow{}
		state, _, now, err := s.lockJob(tx, job)
		if err != nil {
			return err
		}
		applied, err := journal.AlreadyApplied(tx, journal.AuditProof)
		if err != nil {
			return err
		}
		if applied { // its audit entry was written with the run
			var entry journal.AuditRow
			err := tx.Where("id = ?", idempotency.AuditID(ctx, time.Time{})).Take(&entry).Error
			if err == nil {
				err = tx.Where("job = ? AND slot = ?", entry.Target, entry.At).Limit(1).Find(&row).Error
			}
			return database.Unavailable(err)
		}
		for _, r := range state.Unfinished {
			if r.Status == cronjob.Queued {
				row = rowOf(r)
				return nil
			}
		}
		row = RunRow{Job: job, Slot: database.Micros(now), Status: cronjob.Queued, RequestedBy: actor}
		if err := tx.Create(&row).Error; err != nil {
			return database.Unavailable(err)
		}
		return journal.Record(tx, dispatch.AuditJobRun, job, map[string]any{"scheduled_at": now.Format(time.RFC3339Nano)}, now)
	})
	return row.run(), err
}

// Runs returns the runs of a job, the latest slot first, and the cursor of the next page, "" after the last.
func (s *Runs) Runs(ctx context.Context, job string, page dispatch.Page) (items []cronjob.Run, next string, err error) {
	before, of := int64(math.MaxInt64), job
	if page.Cursor != "" {
		before, of, err = database.ParseCursor(database.RunList, page.Cursor, func(s string) (string, error) { return s, nil })
	}
	if err != nil || of != job {
		return nil, "", dispatch.ErrBadCursor
	}
	err = s.db.List(ctx, func(db database.Tx) error {
		now, err := database.Clock(db)
		if err != nil {
			return err
		}
		var rows []RunRow
		rows, next, err = database.ReadPage(db.Where("job = ? AND slot < ?", job, before).Order("slot DESC"), page.Limit,
			func(last *RunRow) string { return database.Cursor(database.RunList, last.Slot, job) })
		items = make([]cronjob.Run, len(rows))
		for i := range rows {
			items[i] = rows[i].run().At(now)
		}
		return err
	})
	return items, next, err
}
