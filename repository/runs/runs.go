package runs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"firsttap/dispatch/cronjob"
	"firsttap/repository/database"
	"firsttap/repository/poll"
)

// Runs is the ledger of scheduled jobs. It is safe for concurrent use.
type Runs struct {
	db   *database.DB
	poll *poll.Poll
}

// New returns the ledger in a database.
func New(db *database.DB, p *poll.Poll) *Runs { return &Runs{db, p} }

// JobRow is a row of the table jobs.
type JobRow struct {
	Name          string `gorm:"primaryKey"`
	RegisteredAt  int64
	Slot          *int64
	Fence         int64
	EndedAt       *int64
	SucceededAt   *int64
	BlockedAt     *int64
	BlockedBy     string
	BlockedReason string
}

// TableName implements gorm.Tabler.
func (JobRow) TableName() string { return "jobs" }

func (row *JobRow) state() cronjob.JobState {
	s := cronjob.JobState{
		Name: row.Name, RegisteredAt: database.Time(row.RegisteredAt), Slot: database.OptionalTime(row.Slot),
		EndedAt: database.OptionalTime(row.EndedAt), SucceededAt: database.OptionalTime(row.SucceededAt),
	}
	if row.BlockedAt != nil {
		s.Blocked = &cronjob.BlockReport{Since: database.Time(*row.BlockedAt), By: row.BlockedBy, Reason: row.BlockedReason}
	}
	return s
}

// RunRow is a row of the table job_runs.
type RunRow struct {
	Job         string `gorm:"primaryKey"`
	Slot        int64  `gorm:"primaryKey;autoIncrement:false"`
	Status      cronjob.Status
	Attempt     int
	Owner       string
	Fence       int64
	AliveUntil  *int64
	RequestedBy string
	BeganAt     *int64
	EndedAt     *int64
	Result      string
	Error       string
}

// TableName implements gorm.Tabler.
func (RunRow) TableName() string { return "job_runs" }

func (row *RunRow) run() cronjob.Run {
	return cronjob.Run{
		Job: row.Job, Slot: database.Time(row.Slot), Status: row.Status, Attempt: row.Attempt, Owner: row.Owner, Fence: row.Fence,
		LeasedUntil: database.OptionalTime(row.AliveUntil), RequestedBy: row.RequestedBy, BeganAt: database.OptionalTime(row.BeganAt),
		EndedAt: database.OptionalTime(row.EndedAt), Result: row.Result, Error: row.Error,
	}
}

// rowOf returns the row of a run that has not ended.
func rowOf(run cronjob.Run) RunRow {
	return RunRow{
		Job: run.Job, Slot: database.Micros(run.Slot), Status: run.Status, Attempt: run.Attempt, Owner: run.Owner, Fence: run.Fence,
		AliveUntil: database.OptionalMicros(run.LeasedUntil), RequestedBy: run.RequestedBy, BeganAt: database.OptionalMicros(run.BeganAt),
	}
}

// Unfinished are the states of runs that have not ended.
var Unfinished = []cronjob.Status{cronjob.Running, cronjob.Queued}

// BeginRun begins or takes over the run of the job that is to run now. owner must be unique to the attempt. due returns the
// slot that is due by the job's state and the database's time, the zero time for none. Another instance may take the run
// over unless RenewRun is called within term. A job has one run at a time, across all instances.
//
// Of cronjob: ErrNotFound, ErrRunning, ErrNotDue; ErrUnavailable if nothing was begun; ErrUnknown with the run if it may have begun: EndRun
// gives it back.
func (s *Runs) BeginRun(ctx context.Context, job, owner string, term time.Duration,
	due func(state cronjob.JobState, now time.Time) time.Time,
) (cronjob.Run, error) {
	var run cronjob.Run
	var none error
	err := s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		run = cronjob.Run{}
		state, fence, now, err := s.lockJob(tx, job)
		if err != nil {
			return err
		}
		state.ForgetFuture(now)
		var lost []cronjob.Run
		run, lost, none = state.Next(now, due(state, now))
		for _, r := range lost { // this is committed also if no run begins
			why := fmt.Sprintf("abandoned after %d attempts: each instance died or lost its lease during the run", r.Attempt)
			if err := endRun(tx, r, cronjob.Outcome{Status: cronjob.Failed, Error: why}, cronjob.Running); err != nil {
				return err
			}
		}
		if none == nil {
			err = startAttempt(tx, &run, owner, max(fence+1, database.Micros(now)), now, term)
		}
		return database.Unavailable(err)
	})
	if err == nil {
		err = none
	}
	return run, err
}

