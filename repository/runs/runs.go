package runs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"firsttap/cronjob"
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

// RegisterJobs writes a row for each job that has none, and returns the database's time.
func (s *Runs) RegisterJobs(ctx context.Context, names []string) (now time.Time, err error) {
	err = s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		if now, err = database.Clock(tx); err != nil || len(names) == 0 {
			return err
		}
		rows := make([]JobRow, len(names))
		for i, name := range names {
			rows[i] = JobRow{Name: name, RegisteredAt: database.Micros(now)}
		}
		return database.Unavailable(tx.Clauses(database.KeepPresent).Create(&rows).Error)
	})
	return now, err
}

// Unfinished are the states of runs that have not ended.
var Unfinished = []cronjob.Status{cronjob.Running, cronjob.Queued}

// BeginRun begins or takes over the run of the job that is to run now. owner must be unique to the attempt. due returns the
// slot that is due by the job's state and the database's time, the zero time for none. Another instance may take the run
// over unless RenewRun is called within term. A job has one run at a time, across all instances.
//
// Of cronjob: ErrNotFound, ErrRunning, ErrNotDue; ErrUnavailable if nothing was begun; ErrUnknown if a run may have begun, which
// InterruptRun with the same owner gives back.
func (s *Runs) BeginRun(ctx context.Context, job, owner string, term time.Duration,
	due func(state cronjob.JobState, now time.Time) time.Time,
) (cronjob.Run, error) {
	var run cronjob.Run
	var verdict error
	err := s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		run, verdict = cronjob.Run{}, nil
		state, fence, now, err := s.lockJob(tx, job)
		if err != nil {
			return err
		}
		state.ForgetFuture(now)
		next, lost, none := state.Next(now, due(state, now))
		verdict = none
		if err := failAbandoned(tx, lost, now); err != nil || next.Slot.IsZero() {
			return database.Unavailable(err) // the abandoned runs are committed as failed
		}
		run, err = startAttempt(tx, next, owner, max(fence+1, database.Micros(now)), now, term)
		if errors.Is(err, database.ErrDuplicateKey) {
			// A run was requested at the very time of the slot, and counts as the slot's.
			verdict = cronjob.ErrNotDue
			return database.Unavailable(tx.Model(&JobRow{}).Where("name = ?", job).Update("slot", database.Micros(next.Slot)).Error)
		}
		return database.Unavailable(err)
	})
	if err == nil {
		err = verdict
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

func failAbandoned(tx database.Tx, lost []cronjob.Run, now time.Time) error {
	for _, r := range lost {
		err := tx.Model(&JobRow{}).Where("name = ?", r.Job).Update("ended_at", database.Micros(now)).Error
		if err != nil {
			return err
		}
		err = tx.Model(&RunRow{}).Where("job = ? AND slot = ?", r.Job, database.Micros(r.Slot)).Updates(map[string]any{
			"status": cronjob.Failed, "alive_until": nil, "ended_at": database.Micros(now),
			"error": fmt.Sprintf("abandoned after %d attempts: each instance died or lost its lease during the run", r.Attempt),
		}).Error
		if err != nil {
			return err
		}
	}
	return nil
}

func startAttempt(tx database.Tx, next cronjob.Run, owner string, fence int64, now time.Time, term time.Duration) (cronjob.Run, error) {
	fresh := next.Status == ""
	next.Status, next.Owner, next.Fence = cronjob.Running, owner, fence
	next.Attempt++
	alive := now.Add(term)
	next.BeganAt, next.LeasedUntil = &now, &alive
	job := map[string]any{"fence": fence, "blocked_at": nil}
	var err error
	if fresh {
		job["slot"] = database.Micros(next.Slot)
		row := RunRow{
			Job: next.Job, Slot: database.Micros(next.Slot), Status: next.Status, Attempt: next.Attempt, Owner: owner, Fence: fence,
			BeganAt: database.OptionalMicros(&now), AliveUntil: database.OptionalMicros(&alive),
		}
		err = tx.Create(&row).Error
	} else {
		err = tx.Model(&RunRow{}).Where("job = ? AND slot = ?", next.Job, database.Micros(next.Slot)).Updates(map[string]any{
			"status": next.Status, "attempt": next.Attempt, "owner": owner, "fence": fence,
			"began_at": database.Micros(now), "alive_until": database.Micros(alive),
		}).Error
	}
	if err != nil {
		return cronjob.Run{}, err
	}
	return next, tx.Model(&JobRow{}).Where("name = ?", next.Job).Updates(job).Error
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
		" WHERE job = ? AND slot = ? AND owner = ? AND status = 'RUNNING'", term.Microseconds(), run.Job, database.Micros(run.Slot), run.Owner))
}

