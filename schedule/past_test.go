package schedule_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch/cronjob"
	"firsttap/repository"
	"firsttap/repository/repositorytest"
	"firsttap/schedule"
)

// Slots that were missed while no instance ran are made up for, as far as a job wants to.
func TestDowntime(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		const down, late = 30 * time.Second, 5 * time.Second
		options := schedule.Options{Jobs: []schedule.Job{
			{Name: "all", When: eachSecond, MaxDelay: aWhile}, {Name: "some", When: eachSecond, MaxDelay: late}, {Name: "latest", When: eachSecond},
		}}
		a := p.start("a", options)
		pass(3 * time.Second)
		a.stop()
		last := *p.state("all").Slot
		pass(down - time.Second/2)
		p.startAll(options, "b", "c")
		pass(3 * time.Second)
		began := last.Add(down - time.Second/2)
		for name, late := range map[string]time.Duration{"all": down - time.Second, "some": late, "latest": time.Second / 2} {
			made := slices.DeleteFunc(p.runs(name), func(r cronjob.Run) bool { return !r.Slot.After(last) })
			if len(made) == 0 {
				t.Fatalf("%s has not run since", name)
			}
			mustBeConsecutive(t, made)
			first, end := made[0], made[len(made)-1]
			if behind := began.Sub(first.Slot); behind > late || behind <= late-time.Second {
				t.Errorf("%s: the first slot is %s, %v before the instances came back, want nearly %v", name, first.Slot, behind, late)
			}
			if now := time.Now(); now.Sub(end.Slot) >= time.Second {
				t.Errorf("%s: the last slot is %s, and it is %s", name, end.Slot, now)
			}
		}
	})
}

// A run that kills its instances is given up although nothing else is due, and the job goes on.
func TestARunThatKillsIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		p.register("deadly")
		for range cronjob.MaxAttempts {
			p.dies("deadly")
			pass(time.Minute)
		}
		i := p.start("a", schedule.Options{Jobs: []schedule.Job{{Name: "deadly"}}})
		pass(2 * time.Second)
		p.ended("deadly", 1, cronjob.Failed)
		if n := len(p.works("deadly")); n != 0 {
			t.Errorf("%d works", n)
		}
		i.request("deadly")
		pass(0)
		p.ended("deadly", 1, cronjob.Succeeded)
	})
}

// Slots are by the database's clock, whatever that of the process shows.
func TestSlotsByTheDatabasesClock(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		ahead := 3*time.Hour + 59*time.Minute + 55*time.Second
		store := repositorytest.Open(t, p.url, repository.Options{Now: func() time.Time { return time.Now().Add(ahead) }})
		a := p.start("a", schedule.Options{Ledger: store.Runs, Jobs: []schedule.Job{
			{Name: "tick", When: eachSecond}, {Name: "nightly", When: schedule.Cron("0 0 4 * * *")},
		}})
		pass(10500 * time.Millisecond)
		p.mustRunOnTime("tick", 10)
		p.mustRunOnTime("nightly", 1)
		if age := a.metric("firsttap_job_success_age_seconds", "nightly", ""); age != 5.5 {
			t.Errorf("the nightly job has succeeded %v s ago", age)
		}
	})
}

// TestTheDatabasesClockGoesBack: a database that takes over may have a clock that is behind by an hour. Jobs go on at once, and not in an hour.
func TestTheDatabasesClockGoesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		var behind atomic.Int64
		store := repositorytest.Open(t, p.url, repository.Options{Now: func() time.Time { return time.Now().Add(-time.Duration(behind.Load())) }})
		var ticks, laters atomic.Int64
		count := func(n *atomic.Int64) func(context.Context, cronjob.Run) (string, error) {
			return func(context.Context, cronjob.Run) (string, error) { n.Add(1); return "", nil }
		}
		p.start("a", schedule.Options{Ledger: store.Runs, Jobs: []schedule.Job{
			{Name: "tick", When: eachSecond, Work: count(&ticks)}, {Name: "later", When: schedule.After(2 * time.Second), Work: count(&laters)},
		}})
		pass(10500 * time.Millisecond)
		if ticks.Load() < 9 || laters.Load() < 3 {
			t.Fatalf("%d ticks and %d others in ten seconds", ticks.Load(), laters.Load())
		}
		ticks.Store(0)
		laters.Store(0)
		behind.Store(int64(time.Hour))
		pass(20 * time.Second) // a reading of the ledger may be ten seconds old
		if ticks.Load() < 8 || laters.Load() < 2 {
			t.Errorf("%d ticks and %d others in the twenty seconds after the clock went back", ticks.Load(), laters.Load())
		}
	})
}
