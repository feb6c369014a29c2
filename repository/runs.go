package repository

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"firsttap/cronjob"
)

type jobRow struct {
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

func (jobRow) TableName() string { return "jobs" }

func (row *jobRow) state() cronjob.JobState {
	s := cronjob.JobState{
		Name: row.Name, RegisteredAt: fromMicros(row.RegisteredAt), Slot: fromOptionalMicros(row.Slot),
		EndedAt: fromOptionalMicros(row.EndedAt), SucceededAt: fromOptionalMicros(row.SucceededAt),
	}
	if row.BlockedAt != nil {
		s.Blocked = &cronjob.BlockReport{Since: fromMicros(*row.BlockedAt), By: row.BlockedBy, Reason: row.BlockedReason}
	}
	return s
}

type runRow struct {
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

func (runRow) TableName() string { return "job_runs" }

func (row *runRow) run() cronjob.Run {
	return cronjob.Run{
		Job: row.Job, Slot: fromMicros(row.Slot), Status: row.Status, Attempt: row.Attempt, Owner: row.Owner, Fence: row.Fence,
		LeasedUntil: fromOptionalMicros(row.AliveUntil), RequestedBy: row.RequestedBy, BeganAt: fromOptionalMicros(row.BeganAt),
		EndedAt: fromOptionalMicros(row.EndedAt), Result: row.Result, Error: row.Error,
	}
}

// RegisterJobs writes a row for each job that has none, and returns the database's time.
func (s *Store) RegisterJobs(ctx context.Context, names []string) (now time.Time, err error) {
	err = s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		if now, err = s.clock(tx); err != nil || len(names) == 0 {
			return err
		}
		rows := make([]jobRow, len(names))
		for i, name := range names {
			rows[i] = jobRow{Name: name, RegisteredAt: micros(now)}
		}
		return unavailable(tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&rows).Error)
	})
	return now, err
}

var unfinished = []cronjob.Status{cronjob.Running, cronjob.Queued}

// BeginRun begins or takes over the run of the job that is to run now. owner must be unique to the attempt. due returns the
// slot that is due by the job's state and the database's time, the zero time for none. Another instance may take the run
// over unless RenewRun is called within term. A job has one run at a time, across all instances.
//
// Of cronjob: ErrNotFound, ErrRunning, ErrNotDue; ErrUnavailable if nothing was begun; ErrUnknown if a run may have begun, which
// InterruptRun with the same owner gives back.
func (s *Store) BeginRun(ctx context.Context, job, owner string, term time.Duration,
	due func(state cronjob.JobState, now time.Time) time.Time,
) (cronjob.Run, error) {
	var run cronjob.Run
	var verdict error
	err := s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		run, verdict = cronjob.Run{}, nil
		state, fence, now, err := s.lockJob(tx, job)
		if err != nil {
			return err
		}
		state.ForgetFuture(now)
		next, lost, none := state.Next(now, due(state, now))
		verdict = none
		if err := failAbandoned(tx, lost, now); err != nil || next.Slot.IsZero() {
			return unavailable(err) // the abandoned runs are committed as failed
		}
		run, err = startAttempt(tx, next, owner, max(fence+1, micros(now)), now, term)
		if errors.Is(err, gorm.ErrDuplicatedKey) {
			// A run was requested at the very time of the slot, and counts as the slot's.
			verdict = cronjob.ErrNotDue
			return unavailable(tx.Model(&jobRow{}).Where("name = ?", job).Update("slot", micros(next.Slot)).Error)
		}
		return unavailable(err)
	})
	if err == nil {
		err = verdict
	}
	return run, err
}

// lockJob locks the job until tx ends, and returns its state, its last fence and the database's time. ErrNotFound.
func (s *Store) lockJob(tx *gorm.DB, job string) (cronjob.JobState, int64, time.Time, error) {
	var rows []jobRow
	if err := tx.Raw("SELECT * FROM jobs WHERE name = ? {for_update}", job).Scan(&rows).Error; err != nil {
		return cronjob.JobState{}, 0, time.Time{}, unavailable(err)
	}
	if len(rows) == 0 {
		return cronjob.JobState{}, 0, time.Time{}, cronjob.ErrNotFound
	}
	now, err := s.clock(tx) // after the wait for the row's lock
	if err != nil {
		return cronjob.JobState{}, 0, now, err
	}
	var open []runRow
	err = tx.Raw("SELECT * FROM job_runs WHERE job = ? AND status IN ? ORDER BY slot {for_update}", job, unfinished).Scan(&open).Error
	state := rows[0].state()
	for i := range open {
		state.Unfinished = append(state.Unfinished, open[i].run())
	}
	return state, rows[0].Fence, now, unavailable(err)
}

func failAbandoned(tx *gorm.DB, lost []cronjob.Run, now time.Time) error {
	for _, r := range lost {
		err := tx.Model(&jobRow{}).Where("name = ?", r.Job).Update("ended_at", micros(now)).Error
		if err != nil {
			return err
		}
		err = tx.Model(&runRow{}).Where("job = ? AND slot = ?", r.Job, micros(r.Slot)).Updates(map[string]any{
			"status": cronjob.Failed, "alive_until": nil, "ended_at": micros(now),
			"error": fmt.Sprintf("abandoned after %d attempts: each instance died or lost its lease during the run", r.Attempt),
		}).Error
		if err != nil {
			return err
		}
	}
	return nil
}

