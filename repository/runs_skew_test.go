package repository

import (
	"errors"
	"testing"
	"time"

	"firsttap/cronjob"
)

// A clock that was a day ahead leaves times in the future. The job goes on all the same.
func TestJobOfAClockThatWasAhead(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.known(t, report)
		now := db.now(t)
		db.mustEnd(t, db.mustBegin(t, "ins_a", now.Add(-time.Hour)), cronjob.Succeeded)
		run := db.mustBegin(t, "ins_a", now.Add(-30*time.Minute))
		db.mustEnd(t, run, cronjob.Succeeded)
		tomorrow := micros(now.Add(24 * time.Hour))
		db.exec(t, "UPDATE job_runs SET slot = ? WHERE slot = ?", tomorrow, micros(run.Slot))
		db.exec(t, "UPDATE jobs SET slot = ?, ended_at = ?, succeeded_at = ?, registered_at = ?", tomorrow, tomorrow, tomorrow, tomorrow)

		slot := now.Add(-10 * time.Minute).Truncate(time.Microsecond)
		got, err := db.begin(t, "ins_b", slot)
		if err != nil || !got.Slot.Equal(slot) {
			t.Fatalf("%+v, %v", got, err)
		}
		db.mustCount(t, 0, "jobs WHERE registered_at > ? OR ended_at > ? OR succeeded_at > ? OR slot <> ?",
			tomorrow-1, tomorrow-1, tomorrow-1, micros(slot))
		db.mustCount(t, 0, "job_runs WHERE slot = ?", tomorrow)
		// A run from that time, whose instance is gone, may be taken over after its term, and not only tomorrow.
		db.exec(t, "UPDATE job_runs SET alive_until = ? WHERE status = 'RUNNING'", tomorrow)
		var running *cronjob.RunningError
		if _, err := db.begin(t, "ins_c", now); !errors.As(err, &running) || running.Remaining > term {
			t.Errorf("got %v, want it to be running for %s at most", err, term)
		}
		db.mustEnd(t, got, cronjob.Succeeded)
		// A little ahead is waited for.
		soon := micros(db.now(t).Add(maxClockSkew / 2))
		db.exec(t, "UPDATE jobs SET slot = ?", soon)
		if _, err := db.begin(t, "ins_d", now); !errors.Is(err, cronjob.ErrNotDue) {
			t.Errorf("got %v, want %v", err, cronjob.ErrNotDue)
		}
		db.mustCount(t, 1, "jobs WHERE slot = ?", soon)
	})
}
