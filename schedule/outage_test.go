package schedule_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch/cronjob"
	"firsttap/lock"
	"firsttap/schedule"
)

// The lock is lost during a run, as when Redis is flushed: the work is canceled, and the slot is completed once, by one instance
// at a time.
func TestLocksAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		p.startAll(schedule.Options{Locks: p.locks, Jobs: []schedule.Job{{Name: "long", Work: firstly(p.untilCanceled)}}}, "a", "b", "c")
		pass(10 * time.Second)
		if _, err := p.locks.Break(t.Context(), "long"); err != nil {
			t.Fatal(err)
		}
		pass(usual.RenewEvery + time.Second)
		p.mustBeCanceled(lock.ErrLost)
		pass(2 * usual.TTL)
		if runs := p.ended("long", 1, cronjob.Succeeded); len(runs) != 1 || len(p.works("long")) != 2 {
			t.Errorf("%d works and the runs %+v", len(p.works("long")), runs)
		}
	})
}

// Without its locks no job runs, which is reported. When they are back, each job makes up for missed slots as far as it wants to.
func TestRedisIsGone(t *testing.T) {
	inEachOutage(t, func(t *testing.T, o outage) {
		bubble(t, func(t *testing.T, p *place) { locksAreAway(t, p, o) })
	})
}

func locksAreAway(t *testing.T, p *place, o outage) {
	const late, down = 1500 * time.Millisecond, 12 * time.Second
	jobs := []schedule.Job{
		{Name: "all", When: eachSecond, MaxDelay: aWhile},
		{Name: "some", When: eachSecond, MaxDelay: late},
		{Name: "latest", When: eachSecond},
		{Name: "led", When: eachSecond, MaxDelay: aWhile, OnLeader: true},
	}
	all := p.startAll(schedule.Options{Locks: p.locks, Jobs: jobs}, "a", "b")
	cut := func(o outage) {
		for _, i := range all {
			i.locks.cut(o)
		}
	}
	pass(5500 * time.Millisecond)
	cut(o)
	pass(usual.TTL)
	before := map[string]int{}
	for _, j := range jobs {
		before[j.Name] = len(p.works(j.Name))
	}
	pass(down)
	for _, j := range jobs {
		if n := len(p.works(j.Name)); n != before[j.Name] {
			t.Errorf("%d works of %s while the holder of its lock is unknown", n-before[j.Name], j.Name)
		}
		for who, i := range all {
			if n := i.skips(j.Name, "unavailable"); n < 3 {
				t.Errorf("%s counts %v times that %s does not run", who, n, j.Name)
			}
			if n := len(i.said("ERROR", "job not run", "job="+j.Name+" ")); n != 1 {
				t.Errorf("%s says %d times that %s does not run", who, n, j.Name)
			}
			if n := len(i.said("WARN", "lock unavailable", "name="+j.Name+" ")); n > 1 {
				t.Errorf("%s says %d times that the lock of %s is away", who, n, j.Name)
			}
		}
		if p.state(j.Name).Blocked == nil {
			t.Errorf("%s is not blocked", j.Name)
		}
	}
	for who, i := range all {
		if !i.Blocked() {
			t.Errorf("%s does not say that its jobs are blocked", who)
		}
	}
	if shown := all["a"].jobs(); shown[0].LockProblem == "" || shown[0].Holder != nil || shown[0].Blocked == nil {
		t.Errorf("the jobs are %+v", shown)
	}
	cut(0)
	pass(10 * time.Second)
	for who, i := range all {
		if i.Blocked() {
			t.Errorf("%s says that its jobs are blocked, though they run", who)
		}
	}
	for _, j := range jobs {
		runs := p.ended(j.Name, before[j.Name]+3, cronjob.Succeeded)
		if b := p.state(j.Name).Blocked; b != nil {
			t.Errorf("%s runs, and is blocked: %+v", j.Name, b)
		}
		gaps := 0
		for i, r := range runs[1:] {
			if r.Slot.Sub(runs[i].Slot) != time.Second {
				gaps++
			}
			if behind := r.BeganAt.Sub(r.Slot); j.MaxDelay == late && behind > late || j.MaxDelay == 0 && behind > time.Second {
				t.Errorf("%s: %s was begun %v late", j.Name, r.Slot, behind)
			}
		}
		if (gaps == 0) != (j.MaxDelay == aWhile) {
			t.Errorf("%s has %d gaps: %+v", j.Name, gaps, runs)
		}
	}
}

