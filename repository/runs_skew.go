package repository

import (
	"database/sql"
	"time"

	"gorm.io/gorm"

	"firsttap/cronjob"
)

// maxClockSkew bounds how far the clock of a database that takes over may be behind its predecessor's. A job whose times are
// ahead by less waits for them, so that it runs once for each slot.
const maxClockSkew = time.Minute

// correctFutureTimes resets the times of a locked job that are ahead by more than maxClockSkew: a clock was wrong, and the job
// would wait for these times. It deletes ended runs of slots that are that far ahead.
func (s *Store) correctFutureTimes(tx *gorm.DB, state *cronjob.JobState, now time.Time, term time.Duration) error {
	latest := now.Add(maxClockSkew)
	changes := map[string]any{}
	if state.RegisteredAt.After(latest) {
		state.RegisteredAt = now
		changes["registered_at"] = micros(now)
	}
	for column, at := range map[string]*time.Time{"ended_at": state.EndedAt, "succeeded_at": state.SucceededAt} {
		if at != nil && at.After(latest) {
			*at = now
			changes[column] = micros(now)
		}
	}
	if state.Slot != nil && state.Slot.After(latest) {
		err := tx.Exec("DELETE FROM job_runs WHERE job = ? AND slot > ? AND status NOT IN ?", state.Name, micros(latest), unfinished).Error
		if err != nil {
			return unavailable(err)
		}
		var last sql.NullInt64
		err = tx.Raw("SELECT MAX(slot) FROM job_runs WHERE job = ? AND slot <= ?", state.Name, micros(latest)).Scan(&last).Error
		if err != nil {
			return unavailable(err)
		}
		s.log.Warn("a job's last slot is ahead of the database's clock, which must have been wrong; the slot is reset and the job will run again",
			"job", state.Name, "slot", *state.Slot, "now", now)
		state.Slot, changes["slot"] = nil, nil
		if last.Valid {
			at := fromMicros(last.Int64)
			state.Slot, changes["slot"] = &at, last.Int64
		}
	}
	for i := range state.Unfinished {
		r := &state.Unfinished[i]
		if r.LeasedUntil == nil || !r.LeasedUntil.After(latest.Add(term)) {
			continue
		}
		s.log.Warn("a run's lease is ahead of the database's clock, which must have been wrong; it is cut to one term, and then the run may be taken over",
			"job", r.Job, "slot", r.Slot, "until", *r.LeasedUntil, "now", now)
		until := now.Add(term)
		r.LeasedUntil = &until
		err := tx.Model(&runRow{}).Where("job = ? AND slot = ?", r.Job, micros(r.Slot)).Update("alive_until", micros(until)).Error
		if err != nil {
			return unavailable(err)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return unavailable(tx.Model(&jobRow{}).Where("name = ?", state.Name).Updates(changes).Error)
}
