package repository

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"firsttap/cronjob"
	"firsttap/dispatch"
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

func (row *jobRow) state() cronjob.State {
	s := cronjob.State{
		Name: row.Name, RegisteredAt: fromMicros(row.RegisteredAt), Slot: fromOptionalMicros(row.Slot),
		EndedAt: fromOptionalMicros(row.EndedAt), SucceededAt: fromOptionalMicros(row.SucceededAt),
	}
	if row.BlockedAt != nil {
		s.Blocked = &cronjob.Block{Since: fromMicros(*row.BlockedAt), By: row.BlockedBy, Reason: row.BlockedReason}
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
	Skipped     int
}

func (runRow) TableName() string { return "job_runs" }

func (row *runRow) run() cronjob.Run {
	return cronjob.Run{
		Job: row.Job, Slot: fromMicros(row.Slot), Status: row.Status, Attempt: row.Attempt, Owner: row.Owner, Fence: row.Fence,
		AliveUntil: fromOptionalMicros(row.AliveUntil), RequestedBy: row.RequestedBy, BeganAt: fromOptionalMicros(row.BeganAt),
		EndedAt: fromOptionalMicros(row.EndedAt), Result: row.Result, Error: row.Error, Skipped: row.Skipped,
	}
}

// RegisterJobs makes the jobs known that are not, and returns the database's time.
func (s *Store) RegisterJobs(ctx context.Context, names []string) (now time.Time, err error) {
	err = s.persist(ctx, s.writes, func(tx *gorm.DB) error {
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

// JobStates returns what is remembered of the jobs, by name, and the database's time.
func (s *Store) JobStates(ctx context.Context, names []string) (states map[string]cronjob.State, now time.Time, err error) {
	db := s.general.WithContext(ctx)
	if now, err = s.clock(db); err != nil {
		return nil, now, err
	}
	var jobs []jobRow
	if err := db.Where("name IN ?", names).Find(&jobs).Error; err != nil {
		return nil, now, unavailable(err)
	}
	var open []runRow
	if err := db.Where("job IN ? AND status IN ?", names, openRuns).Order("slot").Find(&open).Error; err != nil {
		return nil, now, unavailable(err)
	}
	states = make(map[string]cronjob.State, len(jobs))
	for i := range jobs {
		states[jobs[i].Name] = jobs[i].state()
	}
	for i := range open {
		state := states[open[i].Job]
		state.Open = append(state.Open, open[i].run())
		states[open[i].Job] = state
	}
	return states, now, nil
}

var openRuns = []cronjob.Status{cronjob.Running, cronjob.Queued}

// LastRun returns the job's latest run that has ended, nil if none has.
func (s *Store) LastRun(ctx context.Context, job string) (*cronjob.Run, error) {
	var rows []runRow
	err := s.general.WithContext(ctx).Where("job = ? AND ended_at IS NOT NULL", job).Order("slot DESC").Limit(1).Find(&rows).Error
	if err != nil || len(rows) == 0 {
		return nil, unavailable(err)
	}
	run := rows[0].run()
	return &run, nil
}

// BeginRun begins what of the job is to run now, under owner, which no other attempt has; due returns the slot that is due
// by what is remembered of the job and the database's time, the zero time for none. Unless it is heard of within term,
// the run may be taken over. One run of a job begins at a time, whichever instances ask.
//
// ErrJobNotFound, ErrRunning, ErrNothingDue; ErrUnavailable when nothing was begun; ErrUnknown: it may have been, and
// InterruptRun with that owner gives it back.
func (s *Store) BeginRun(ctx context.Context, job, owner string, term time.Duration,
	due func(state cronjob.State, now time.Time) time.Time,
) (cronjob.Run, error) {
	var run cronjob.Run
	var verdict error
	err := s.persist(ctx, s.writes, func(tx *gorm.DB) error {
		run, verdict = cronjob.Run{}, nil
		state, fence, now, err := s.lockJob(tx, job)
		if err != nil {
			return err
		}
		if err := s.takeBack(tx, &state, now, term); err != nil {
			return err
		}
		next, lost, none := state.Next(now, due(state, now))
		verdict = none
		if err := giveUp(tx, lost, now); err != nil || next.Slot.IsZero() {
			return unavailable(err) // what was given up is committed
		}
		run, err = begin(tx, next, owner, max(fence+1, micros(now)), now, term)
		if errors.Is(err, gorm.ErrDuplicatedKey) {
			// Somebody asked for a run at the very time of the slot: that was the slot's.
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

// lockJob keeps others from beginning a run of the job until tx ends.
func (s *Store) lockJob(tx *gorm.DB, job string) (cronjob.State, int64, time.Time, error) {
	var rows []jobRow
	if err := tx.Raw("SELECT * FROM jobs WHERE name = ?"+s.dialect.forUpdate, job).Scan(&rows).Error; err != nil {
		return cronjob.State{}, 0, time.Time{}, unavailable(err)
	}
	if len(rows) == 0 {
		return cronjob.State{}, 0, time.Time{}, cronjob.ErrNotFound
	}
	now, err := s.clock(tx) // now that the row is ours
	if err != nil {
		return cronjob.State{}, 0, now, err
	}
	var open []runRow
	err = tx.Raw("SELECT * FROM job_runs WHERE job = ? AND status IN ? ORDER BY slot"+s.dialect.forUpdate, job, openRuns).Scan(&open).Error
	state := rows[0].state()
	for i := range open {
		state.Open = append(state.Open, open[i].run())
	}
	return state, rows[0].Fence, now, unavailable(err)
}

func giveUp(tx *gorm.DB, lost []cronjob.Run, now time.Time) error {
	for _, r := range lost {
		err := tx.Model(&jobRow{}).Where("name = ?", r.Job).Update("ended_at", micros(now)).Error
		if err != nil {
			return err
		}
		err = tx.Model(&runRow{}).Where("job = ? AND slot = ?", r.Job, micros(r.Slot)).Updates(map[string]any{
			"status": cronjob.Failed, "alive_until": nil, "ended_at": micros(now),
			"error": fmt.Sprintf("given up: %d instances in a row died or were cut off while they were at it", r.Attempt),
		}).Error
		if err != nil {
			return err
		}
	}
	return nil
}

func begin(tx *gorm.DB, next cronjob.Run, owner string, fence int64, now time.Time, term time.Duration) (cronjob.Run, error) {
	fresh := next.Status == ""
	next.Status, next.Owner, next.Fence = cronjob.Running, owner, fence
	next.Attempt++
	alive := now.Add(term)
	next.BeganAt, next.AliveUntil = &now, &alive
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

// ExtendRun says that the run is heard of: it may be taken over no sooner than term from now. ErrNotLeased if it is
// another's by now, or has ended.
func (s *Store) ExtendRun(ctx context.Context, run cronjob.Run, term time.Duration) error {
	return ofOwner(s.writes.WithContext(ctx).Exec("UPDATE job_runs SET alive_until = "+s.dialect.now()+" + ?"+
		" WHERE job = ? AND slot = ? AND owner = ? AND status = 'RUNNING'", term.Microseconds(), run.Job, micros(run.Slot), run.Owner))
}

// ofOwner is ErrNotLeased where a statement has found nothing of the owner's.
func ofOwner(done *gorm.DB) error {
	if done.Error != nil {
		return unavailable(done.Error)
	}
	if done.RowsAffected == 0 {
		return dispatch.ErrNotLeased
	}
	return nil
}

// EndRun writes how the run ended. ErrNotLeased if it is another's by now, or has ended otherwise.
func (s *Store) EndRun(ctx context.Context, run cronjob.Run, end cronjob.End) error {
	return s.persist(ctx, s.writes, func(tx *gorm.DB) error {
		// It may have ended so already: in a transaction of its work, or before a reply that was lost.
		return s.endRun(tx, run, end, cronjob.Running, end.Status)
	})
}

// endRun ends a run that stands as it should.
func (s *Store) endRun(tx *gorm.DB, run cronjob.Run, end cronjob.End, standing ...cronjob.Status) error {
	now := s.dialect.now()
	ended := "UPDATE jobs SET ended_at = " + now
	if end.Status == cronjob.Succeeded {
		ended += ", succeeded_at = " + now
	}
	// The job's row goes first, as it does when a run begins.
	if err := tx.Exec(ended+" WHERE name = ?", run.Job).Error; err != nil {
		return unavailable(err)
	}
	return ofOwner(tx.Exec("UPDATE job_runs SET status = ?, ended_at = (SELECT ended_at FROM jobs WHERE name = job),"+
		" alive_until = NULL, result = ?, error = ?"+
		" WHERE job = ? AND slot = ? AND owner = ? AND status IN ?", end.Status, cut(end.Result, maxResult),
		cut(end.Error, maxError), run.Job, micros(run.Slot), run.Owner, standing))
}

// InterruptRun has the owner's run of the job taken over by whoever comes first. The attempt does not count among those
// that died. ErrNotLeased if there is none.
func (s *Store) InterruptRun(ctx context.Context, job, owner string) error {
	instance, _, _ := strings.Cut(owner, "/")
	return ofOwner(s.writes.WithContext(ctx).Exec("UPDATE job_runs SET alive_until = "+s.dialect.now()+", attempt = attempt - 1, owner = ?"+
		" WHERE job = ? AND owner = ? AND status = 'RUNNING'", instance, job, owner))
}

// InterruptRuns takes the runs that are under way away from their owners, and returns them: from then on the owner can't
// extend, end or conclude such a run, and the next instance takes it over at once. The attempt counts. It waits for a
// transaction that is concluding one of the runs. Names of jobs that are not registered are passed over.
func (s *Store) InterruptRuns(ctx context.Context, jobs []string) ([]cronjob.Run, error) {
	var interrupted []cronjob.Run
	err := s.persist(ctx, s.writes, func(tx *gorm.DB) error {
		interrupted = nil
		for _, job := range jobs {
			state, _, now, err := s.lockJob(tx, job)
			if err != nil && !errors.Is(err, cronjob.ErrNotFound) {
				return err
			}
			for _, r := range state.Open {
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

// Conclude writes what the run came to, and that it has SUCCEEDED, in one transaction: however often a slot is begun, that
// is committed once. It is the last thing that the work does. write is called again where the database says "again".
// ErrNotLeased if the run is another's by now or has ended, and nothing was written; ErrUnavailable, ErrUnknown.
func (s *Store) Conclude(ctx context.Context, run cronjob.Run, result string,
	write func(ctx context.Context, tx Execer) error,
) error {
	return s.persist(ctx, s.writes, func(tx *gorm.DB) error {
		end := cronjob.End{Status: cronjob.Succeeded, Result: result}
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

// cut is what a column takes of words that nobody chose.
func cut(words string, size int) string {
	runes := []rune(words) // what is no UTF-8 becomes U+FFFD
	return string(runes[:min(len(runes), size)])
}

// SkipRun counts an instance that left the slot to another. False if nobody has begun it.
func (s *Store) SkipRun(ctx context.Context, job string, slot time.Time) (bool, error) {
	done := s.writes.WithContext(ctx).Exec("UPDATE job_runs SET skipped = skipped + 1 WHERE job = ? AND slot = ?", job, micros(slot))
	return done.RowsAffected > 0, unavailable(done.Error)
}

// BlockJob writes that nobody can tell who holds the job's lock, until a run begins.
func (s *Store) BlockJob(ctx context.Context, job, by, reason string) error {
	return unavailable(s.writes.WithContext(ctx).Exec("UPDATE jobs SET blocked_at = COALESCE(blocked_at, "+s.dialect.now()+"),"+
		" blocked_by = ?, blocked_reason = ? WHERE name = ?", by, cut(reason, maxResult), job).Error)
}

// RequestRun asks for a run of the job, or returns the one that was asked for and has not begun. ErrJobNotFound.
func (s *Store) RequestRun(ctx context.Context, job, actor string) (cronjob.Run, error) {
	var run cronjob.Run
	err := s.persist(ctx, s.writes, func(tx *gorm.DB) error {
		state, _, now, err := s.lockJob(tx, job)
		if err != nil {
			return err
		}
		before, err := made(tx)
		if err != nil {
			return err
		}
		if before != nil {
			run, err = requested(tx, before)
			return err
		}
		queued := slices.IndexFunc(state.Open, func(r cronjob.Run) bool { return r.Status == cronjob.Queued })
		if queued >= 0 {
			run = state.Open[queued]
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

// Runs returns the runs of a job, the latest slot first, and the cursor of the next page, "" after the last.
func (s *Store) Runs(ctx context.Context, job string, page dispatch.Page) ([]cronjob.Run, string, error) {
	db := s.general.WithContext(ctx)
	now, err := s.clock(db)
	if err != nil {
		return nil, "", err
	}
	db = db.Where("job = ?", job)
	if page.Cursor != "" {
		slot, err := strconv.ParseInt(page.Cursor, 10, 64)
		if err != nil {
			return nil, "", dispatch.ErrBadCursor
		}
		db = db.Where("slot < ?", slot)
	}
	var rows []runRow
	if err := db.Order("slot DESC").Limit(page.Limit + 1).Find(&rows).Error; err != nil {
		return nil, "", unavailable(err)
	}
	next := ""
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		next = strconv.FormatInt(rows[page.Limit-1].Slot, 10)
	}
	runs := make([]cronjob.Run, len(rows))
	for i := range rows {
		runs[i] = rows[i].run().At(now)
	}
	return runs, next, nil
}
