package schedule_test

import (
	"sync/atomic"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/schedule"
)

// Slots that were missed while no instance ran are made up for, as far as a job wants to.
func TestDowntime(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		d := newDiary(t)
		const down, late = 30 * time.Second, 5 * time.Second
		job := func(who, name string, late time.Duration) schedule.Job {
			return schedule.Job{Name: name, When: schedule.Cron(everySecond), Hold: usual, MaxDelay: late, Work: d.keep(who, done)}
		}
		options := func(who string, poll time.Duration) schedule.Options {
			return schedule.Options{PollInterval: poll, Jobs: []schedule.Job{job(who, "all", aWhile), job(who, "some", late), job(who, "latest", 0)}}
		}
		a := p.start("a", options("a", 0))
		pass(3 * time.Second)
		a.stop()
		last := *p.state("all").Slot
		pass(down - time.Second/2)
		for _, who := range []string{"b", "c"} { // which read the ledger only after a run
			p.start(who, options(who, time.Hour))
		}
		pass(3 * time.Second)
		began := last.Add(down + time.Second/2) // b and c at the first slot after
		for name, late := range map[string]time.Duration{"all": down, "some": late, "latest": time.Second / 2} {
			var made []cronjob.Run
			for _, r := range p.runs(name) {
				if r.Slot.After(last) {
					made = append(made, r)
				}
			}
			if len(made) == 0 {
				t.Errorf("%s has not run since", name)
				continue
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
		if _, err := p.store.RegisterJobs(t.Context(), []string{"rare"}); err != nil {
			t.Fatal(err)
		}
		pass(60 * time.Hour)
		want := time.Now().UTC().Truncate(24 * time.Hour)
		p.start("a", schedule.Options{Jobs: []schedule.Job{{Name: "rare", When: schedule.Cron("0 0 0 * * *"), Hold: usual, Work: done}}})
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
			{Name: "minutely", When: schedule.Cron("0 * * * * *"), Hold: usual, MaxDelay: aWhile, Work: done},
			{Name: "tick", When: schedule.Cron(everySecond), Hold: usual, MaxDelay: aWhile, Work: done},
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
		d := newDiary(t)
		if _, err := p.store.RegisterJobs(t.Context(), []string{"deadly"}); err != nil {
			t.Fatal(err)
		}
		for range cronjob.MaxAttempts {
			_, err := p.store.BeginRun(t.Context(), "deadly", "dead/1", time.Minute, func(s cronjob.JobState, _ time.Time) time.Time { return s.RegisteredAt })
			if err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
		}
		i := p.start("a", schedule.Options{Jobs: []schedule.Job{{Name: "deadly", When: schedule.After(once), Hold: usual, Work: d.keep("a", done)}}})
		pass(2 * time.Second)
		p.ended("deadly", 1, cronjob.Failed)
		if n := len(d.of("deadly")); n != 0 {
			t.Errorf("%d works", n)
		}
		if _, err := i.RunNow(t.Context(), "deadly", "key_1"); err != nil {
			t.Fatal(err)
		}
		pass(0)
		p.ended("deadly", 1, cronjob.Succeeded)
	})
}

// Instances whose clocks are wrong run each slot once, and on time by the database's clock.
func TestClocksThatAreWrong(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		d := newDiary(t)
		// Only its clock wakes an instance that reads the ledger so seldom.
		const seldom = 1000 * time.Hour
		alone := func(who string, now func() time.Time) *instance {
			return p.start(who, schedule.Options{Now: now, PollInterval: seldom, Jobs: []schedule.Job{
				{Name: who, When: schedule.Cron(everySecond), Hold: usual, Work: done},
			}})
		}
		for who, off := range map[string]time.Duration{"right": 0, "ahead": 3500 * time.Millisecond, "behind": -3500 * time.Millisecond} {
			now := func() time.Time { return time.Now().Add(off) }
			p.start(who, schedule.Options{Now: now, Jobs: []schedule.Job{
				{Name: "tick", When: schedule.Cron(everySecond), Hold: usual, MaxDelay: aWhile, Work: d.keep(who, done)},
			}})
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
