package schedule_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/lock"
	"firsttap/schedule"
	"firsttap/servertest"
	"firsttap/testkit"
)

// An instance that stops during a run gives the run back, and another takes it over at once, long before any lease would
// have expired. The attempt does not count.
func TestAnInstanceThatStopsGivesItsRunBack(t *testing.T) {
	t.Parallel()
	for _, onLeader := range []bool{false, true} {
		t.Run(map[bool]string{false: "own lock", true: "leader"}[onLeader], func(t *testing.T) {
			t.Parallel()
			p, d := newPlace(t), newDiary(t)
			url := servertest.StartRedis(t).URL()
			begun, told := make(chan string, 10), make(chan struct{})
			all := map[string]*instance{}
			for _, who := range []string{"a", "b", "c"} {
				all[who] = p.start(who, schedule.Options{Locks: redisLocks(t, url), Jobs: []schedule.Job{{
					Name: "long", When: schedule.After(once), Hold: lock.Renewed(time.Minute, time.Hour), OnLeader: onLeader,
					Work: d.keep(who, func(ctx context.Context, run cronjob.Run) (string, error) {
						begun <- who
						if len(d.of("long")) > 1 {
							return "by " + who, nil
						}
						<-ctx.Done()
						close(told)
						return "", errWork
					}),
				}}})
			}
			first := testkit.Await(t, "it begins", begun)
			began := time.Now()
			all[first].stop()
			testkit.Await(t, "its context ends", told)
			second := testkit.Await(t, "another instance takes it over", begun)
			t.Logf("another instance ran it %v after the first was stopped", time.Since(began).Round(time.Millisecond))
			runs := p.awaitRuns("long", 1, cronjob.Succeeded)
			if r := runs[0]; len(runs) != 1 || r.Attempt != 1 || r.Result != "by "+second || second == first {
				t.Errorf("the runs are %+v", runs)
			}
			works := d.of("long")
			if len(works) != 2 || works[1].run.Fence <= works[0].run.Fence || !works[1].run.Slot.Equal(works[0].run.Slot) {
				t.Errorf("the works are %+v", works)
			}
			if lines := all[first].log.about("interrupted", "long"); len(lines) != 1 {
				t.Errorf("it is said %q", lines)
			}
		})
	}
}

// Work that does not return is abandoned. Its run is not given back, as the work may go on: another instance takes it over
// when its term is over.
func TestAnInstanceThatStopsLeavesADeafWorkBehind(t *testing.T) {
	t.Parallel()
	p, d := newPlace(t), newDiary(t)
	begun := make(chan struct{}, 10)
	work := hanging(deaf(t))
	job := func(who string) []schedule.Job {
		return []schedule.Job{{
			Name: "deaf", When: schedule.After(once), Hold: lock.Renewed(3*time.Second, time.Hour),
			Work: d.note(who, func(ctx context.Context, run cronjob.Run) (string, error) {
				begun <- struct{}{}
				return work(ctx, run)
			}),
		}}
	}
	a := p.start("a", schedule.Options{GracePeriod: 100 * time.Millisecond, Jobs: job("a")})
	testkit.Await(t, "it begins", begun)
	p.start("b", schedule.Options{Jobs: job("b")})
	a.stop()
	if lines := a.log.about("interrupted", "abandoned"); len(lines) != 1 {
		t.Errorf("it is said %q", lines)
	}
	left := p.runs("deaf")[0]
	testkit.Await(t, "it begins again", begun)
	runs := p.awaitRuns("deaf", 1, cronjob.Succeeded)
	r := runs[0]
	if len(runs) != 1 || r.Attempt != 2 || left.Status != cronjob.Running || left.LeasedUntil == nil {
		t.Fatalf("left behind was %+v, and became %+v", left, runs)
	}
	if r.BeganAt.Before(*left.LeasedUntil) {
		t.Errorf("taken over at %v, and its time was over at %v", r.BeganAt, left.LeasedUntil)
	}
}

// The leader's jobs run on one instance until it stops, and then on another.
func TestTheLeader(t *testing.T) {
	t.Parallel()
	p, d := newPlace(t), newDiary(t)
	url := servertest.StartRedis(t).URL()
	all := map[string]*instance{}
	for _, who := range []string{"a", "b", "c"} {
		all[who] = p.start(who, schedule.Options{Locks: redisLocks(t, url), Jobs: []schedule.Job{
			{Name: "one", When: schedule.Cron(everySecond), Hold: usual, OnLeader: true, MaxDelay: aWhile, Work: d.keep(who, done)},
			{Name: "two", When: schedule.Cron(everySecond), Hold: usual, OnLeader: true, MaxDelay: aWhile, Work: d.keep(who, done)},
		}})
	}
	had := map[string]int{}
	for len(all) > 0 {
		for _, job := range []string{"one", "two"} {
			p.awaitRuns(job, had[job]+2, cronjob.Succeeded)
		}
		entries := d.of("one")
		leader := entries[len(entries)-1].who
		for _, job := range []string{"one", "two"} {
			for _, e := range d.of(job)[had[job]:] {
				if e.who != leader {
					t.Errorf("%s runs %s of %s, and %s leads", e.who, e.run.Slot, job, leader)
				}
			}
			if jobs, err := all[leader].Jobs(t.Context()); err != nil || jobs[0].Holder == nil || by(jobs[0].Holder.Owner) != leader {
				t.Errorf("the jobs are %+v: %v", jobs, err)
			}
		}
		all[leader].stop()
		resigned := time.Now()
		if h, err := redisLocks(t, url).Show(t.Context(), "jobs"); err != nil || by(h.Owner) == leader {
			t.Errorf("the lead is still %+v: %v", h, err)
		}
		for _, job := range []string{"one", "two"} {
			had[job] = len(d.of(job))
			if runs := p.runs(job); len(having(runs, cronjob.Succeeded)) != len(runs) {
				t.Errorf("the leader has left behind %+v", runs)
			}
		}
		if delete(all, leader); len(all) == 0 {
			break
		}
		testkit.Retry(t, func() error {
			for _, i := range all {
				if len(i.log.about("this instance is elected leader")) > 0 {
					return nil
				}
			}
			return errors.New("nobody leads")
		})
		t.Logf("another leads %v after the first one has stopped", time.Since(resigned).Round(time.Millisecond))
	}
	for _, job := range []string{"one", "two"} {
		mustBeConsecutive(t, p.runs(job))
	}
}

// An instance stops while it waits for the database.
func TestStopWhileWaitingForTheDatabase(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	store, proxy := p.proxied()
	proxy.Refuse(true)
	i := p.start("a", schedule.Options{Ledger: store, PollInterval: 20 * time.Millisecond, Jobs: []schedule.Job{
		{Name: "job", When: schedule.After(once), Hold: usual, Work: done},
	}})
	testkit.Retry(t, func() error {
		if len(i.log.about("jobs not registered in the database")) < 2 {
			return errors.New("that there is no database is not said")
		}
		return nil
	})
	i.stop()
	if runs := p.runs("job"); len(runs) > 0 {
		t.Errorf("there are %+v", runs)
	}
	// Another waits for the database.
	p.start("b", schedule.Options{Ledger: store, PollInterval: 20 * time.Millisecond, Jobs: []schedule.Job{
		{Name: "job", When: schedule.After(once), Hold: usual, Work: done},
	}})
	proxy.Refuse(false)
	p.awaitRuns("job", 1, cronjob.Succeeded)
}