func startAttempt(tx *gorm.DB, next cronjob.Run, owner string, fence int64, now time.Time, term time.Duration) (cronjob.Run, error) {
	fresh := next.Status == ""
	next.Status, next.Owner, next.Fence = cronjob.Running, owner, fence
	next.Attempt++
	alive := now.Add(term)
	next.BeganAt, next.LeasedUntil = &now, &alive
	job := map[string]any{"fence": fence, "blocked_at": nil}
	var err error
	if fresh {
		job["slot"] = micros(next.Slot)
		row := runRow{
			Job: next.Job, Slot: micros(next.Slot), Status: next.Status, Attempt: next.Attempt, Owner: owner, Fence: fence,
			BeganAt: optionalMicros(&now), AliveUntil: optionalMicros(&alive),
		}
		err = tx.Create(&row).Error
	} else {
		err = tx.Model(&runRow{}).Where("job = ? AND slot = ?", next.Job, micros(next.Slot)).Updates(map[string]any{
			"status": next.Status, "attempt": next.Attempt, "owner": owner, "fence": fence,
			"began_at": micros(now), "alive_until": micros(alive),
		}).Error
	}
	if err != nil {
		return cronjob.Run{}, err
	}
	return next, tx.Model(&jobRow{}).Where("name = ?", next.Job).Updates(job).Error
}

// RenewRun renews the run's lease: no instance takes it over before term from now. ErrNotLeased if another instance has taken
// it over, or it has ended.
func (s *Store) RenewRun(ctx context.Context, run cronjob.Run, term time.Duration) error {
	return requireOwned(s.decide.WithContext(ctx).Exec("UPDATE job_runs SET alive_until = {now} + ?"+
		" WHERE job = ? AND slot = ? AND owner = ? AND status = 'RUNNING'", term.Microseconds(), run.Job, micros(run.Slot), run.Owner))
}

// EndRun writes how the run ended. ErrNotLeased if another instance has taken it over, or it has ended with another status.
func (s *Store) EndRun(ctx context.Context, run cronjob.Run, end cronjob.Outcome) error {
	return s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		// It may have ended with this status before: by ConcludeRun, or in a COMMIT whose reply was lost.
		return s.endRun(tx, run, end, cronjob.Running, end.Status)
	})
}

// endRun ends a run that has one of the standing statuses.
func (s *Store) endRun(tx *gorm.DB, run cronjob.Run, end cronjob.Outcome, standing ...cronjob.Status) error {
	ended := "UPDATE jobs SET ended_at = {now}"
	if end.Status == cronjob.Succeeded {
		ended += ", succeeded_at = {now}"
	}
	// The job's row is locked first, as in BeginRun.
	if err := tx.Exec(ended+" WHERE name = ?", run.Job).Error; err != nil {
		return unavailable(err)
	}
	return requireOwned(tx.Exec("UPDATE job_runs SET status = ?, ended_at = (SELECT ended_at FROM jobs WHERE name = job),"+
		" alive_until = NULL, result = ?, error = ?"+
		" WHERE job = ? AND slot = ? AND owner = ? AND status IN ?", end.Status, truncate(end.Result, maxResult),
		truncate(end.Error, maxError), run.Job, micros(run.Slot), run.Owner, standing))
}

// InterruptRun ends the lease of the owner's run of the job, so that any instance may take it over at once. The attempt does not
// count as one that died. ErrNotLeased if the owner has no run.
func (s *Store) InterruptRun(ctx context.Context, job, owner string) error {
	instance, _, _ := strings.Cut(owner, "/")
	return requireOwned(s.decide.WithContext(ctx).Exec("UPDATE job_runs SET alive_until = {now}, attempt = attempt - 1, owner = ?"+
		" WHERE job = ? AND owner = ? AND status = 'RUNNING'", instance, job, owner))
}

// InterruptRuns takes the runs that are under way away from their owners, and returns them: from then on the owner can't
// extend, end or conclude such a run, and the next instance takes it over at once. The attempt counts. It waits for a
// transaction that is concluding one of the runs. Names of jobs that are not registered are passed over.
func (s *Store) InterruptRuns(ctx context.Context, jobs []string) ([]cronjob.Run, error) {
	var interrupted []cronjob.Run
	err := s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
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
				err := tx.Model(&runRow{}).Where("job = ? AND slot = ?", r.Job, micros(r.Slot)).
					Updates(map[string]any{"owner": instance, "alive_until": micros(now)}).Error
				if err != nil {
					return unavailable(err)
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
func (s *Store) ConcludeRun(ctx context.Context, run cronjob.Run, result string,
	write func(ctx context.Context, tx Execer) error,
) error {
	return s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		end := cronjob.Outcome{Status: cronjob.Succeeded, Result: result}
		if err := s.endRun(tx, run, end, cronjob.Running); err != nil {
			return err
		}
		return unavailable(write(ctx, tx.Statement.ConnPool))
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

// truncate cuts a text of any origin to the size of its column.
func truncate(words string, size int) string {
	runes := []rune(words) // invalid UTF-8 becomes U+FFFD
	return string(runes[:min(len(runes), size)])
}

// BlockJob stores the reason why an instance does not run the job. The next run that begins clears it.
func (s *Store) BlockJob(ctx context.Context, job, by, reason string) error {
	return unavailable(s.decide.WithContext(ctx).Exec("UPDATE jobs SET blocked_at = COALESCE(blocked_at, {now}),"+
		" blocked_by = ?, blocked_reason = ? WHERE name = ?", by, truncate(reason, maxResult), job).Error)
}
