package schedule_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/lock"
	"firsttap/schedule"
	"firsttap/servertest"
	"firsttap/testkit"
)

// mustBeConsecutive fails the test unless the runs are of one second after the other, each begun once and SUCCEEDED.
func mustBeConsecutive(t *testing.T, runs []cronjob.Run) {
	t.Helper()
	for i, r := range runs {
		if r.Status != cronjob.Succeeded || r.Attempt != 1 || r.RequestedBy != "" {
			t.Errorf("a run is %+v", r)
		}
		if i > 0 && r.Slot.Sub(runs[i-1].Slot) != time.Second || r.Slot.Nanosecond() != 0 {
			t.Errorf("after %s comes %s", runs[i-1].Slot, r.Slot)
		}
		if early := r.Slot.Sub(*r.BeganAt); early > 100*time.Millisecond {
			t.Errorf("%s was begun %s too early", r.Slot, early)
		}
	}
}

// With every strategy, one of three instances runs the job each second, and two skip the slot.
func TestASlotRunsOnce(t *testing.T) {
	t.Parallel()
	ways := map[string]func(t *testing.T, p *place) func() schedule.Strategy{
		// Every lock has three holders.
		"memories": func(*testing.T, *place) func() schedule.Strategy {
			return func() schedule.Strategy { return lock.NewMemory() }
		},
		"redis": func(t *testing.T, _ *place) func() schedule.Strategy {
			url := servertest.StartRedis(t).URL()
			return func() schedule.Strategy { return redisLocks(t, url) }
		},
		"table": func(_ *testing.T, p *place) func() schedule.Strategy {
			return func() schedule.Strategy { return p.tableLocks() }
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, d := newPlace(t), newDiary(t)
			locks := way(t, p)
			var all []*instance
			for _, who := range []string{"a", "b", "c"} {
				all = append(all, p.start(who, schedule.Options{Locks: locks(), Jobs: []schedule.Job{
					{Name: "tick", When: schedule.Cron(everySecond), Hold: usual, MaxDelay: aWhile, Work: d.keep(who, done)},
					{Name: "led", When: schedule.Cron(everySecond), Hold: usual, MaxDelay: aWhile, OnLeader: true, Work: d.keep(who, done)},
				}}))
			}
			for _, job := range []string{"tick", "led"} {
				p.awaitRuns(job, 4, cronjob.Succeeded)
				testkit.Retry(p.t, func() error {
					for _, r := range p.runs(job) {
						if r.SkipCount == 2 {
							return nil
						}
					}
					return fmt.Errorf("no run of %s was left by two: %+v", job, p.runs(job))
				})
			}
			for _, i := range all {
				i.stop()
				if lines := i.log.about("ERROR", "not due"); len(lines) > 0 {
					t.Errorf("%s says %q", i.who, lines)
				}
			}
			for _, job := range []string{"tick", "led"} {
				runs := p.runs(job)
				mustBeConsecutive(t, runs)
				if n := len(d.of(job)); n != len(runs) {
					t.Errorf("%d works for %d runs of %s", n, len(runs), job)
				}
				skipped := 0
				for _, r := range runs {
					if skipped += r.SkipCount; r.Result != "done" {
						t.Errorf("a run is %+v", r)
					}
				}
				if most := 2*len(runs) + 1; skipped > most { // an instance may skip a slot and then run it
					t.Errorf("three left %d runs of %s to others, want %d at most", skipped, job, most)
				}
			}
		})
	}
}

// An instance that is alone skips no slot, not even one that it began a little early.
func TestSingleInstanceSkipsNoSlot(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.start("a", schedule.Options{PollInterval: 20 * time.Millisecond, Jobs: []schedule.Job{
		{Name: "tick", When: schedule.Cron(everySecond), Hold: usual, Work: done},
	}})
	p.awaitRuns("tick", 4, cronjob.Succeeded)
	a.stop()
	for _, r := range p.runs("tick") {
		if r.SkipCount != 0 {
			t.Errorf("%d left %+v", r.SkipCount, r)
		}
	}
}

