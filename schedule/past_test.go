package schedule_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/schedule"
	"firsttap/testkit"
)

// ago moves the job's last slot into the past, and its registration further, as if no instance had run since.
func (p *place) ago(job string, d time.Duration) {
	p.t.Helper()
	p.exec("UPDATE jobs SET slot = slot - ?, registered_at = registered_at - 2 * ? WHERE name = ?", d.Microseconds(), d.Microseconds(), job)
	p.exec("DELETE FROM job_runs WHERE job = ?", job)
}

// Slots that were missed while no instance ran are made up for, as far as a job wants to.
func TestDowntime(t *testing.T) {
	t.Parallel()
	p, d := newPlace(t), newDiary(t)
	const down, late = 2 * time.Minute, 5 * time.Second // one after the other, each second one, would take that long again
	job := func(who, name string, late time.Duration) schedule.Job {
		return schedule.Job{Name: name, When: schedule.Cron(everySecond), Hold: usual, MaxDelay: late, Work: d.keep(who, done)}
	}
	jobs := func(who string) []schedule.Job {
		return []schedule.Job{job(who, "all", aWhile), job(who, "some", late), job(who, "latest", 0)}
	}
	a := p.start("a", schedule.Options{Jobs: jobs("a")})
	last := map[string]time.Time{}
	for _, j := range jobs("") {
		p.awaitRuns(j.Name, 1, cronjob.Succeeded)
	}
	a.stop()
	for _, j := range jobs("") {
		p.ago(j.Name, down)
		last[j.Name] = *p.state(j.Name).Slot
	}
	for _, who := range []string{"b", "c"} { // which read the ledger only after a run
		p.start(who, schedule.Options{PollInterval: time.Hour, Jobs: jobs(who)})
	}
	for _, j := range jobs("") {
		var runs []cronjob.Run
		testkit.Retry(p.t, func() error { // until it has caught up
			runs = having(p.runs(j.Name), cronjob.Succeeded)
			if n := len(runs); n < 3 || runs[n-1].Slot.Before(last[j.Name].Add(down)) {
				return fmt.Errorf("the runs of %s are %+v", j.Name, runs)
			}
			return nil
		})
		first := runs[0]
		behind := first.BeganAt.Sub(first.Slot)
		switch j.Name {
		case "all":
			if first.Slot.Sub(last[j.Name]) != time.Second {
				t.Errorf("after %s comes %s", last[j.Name], first.Slot)
			}
			mustBeConsecutive(t, runs)
		case "some":
			if behind >= late || behind < late-2*time.Second {
				t.Errorf("the first is %v late, want nearly %v", behind, late)
			}
		case "latest":
			if behind >= time.Second {
				t.Errorf("the first is %v late", behind)
			}
		}
	}
}

// A job without a maximum delay makes up for its latest slot until the next one.
func TestTheLatestSlotIsMadeUpFor(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	day := 24 * time.Hour
	// On two days in a row, which were two days and a day ago; and not again for most of a year.
	first, second := time.Now().UTC().Add(-2*day), time.Now().UTC().Add(-day)
	when := schedule.Cron(fmt.Sprintf("0 0 0 %d,%d %d,%d *", first.Day(), second.Day(), first.Month(), second.Month()))
	options := schedule.Options{Jobs: []schedule.Job{{Name: "rare", When: when, Hold: usual, Work: done}}}
	if _, err := p.store.RegisterJobs(t.Context(), []string{"rare"}); err != nil {
		t.Fatal(err)
	}
	p.exec("UPDATE jobs SET registered_at = 0")
	p.start("a", options)
	runs := p.awaitRuns("rare", 1, cronjob.Succeeded)
	if want := second.Truncate(day); len(runs) != 1 || !runs[0].Slot.Equal(want) {
		t.Errorf("the runs are %+v, want %v", runs, want)
	}
}