// lockJob locks the job until tx ends, and returns its state, its last fence and the database's time. ErrNotFound.
func (s *Runs) lockJob(tx database.Tx, job string) (cronjob.JobState, int64, time.Time, error) {
	var rows []JobRow
	if err := tx.Raw("SELECT * FROM jobs WHERE name = ? {for_update}", job).Scan(&rows).Error; err != nil {
		return cronjob.JobState{}, 0, time.Time{}, database.Unavailable(err)
	}
	if len(rows) == 0 {
		return cronjob.JobState{}, 0, time.Time{}, cronjob.ErrNotFound
	}
	now, err := database.Clock(tx) // after the wait for the row's lock
	if err != nil {
		return cronjob.JobState{}, 0, now, err
	}
	var open []RunRow
	err = tx.Raw("SELECT * FROM job_runs WHERE job = ? AND status IN ? ORDER BY slot {for_update}", job, Unfinished).Scan(&open).Error
	state := rows[0].state()
	for i := range open {
		state.Unfinished = append(state.Unfinished, open[i].run())
	}
	return state, rows[0].Fence, now, database.Unavailable(err)
}

// startAttempt writes the next attempt at the run. If another run has the slot already, it has ended: an admin requested it at the very
// time of the slot, or a clock was wrong. The slot's run takes its place.
func startAttempt(tx database.Tx, run *cronjob.Run, owner string, fence int64, now time.Time, term time.Duration) error {
	job := map[string]any{"fence": fence, "blocked_at": nil}
	if run.Status == "" { // it is not taken over, and was not requested
		job["slot"] = database.Micros(run.Slot)
	}
	end := now.Add(term)
	run.Status, run.Owner, run.Fence, run.BeganAt, run.LeasedUntil = cronjob.Running, owner, fence, &now, &end
	run.Attempt++
	row := rowOf(*run)
	if err := tx.Clauses(database.ReplacePresent).Create(&row).Error; err != nil {
		return err
	}
	return tx.Model(&JobRow{}).Where("name = ?", run.Job).Updates(job).Error
}

// NextOpenRun asks now. It returns when the first run of the jobs that is requested or under way may begin or be taken over, the zero
// time if there is none, and the database's time. ErrUnavailable.
func (s *Runs) NextOpenRun(ctx context.Context, jobs []string) (open, now time.Time, err error) {
	w, err := s.poll.Waiting(ctx, 0, jobs)
	if err != nil {
		return open, now, err
	}
	return w.Run, w.Now, nil
}

// RenewRun renews the run's lease: no instance takes it over before term from now. ErrNotLeased if another instance has taken
// it over, or it has ended.
func (s *Runs) RenewRun(ctx context.Context, run cronjob.Run, term time.Duration) error {
	return database.RequireOwned(s.db.Decide.With(ctx).Exec("UPDATE job_runs SET alive_until = {now} + ?"+
		" WHERE job = ? AND slot = ? AND owner = ? AND status = 'RUNNING'",
		term.Microseconds(), run.Job, database.Micros(run.Slot), run.Owner))
}