// However long the ledger is away, it is counted that the job does not run, and the log has a few lines of it.
func TestAnOutageOfTheLedgerIsFewLines(t *testing.T) {
	inEachOutage(t, func(t *testing.T, o outage) {
		bubble(t, func(t *testing.T, p *place) {
			all := p.startAll(schedule.Options{Locks: p.locks, Jobs: []schedule.Job{{Name: "job", When: eachSecond}}}, "a", "b")
			pass(5500 * time.Millisecond)
			before := map[string]int{}
			for who, i := range all {
				before[who] = len(i.said("level="))
				i.ledger.cut(o)
			}
			pass(time.Minute)
			skips := 0.0 // of both: while one waits for the ledger, the other finds the job's lock held
			for who, i := range all {
				lines := i.said("level=")[before[who]:]
				if len(lines) > 6 {
					t.Errorf("%s says in a minute:\n%s", who, strings.Join(lines, ""))
				}
				skips += i.skips("job", "unavailable")
				i.ledger.cut(0)
			}
			if skips < 10 {
				t.Errorf("it is counted %v times that the job does not run", skips)
			}
		})
	})
}

// Work that was overtaken is canceled by the next renewal, and does not change the run.
func TestOvertakenWorkIsCanceled(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		a := p.start("a", schedule.Options{Jobs: []schedule.Job{{Name: "job", Work: func(ctx context.Context, run cronjob.Run) (string, error) {
			_, _ = p.untilCanceled(ctx, run)
			return "", nil // the work was done all the same
		}}}})
		pass(10 * time.Second)
		p.exec("UPDATE job_runs SET owner = 'thief/1', attempt = 2, alive_until = alive_until + 3600000000")
		pass(usual.RenewEvery)
		p.mustBeCanceled(lock.ErrStolen)
		a.stop()
		if r := p.runs("job")[0]; r.Status != cronjob.Running || r.Owner != "thief/1" || r.Attempt != 2 {
			t.Errorf("the run is %+v", r)
		}
	})
}

// If the database refuses to begin runs, that is reported, and retried once for each slot and each reading of the ledger.
func TestDatabaseRefusesRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		const seconds = 20
		i := p.create("a", schedule.Options{Jobs: []schedule.Job{{Name: "job", When: eachSecond, MaxDelay: aWhile}}})
		p.exec("CREATE TRIGGER no_runs BEFORE INSERT ON job_runs BEGIN SELECT RAISE(ABORT, 'no runs today'); END")
		i.begin()
		pass(seconds*time.Second + time.Second/2)
		tries := i.ledger.count("begin")
		if n := i.skips("job", "unavailable"); tries < seconds || tries > 2*seconds || int(n) != tries {
			t.Errorf("it was tried %d times in %d s, and %v are counted", tries, seconds, n)
		}
		if b := p.state("job").Blocked; b == nil || len(i.said("ERROR", "no runs today")) != 1 {
			t.Errorf("blocked: %+v; said: %q", b, i.said("ERROR"))
		}
		p.exec("DROP TRIGGER no_runs")
		pass(2 * time.Second)
		mustBeConsecutive(t, p.ended("job", seconds+2, cronjob.Succeeded))
		if n := len(i.said("job runs again", "job=job ", "outage=")); n != 1 {
			t.Errorf("says %d times that the job runs again", n)
		}
	})
}

// A job whose row is gone, as after a failover to a replica that lacked it, is registered again, and runs.
func TestALostRowIsWrittenAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		p.startAll(schedule.Options{Jobs: []schedule.Job{
			{Name: "job", When: eachSecond}, {Name: "led", When: eachSecond, OnLeader: true}, {Name: "other", When: eachSecond},
		}}, "a")
		pass(3500 * time.Millisecond)
		for _, job := range []string{"job", "led"} {
			p.exec("DELETE FROM job_runs WHERE job = '" + job + "'")
			p.exec("DELETE FROM jobs WHERE name = '" + job + "'")
		}
		pass(15 * time.Second)
		for _, job := range []string{"job", "led", "other"} {
			p.ended(job, 3, cronjob.Succeeded)
		}
	})
}

// A slot that the ledger did not let begin is run when it does, also under a lock that is kept for a while after each run.
func TestALockWithoutARunIsNotKept(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		hold := lock.Between(50*time.Second, 55*time.Second)
		all := p.startAll(schedule.Options{Locks: p.locks, Jobs: []schedule.Job{{Name: "job", When: schedule.Cron("0 * * * * *"), Hold: hold}}}, "a", "b")
		pass(59 * time.Second)
		for _, i := range all {
			i.ledger.cut(cutAtOnce)
		}
		pass(3 * time.Second)
		for _, i := range all {
			i.ledger.cut(0)
		}
		pass(58*time.Second + 2*time.Minute)
		for _, r := range p.ended("job", 3, cronjob.Succeeded) {
			if late := r.BeganAt.Sub(r.Slot); late > 5*time.Second {
				t.Errorf("the run of %s began %s late", r.Slot, late)
			}
		}
	})
}