// The next run begins when the delay has passed since the end of the last.
func TestAFixedDelay(t *testing.T) {
	t.Parallel()
	p, d := newPlace(t), newDiary(t)
	const delay = 400 * time.Millisecond
	for _, who := range []string{"a", "b"} {
		p.start(who, schedule.Options{PollInterval: 50 * time.Millisecond, Jobs: []schedule.Job{{
			Name: "after", When: schedule.After(delay), Hold: usual,
			Work: d.keep(who, func(ctx context.Context, _ cronjob.Run) (string, error) {
				return "", pause(ctx, 300*time.Millisecond)
			}),
		}}})
	}
	runs := p.awaitRuns("after", 4, cronjob.Succeeded)
	if first := runs[0]; !first.Slot.Equal(p.state("after").RegisteredAt) {
		t.Errorf("registered at %v, first is %+v", p.state("after").RegisteredAt, first)
	}
	for i, r := range runs[1:] {
		if between := r.BeganAt.Sub(*runs[i].EndedAt); between < delay-delay/10 || r.Attempt != 1 {
			t.Errorf("%v after %+v comes %+v", between, runs[i], r)
		}
	}
}

// pause returns nil after d, or the cause if ctx ended first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A job waits while its lock has a holder that does not run it.
func TestWhileAnotherInstanceHoldsTheLock(t *testing.T) {
	t.Parallel()
	p, d, locks := newPlace(t), newDiary(t), lock.NewMemory()
	rival := lock.New(locks, lock.Options{Instance: "rival"})
	lease, err := rival.Acquire(t.Context(), "start", lock.Fixed(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	metrics := newMetrics(t)
	p.start("a", schedule.Options{Locks: locks, Metrics: metrics, Jobs: []schedule.Job{
		{Name: "start", When: schedule.After(once), Hold: usual, Work: d.keep("a", done)},
	}})
	metrics.atLeast("firsttap_job_skips_total", "start", "held", 2)
	if n := len(d.of("start")); n > 0 {
		t.Errorf("%d works beside the lock's holder", n)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.awaitRuns("start", 1, cronjob.Succeeded)
}

// A cron expression is in the zone of the options.
func TestTheZone(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	seoul, err := time.LoadLocation("Asia/Seoul")
	if err != nil {
		t.Fatal(err)
	}
	// Each second of this hour in Seoul, and of the next. The ledger is not polled, so that only the clock wakes the job.
	hour := time.Now().In(seoul).Hour()
	i := p.start("a", schedule.Options{Zone: seoul, PollInterval: time.Hour, Jobs: []schedule.Job{
		{Name: "nightly", When: schedule.Cron("0 0 4 * * *"), Hold: usual, Work: done},
		{Name: "now", When: schedule.Cron(fmt.Sprintf("* * %d,%d * * *", hour, (hour+1)%24)), Hold: usual, Work: done},
	}})
	p.awaitRuns("now", 2, cronjob.Succeeded)
	jobs, err := i.Jobs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := jobs[0].NextAt.In(seoul)
	if jobs[0].Zone != seoul || next.Format(time.TimeOnly) != "04:00:00" || next.UTC().Hour() != 19 || time.Until(next) > 24*time.Hour {
		t.Errorf("next at %v, in %v", next, jobs[0].Zone)
	}
}

// A job runs its slots with any hold.
func TestEveryHold(t *testing.T) {
	t.Parallel()
	p, d := newPlace(t), newDiary(t)
	url := servertest.StartRedis(t).URL()
	holds := map[string]lock.Hold{
		"fixed": lock.Fixed(2 * time.Second), "renewed": usual, "expected": lock.Expected(time.Second),
		"between": lock.Between(700*time.Millisecond, 2*time.Second),
	}
	for _, who := range []string{"a", "b"} {
		var jobs []schedule.Job
		for name, hold := range holds {
			jobs = append(jobs, schedule.Job{Name: name, When: schedule.Cron(everySecond), Hold: hold, MaxDelay: aWhile, Work: d.keep(who, done)})
		}
		p.start(who, schedule.Options{Locks: redisLocks(t, url), Jobs: jobs})
	}
	for name := range holds {
		mustBeConsecutive(t, having(p.awaitRuns(name, 4, cronjob.Succeeded), cronjob.Succeeded))
	}
}