// Slots before a job's registration were not missed.
func TestTheFirstSlotIsAfterTheRegistration(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.start("a", schedule.Options{Jobs: []schedule.Job{
		{Name: "minutely", When: schedule.Cron("0 * * * * *"), Hold: usual, MaxDelay: aWhile, Work: done},
		{Name: "tick", When: schedule.Cron(everySecond), Hold: usual, MaxDelay: aWhile, Work: done},
	}})
	runs := p.awaitRuns("tick", 2, cronjob.Succeeded)
	if known := p.state("tick").RegisteredAt; !runs[0].Slot.After(known) || runs[0].Slot.Sub(known) > time.Second {
		t.Errorf("known since %v, the first is %+v", known, runs[0])
	}
	for _, r := range p.runs("minutely") {
		if !r.Slot.After(p.state("minutely").RegisteredAt) {
			t.Errorf("known since %v, and it ran for %v", p.state("minutely").RegisteredAt, r.Slot)
		}
	}
}

// A run that kills its instances is given up although nothing else is due, and the job goes on.
func TestARunThatKillsIsGivenUp(t *testing.T) {
	t.Parallel()
	p, d := newPlace(t), newDiary(t)
	if _, err := p.store.RegisterJobs(t.Context(), []string{"deadly"}); err != nil {
		t.Fatal(err)
	}
	for range cronjob.MaxAttempts {
		_, err := p.store.BeginRun(t.Context(), "deadly", "dead/1", time.Minute, func(s cronjob.JobState, _ time.Time) time.Time { return s.RegisteredAt })
		if err != nil {
			t.Fatal(err)
		}
		p.exec("UPDATE job_runs SET alive_until = 1")
	}
	i := p.start("a", schedule.Options{Jobs: []schedule.Job{{Name: "deadly", When: schedule.After(once), Hold: usual, Work: d.keep("a", done)}}})
	p.awaitRuns("deadly", 1, cronjob.Failed)
	if n := len(d.of("deadly")); n != 0 {
		t.Errorf("%d works", n)
	}
	if _, err := i.RunNow(t.Context(), "deadly", "key_1"); err != nil {
		t.Fatal(err)
	}
	p.awaitRuns("deadly", 1, cronjob.Succeeded)
}

// Instances whose clocks are wrong run each slot once, and on time by the database's clock.
func TestClocksThatAreWrong(t *testing.T) {
	t.Parallel()
	p, d := newPlace(t), newDiary(t)
	for who, off := range map[string]time.Duration{"right": 0, "ahead": 3500 * time.Millisecond, "behind": -3500 * time.Millisecond} {
		now := func() time.Time { return time.Now().Add(off) }
		p.start(who, schedule.Options{Now: now, Jobs: []schedule.Job{
			{Name: "tick", When: schedule.Cron(everySecond), Hold: usual, MaxDelay: aWhile, Work: d.keep(who, done)},
		}})
		// Only its clock wakes this one.
		p.start(who, schedule.Options{Now: now, PollInterval: time.Hour, Jobs: []schedule.Job{
			{Name: who, When: schedule.Cron(everySecond), Hold: usual, Work: done},
		}})
	}
	var jumped atomic.Int64
	p.start("jumps", schedule.Options{
		PollInterval: time.Hour, Now: func() time.Time { return time.Now().Add(time.Duration(jumped.Load())) },
		Jobs: []schedule.Job{{Name: "jumps", When: schedule.Cron(everySecond), Hold: usual, Work: done}},
	})
	before := len(p.awaitRuns("jumps", 1, cronjob.Succeeded))
	jumped.Store(int64(3500 * time.Millisecond))
	mustBeConsecutive(t, having(p.awaitRuns("tick", 5, cronjob.Succeeded), cronjob.Succeeded))
	for who, from := range map[string]int{"right": 0, "ahead": 0, "behind": 0, "jumps": before + 1} {
		best := time.Hour
		for _, r := range p.awaitRuns(who, from+4, cronjob.Succeeded)[from:] {
			late := r.BeganAt.Sub(r.Slot)
			if best = min(best, late); late < -100*time.Millisecond {
				t.Errorf("%s: %s was begun %v early", who, r.Slot, -late)
			}
		}
		if best > 300*time.Millisecond {
			t.Errorf("%s is late by %v at least", who, best)
		}
	}
}