// EndRun writes how the run ended. ErrNotLeased if another instance has taken it over, or it has ended with another status.
func (s *Runs) EndRun(ctx context.Context, run cronjob.Run, end cronjob.Outcome) error {
	return s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		// It may have ended with this status before: by ConcludeRun, or in a COMMIT whose reply was lost.
		return s.endRun(tx, run, end, cronjob.Running, end.Status)
	})
}

// endRun ends a run that has one of the standing statuses.
func (s *Runs) endRun(tx database.Tx, run cronjob.Run, end cronjob.Outcome, standing ...cronjob.Status) error {
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

// InterruptRun ends the lease of the owner's run of the job, so that any instance may take it over at once. The attempt does not
// count as one that died. ErrNotLeased if the owner has no run.
func (s *Runs) InterruptRun(ctx context.Context, job, owner string) error {
	instance, _, _ := strings.Cut(owner, "/")
	return database.RequireOwned(s.db.Decide.With(ctx).Exec("UPDATE job_runs SET alive_until = {now}, attempt = attempt - 1, owner = ?"+
		" WHERE job = ? AND owner = ? AND status = 'RUNNING'", instance, job, owner))
}

// InterruptRuns takes the runs that are under way away from their owners, and returns them: from then on the owner can't
// extend, end or conclude such a run, and the next instance takes it over at once. The attempt counts. It waits for a
// transaction that is concluding one of the runs. Names of jobs that are not registered are passed over.
func (s *Runs) InterruptRuns(ctx context.Context, jobs []string) ([]cronjob.Run, error) {
	var interrupted []cronjob.Run
	err := s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		interrupted = nil
		for _, job := range jobs {
			state, _, now, err := s.lockJob(tx, job)
			if err != nil && !errors.Is(err, cronjob.ErrNotFound) {
				return err
			}
			for _, r := range state.Unfinished {
				instance, _, owned := strings.Cut(r.Owner, "/")
				if r.Status != cronjob.Running || !owned {
					continue
				}
				err := tx.Model(&RunRow{}).Where("job = ? AND slot = ?", r.Job, database.Micros(r.Slot)).
					Updates(map[string]any{"owner": instance, "alive_until": database.Micros(now)}).Error
				if err != nil {
					return database.Unavailable(err)
				}
				interrupted = append(interrupted, r)
			}
		}
		return nil
	})
	return interrupted, err
}

// ConcludeRun commits the run's result together with its end as SUCCEEDED, so that the result is written once however often the
// slot is begun. It is the last step of the work. After a deadlock it calls write again. ErrNotLeased if another instance has
// taken the run over, or it has ended; then nothing was written. ErrUnavailable, ErrUnknown.
func (s *Runs) ConcludeRun(ctx context.Context, run cronjob.Run, result string,
	write func(ctx context.Context, tx Execer) error,
) error {
	return s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		end := cronjob.Outcome{Status: cronjob.Succeeded, Result: result}
		if err := s.endRun(tx, run, end, cronjob.Running); err != nil {
			return err
		}
		return database.Unavailable(write(ctx, tx.Statement.ConnPool))
	})
}

// Execer is a transaction.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
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
