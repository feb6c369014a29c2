package schedule_test

import (
	"math"
	"testing"
	"time"

	"firsttap/dispatch/cronjob"
	"firsttap/internal/testkit"
	"firsttap/lock"
	"firsttap/schedule"
)

// An instance that has a job off begins no slot of it, while another that has it on does. It runs what is requested, and what an instance that
// died has left.
func TestJobThatIsOff(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		job := schedule.Job{Name: "job", When: schedule.Every(5 * time.Second), Hold: lock.Between(2*time.Second, 4*time.Second)}
		job.Off = true
		off := p.start("off", schedule.Options{Locks: p.locks, Jobs: []schedule.Job{job}})
		pass(21500 * time.Millisecond)
		testkit.Equal(t, "runs of the job that is off", 0, len(p.runs("job")))
		asked := off.request("job")
		pass(time.Second)
		if runs := p.ended("job", 1, cronjob.Succeeded); len(runs) != 1 || !runs[0].Slot.Equal(asked.Slot) || by(runs[0].Owner) != "off" {
			t.Errorf("asked for %+v, and there are %+v", asked, runs)
		}
		p.dies("job")
		pass(62 * time.Second)
		testkit.Equal(t, "runs with the one that an instance has left", 2, len(p.ended("job", 2, cronjob.Succeeded)))
		for _, name := range []string{"firsttap_job_success_age_seconds", "firsttap_job_period_seconds"} {
			if v := off.metric(name, "job", ""); !math.IsNaN(v) {
				t.Errorf("%s of a job that is off is %v, and an alert would wait for its next run", name, v)
			}
		}
		if err := p.store.Runs.BlockJob(t.Context(), "job", "other", "no answer"); err != nil {
			t.Fatal(err)
		}
		shown := off.jobs()[0]
		if shown.NextAt != nil || shown.Blocked != nil {
			t.Errorf("it is off, and is shown as %+v", shown)
		}
		testkit.Equal(t, "the job is off, its lock's lease, and for how long it is held", []any{true, time.Duration(0), 4 * time.Second, 2 * time.Second},
			[]any{shown.Off, shown.Lease, shown.AtMost, shown.AtLeast})

		job.Off = false
		on := p.start("on", schedule.Options{Locks: p.locks, Jobs: []schedule.Job{job}})
		pass(15 * time.Second)
		runs := p.ended("job", 5, cronjob.Succeeded)
		for _, r := range runs[2:] {
			if by(r.Owner) != "on" || r.Slot.Truncate(5*time.Second) != r.Slot {
				t.Errorf("beside an instance that has it off: %+v", r)
			}
		}
		if shown := on.jobs()[0]; shown.Off || shown.NextAt == nil {
			t.Errorf("it is on, and is shown as %+v", shown)
		}
	})
}

// The lead is kept for the LeaderLease, which the leader's jobs show.
func TestLeaderLease(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		i := p.start("a", schedule.Options{Locks: p.locks, LeaderLease: time.Minute, Jobs: []schedule.Job{{Name: "led", When: eachSecond, OnLeader: true}}})
		pass(5 * time.Second)
		led := i.jobs()[0]
		if led.Lease != time.Minute || led.Holder == nil || led.Holder.Remaining <= 30*time.Second {
			t.Errorf("%+v, held by %+v", led, led.Holder)
		}
	})
}