// EndRun writes how the attempt at the run ended. One that is INTERRUPTED does not count, and any instance may take the run over at once.
// ErrNotLeased if another instance has taken it over, or it has ended with another status.
func (s *Runs) EndRun(ctx context.Context, run cronjob.Run, end cronjob.Outcome) error {
	if end.Status == cronjob.Interrupted {
		return database.RequireOwned(s.db.Decide.With(ctx).Exec("UPDATE job_runs SET alive_until = {now}, attempt = attempt - 1, owner = ?"+
			" WHERE job = ? AND slot = ? AND owner = ? AND status = 'RUNNING'",
			instanceOf(run.Owner), run.Job, database.Micros(run.Slot), run.Owner))
	}
	return s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		// It may have ended with this status before: by ConcludeRun, or in a COMMIT whose reply was lost.
		return endRun(tx, run, end, cronjob.Running, end.Status)
	})
}

// endRun ends a run that has one of the standing statuses.
func endRun(tx database.Tx, run cronjob.Run, end cronjob.Outcome, standing ...cronjob.Status) error {
	ended := "UPDATE jobs SET ended_at = {now}"
	if end.Status == cronjob.Succeeded {
		ended += ", succeeded_at = {now}"
	}
	// The job's row is locked first, as in BeginRun.
	if err := tx.Exec(ended+" WHERE name = ?", run.Job).Error; err != nil {
		return database.Unavailable(err)
	}
	return database.RequireOwned(tx.Exec("UPDATE job_runs SET status = ?, ended_at = (SELECT ended_at FROM jobs WHERE name = job),"+
		" alive_until = NULL, result = ?, error = ?"+
		" WHERE job = ? AND slot = ? AND owner = ? AND status IN ?", end.Status, database.Truncate(end.Result, maxResult),
		database.Truncate(end.Error, maxError), run.Job, database.Micros(run.Slot), run.Owner, standing))
}

// InterruptRuns takes the runs that are under way away from their owners, and returns them: from then on the owner can't
// extend, end or conclude such a run, and the next instance takes it over at once. The attempt counts. It waits for a
// transaction that is concluding one of the runs. Names of jobs that are not registered are passed over.
func (s *Runs) InterruptRuns(ctx context.Context, jobs []string) (interrupted []cronjob.Run, err error) {
	var rows []RunRow
	err = s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		err := tx.Raw("SELECT * FROM job_runs WHERE job IN ? AND status = 'RUNNING' AND owner LIKE '%/%' {for_update}", jobs).
			Scan(&rows).Error
		for i := 0; i < len(rows) && err == nil; i++ {
			err = tx.Exec("UPDATE job_runs SET alive_until = {now}, owner = ? WHERE job = ? AND slot = ?",
				instanceOf(rows[i].Owner), rows[i].Job, rows[i].Slot).Error
		}
		return database.Unavailable(err)
	})
	for i := range rows {
		interrupted = append(interrupted, rows[i].run())
	}
	return interrupted, err
}

// instanceOf returns the instance of an attempt's owner. As the owner of a run it says that no attempt is under way.
func instanceOf(owner string) string {
	instance, _, _ := strings.Cut(owner, "/")
	return instance
}

// ConcludeRun commits the run's result together with its end as SUCCEEDED, so that the result is written once however often the
// slot is begun. It is the last step of the work. After a deadlock it calls write again. ErrNotLeased if another instance has
// taken the run over, or it has ended; then nothing was written. ErrUnavailable, ErrUnknown.
func (s *Runs) ConcludeRun(ctx context.Context, run cronjob.Run, result string, write func(tx database.Tx) error) error {
	return s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		end := cronjob.Outcome{Status: cronjob.Succeeded, Result: result}
		if err := endRun(tx, run, end, cronjob.Running); err != nil {
			return err
		}
		return database.Unavailable(write(tx))
	})
}

const (
	maxResult = 255
	maxError  = 1000
)

// BlockJob stores the reason why an instance does not run the job. The next run that begins clears it.
func (s *Runs) BlockJob(ctx context.Context, job, by, reason string) error {
	return database.Unavailable(s.db.Decide.With(ctx).Exec("UPDATE jobs SET blocked_at = COALESCE(blocked_at, {now}),"+
		" blocked_by = ?, blocked_reason = ? WHERE name = ?", by, database.Truncate(reason, maxResult), job).Error)
}
