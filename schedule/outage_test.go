package schedule_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/lock"
	"firsttap/schedule"
)

// The lock is lost during a run, as when Redis is flushed: the work is canceled, and the slot is completed once, by one instance
// at a time.
func TestLocksAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		d, locks := newDiary(t), lock.NewMemory()
		causes := make(chan error, 1)
		for _, who := range []string{"a", "b", "c"} {
			p.start(who, schedule.Options{Locks: locks, Jobs: []schedule.Job{{
				Name: "long", When: schedule.After(once), Hold: usual,
				Work: d.keep(who, func(ctx context.Context, run cronjob.Run) (string, error) {
					if len(d.of("long")) > 1 {
						return "", nil
					}
					<-ctx.Done()
					causes <- context.Cause(ctx)
					return "", errWork
				}),
			}}})
		}
		pass(10 * time.Second)
		if _, err := locks.Break(t.Context(), "long"); err != nil {
			t.Fatal(err)
		}
		pass(usual.RenewEvery + time.Second)
		select {
		case cause := <-causes:
			if !errors.Is(cause, lock.ErrLost) {
				t.Errorf("the work's context ended with %v", cause)
			}
		default:
			t.Error("the work is not canceled")
		}
		pass(2 * usual.TTL)
		if runs := p.ended("long", 1, cronjob.Succeeded); len(runs) != 1 || len(d.of("long")) != 2 {
			t.Errorf("%d works and the runs %+v", len(d.of("long")), runs)
		}
	})
}

// Without its locks no job runs, which is reported. When they are back, each job makes up for missed slots as far as it wants to.
func TestRedisIsGone(t *testing.T) {
	for name, o := range map[string]outage{"refused": cutAtOnce, "swallowed": cutRequests, "unanswered": cutReplies} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *place) { locksAreAway(t, p, o) })
		})
	}
}

func locksAreAway(t *testing.T, p *place, o outage) {
	d, locks := newDiary(t), lock.NewMemory()
	const late, down = 1500 * time.Millisecond, 12 * time.Second
	all, count := map[string]*instance{}, map[string]metrics{}
	names := []string{"all", "some", "latest", "led"}
	for _, who := range []string{"a", "b"} {
		count[who] = newMetrics(t)
		all[who] = p.start(who, schedule.Options{Locks: locks, Metrics: count[who], Jobs: []schedule.Job{
			{Name: "all", When: schedule.Cron(everySecond), Hold: usual, MaxDelay: aWhile, Work: d.keep(who, done)},
			{Name: "some", When: schedule.Cron(everySecond), Hold: usual, MaxDelay: late, Work: d.keep(who, done)},
			{Name: "latest", When: schedule.Cron(everySecond), Hold: usual, Work: d.keep(who, done)},
			{Name: "led", When: schedule.Cron(everySecond), Hold: usual, MaxDelay: aWhile, OnLeader: true, Work: d.keep(who, done)},
		}})
	}
	cut := func(o outage) {
		for _, i := range all {
			i.locks.cut(o)
		}
	}
	pass(5500 * time.Millisecond)
	cut(o)
	pass(usual.TTL)
	before := map[string]int{}
	for _, job := range names {
		before[job] = len(d.of(job))
	}
	pass(down)
	for _, job := range names {
		if n := len(d.of(job)); n != before[job] {
			t.Errorf("%d works of %s while the holder of its lock is unknown", n-before[job], job)
		}
		for who, i := range all {
			if n, _ := count[who].of("firsttap_job_skips_total", job, "unavailable"); n < 3 {
				t.Errorf("%s counts %v times that %s does not run", who, n, job)
			}
			if len(i.log.about("ERROR", "job not run", "job="+job)) == 0 {
				t.Errorf("%s does not say that %s does not run", who, job)
			}
		}
		if p.state(job).Blocked == nil {
			t.Errorf("%s is not blocked", job)
		}
	}
	jobs, err := all["a"].Jobs(t.Context())
	if err != nil || len(jobs) != len(names) || jobs[0].LockProblem == "" || jobs[0].Holder != nil || jobs[0].Blocked == nil {
		t.Errorf("the jobs are %+v: %v", jobs, err)
	}
	cut(0)
	pass(10 * time.Second)
	for _, job := range names {
		runs := p.ended(job, before[job]+3, cronjob.Succeeded)
		if b := p.state(job).Blocked; b != nil {
			t.Errorf("%s runs, and is blocked: %+v", job, b)
		}
		gaps := 0
		for i, r := range runs[1:] {
			if r.Slot.Sub(runs[i].Slot) != time.Second {
				gaps++
			}
			if behind := r.BeganAt.Sub(r.Slot); job == "some" && behind > late || job == "latest" && behind > time.Second {
				t.Errorf("%s: %s was begun %v late", job, r.Slot, behind)
			}
		}
		if (gaps == 0) != (job == "all" || job == "led") {
			t.Errorf("%s has %d gaps: %+v", job, gaps, runs)
		}
	}
}

// Work that was overtaken is canceled, and does not change the run.
func TestOvertakenWorkIsCanceled(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		causes := make(chan error, 1)
		a := p.start("a", schedule.Options{Jobs: []schedule.Job{{
			Name: "job", When: schedule.After(once), Hold: usual,
			Work: func(ctx context.Context, _ cronjob.Run) (string, error) {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return "", nil // the work was done all the same
			},
		}}})
		pass(10 * time.Second)
		p.exec("UPDATE job_runs SET owner = 'thief/1', attempt = 2, alive_until = alive_until + 3600000000")
		pass(usual.RenewEvery)
		select {
		case cause := <-causes:
			if !errors.Is(cause, lock.ErrStolen) {
				t.Errorf("the work's context ended with %v", cause)
			}
		default:
			t.Error("the work is not canceled by the next renewal")
		}
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
		d, m := newDiary(t), newMetrics(t)
		i := p.create("a", schedule.Options{Metrics: m, Jobs: []schedule.Job{
			{Name: "job", When: schedule.Cron(everySecond), Hold: usual, MaxDelay: aWhile, Work: d.keep("a", done)},
		}})
		p.exec("CREATE TRIGGER no_runs BEFORE INSERT ON job_runs BEGIN SELECT RAISE(ABORT, 'no runs today'); END")
		i.begin()
		pass(seconds*time.Second + time.Second/2)
		if n := i.ledger.count("begin"); n < seconds || n > 2*seconds {
			t.Errorf("it was tried %d times in %d s", n, seconds)
		}
		if n, _ := m.of("firsttap_job_skips_total", "job", "unavailable"); int(n) != i.ledger.count("begin") {
			t.Errorf("%v attempts are counted of %d", n, i.ledger.count("begin"))
		}
		if b := p.state("job").Blocked; b == nil || len(i.log.about("ERROR", "no runs today")) != seconds/10 {
			t.Errorf("blocked: %+v; said: %q", b, i.log.about("ERROR"))
		}
		p.exec("DROP TRIGGER no_runs")
		pass(2 * time.Second)
		mustBeConsecutive(t, p.ended("job", seconds+2, cronjob.Succeeded))
	})
}
