package schedule_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/cronjob"
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
		options.PollInterval = time.Hour // they read the ledger only at first and after a run
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

// A job without a maximum delay makes up for its latest slot until the next one.
func TestTheLatestSlotIsMadeUpFor(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		p.register("rare")
		pass(60 * time.Hour)
		want := time.Now().UTC().Truncate(24 * time.Hour)
		p.start("a", schedule.Options{Jobs: []schedule.Job{{Name: "rare", When: schedule.Cron("0 0 0 * * *")}}})
		pass(time.Minute)
		if runs := p.ended("rare", 1, cronjob.Succeeded); len(runs) != 1 || !runs[0].Slot.Equal(want) {
			t.Errorf("the runs are %+v, want %v", runs, want)
		}
	})
}

// Slots before a job's registration were not missed.
func TestTheFirstSlotIsAfterTheRegistration(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		pass(100*time.Second + time.Second/2)
		registered := time.Now().UTC()
		p.start("a", schedule.Options{Jobs: []schedule.Job{
			{Name: "minutely", When: schedule.Cron("0 * * * * *"), MaxDelay: aWhile}, {Name: "tick", When: eachSecond, MaxDelay: aWhile},
		}})
		pass(20 * time.Second)
		p.mustRunOnTime("tick", 20)
		for job, want := range map[string]time.Duration{"tick": time.Second / 2, "minutely": 19*time.Second + time.Second/2} {
			if first := p.runs(job)[0].Slot; first.Sub(registered) != want {
				t.Errorf("%s was registered at %v, and its first slot is %v", job, registered, first)
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

// Instances whose clocks are wrong run each slot once, and on time by the database's clock.
func TestClocksThatAreWrong(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		// Only its clock wakes an instance that reads the ledger so seldom.
		const seldom = 1000 * time.Hour
		alone := func(who string, now func() time.Time) {
			p.start(who, schedule.Options{Now: now, PollInterval: seldom, Jobs: []schedule.Job{{Name: who, When: eachSecond}}})
		}
		for who, off := range map[string]time.Duration{"right": 0, "ahead": 3500 * time.Millisecond, "behind": -3500 * time.Millisecond} {
			now := func() time.Time { return time.Now().Add(off) }
			p.start(who, schedule.Options{Now: now, Jobs: []schedule.Job{{Name: "tick", When: eachSecond, MaxDelay: aWhile}}})
			alone(who, now)
		}
		var jumped atomic.Int64
		alone("jumps", func() time.Time { return time.Now().Add(time.Duration(jumped.Load())) })
		pass(5500 * time.Millisecond)
		jumped.Store(int64(3500 * time.Millisecond))
		pass(10 * time.Second)
		for _, job := range []string{"tick", "right", "ahead", "behind"} {
			p.mustRunOnTime(job, 15)
		}
		// The first run after the jump is late, and the ledger's clock is read then.
		runs := p.runs("jumps")
		for _, r := range runs[len(runs)-8:] {
			if !r.BeganAt.Equal(r.Slot) {
				t.Errorf("after its clock has jumped, %s was begun at %s", r.Slot, r.BeganAt)
			}
		}
	})
}
