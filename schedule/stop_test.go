package schedule_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/lock"
	"firsttap/schedule"
)

// An instance that stops during a run gives the run back, and another takes it over when it next reads the ledger, long before
// any lease would have expired. The attempt does not count.
func TestAnInstanceThatStopsGivesItsRunBack(t *testing.T) {
	for _, onLeader := range []bool{false, true} {
		t.Run(map[bool]string{false: "own lock", true: "leader"}[onLeader], func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *place) {
				d, locks := newDiary(t), lock.NewMemory()
				begun := make(chan string, 10)
				all := map[string]*instance{}
				for _, who := range []string{"a", "b", "c"} {
					all[who] = p.start(who, schedule.Options{Locks: locks, PollInterval: time.Second, Jobs: []schedule.Job{{
						Name: "long", When: schedule.After(once), Hold: lock.Renewed(time.Minute, time.Hour), OnLeader: onLeader,
						Work: d.keep(who, func(ctx context.Context, run cronjob.Run) (string, error) {
							begun <- who
							if len(d.of("long")) > 1 {
								return "by " + who, nil
							}
							return untilCanceled(ctx, run)
						}),
					}}})
				}
				pass(10500 * time.Millisecond)
				first := <-begun
				all[first].stop()
				pass(time.Second)
				if len(begun) == 0 {
					t.Fatal("no other instance has taken it over")
				}
				second := <-begun
				runs := p.ended("long", 1, cronjob.Succeeded)
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
		})
	}
}

// Work that does not return is abandoned. Its run is not given back, as the work may go on: another instance takes it over
// when its term is over.
func TestAnInstanceThatStopsLeavesADeafWorkBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		d := newDiary(t)
		work := hanging(deaf(t))
		job := func(who string) []schedule.Job {
			return []schedule.Job{{Name: "deaf", When: schedule.After(once), Hold: lock.Renewed(9*time.Second, time.Hour), Work: d.note(who, work)}}
		}
		a := p.start("a", schedule.Options{GracePeriod: 100 * time.Millisecond, Jobs: job("a")})
		pass(10 * time.Second)
		p.start("b", schedule.Options{PollInterval: 100 * time.Millisecond, Jobs: job("b")})
		a.stop()
		if lines := a.log.about("interrupted", "abandoned"); len(lines) != 1 {
			t.Errorf("it is said %q", lines)
		}
		left := p.runs("deaf")[0]
		pass(10 * time.Second)
		runs := p.ended("deaf", 1, cronjob.Succeeded)
		r := runs[0]
		if len(runs) != 1 || r.Attempt != 2 || left.Status != cronjob.Running || left.LeasedUntil == nil {
			t.Fatalf("left behind was %+v, and became %+v", left, runs)
		}
		if after := r.BeganAt.Sub(*left.LeasedUntil); after < 0 || after > 100*time.Millisecond {
			t.Errorf("taken over at %v, and its time was over at %v", r.BeganAt, left.LeasedUntil)
		}
	})
}

// The leader's jobs run on one instance until it stops, and then on another, which leads at once.
func TestTheLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		d, locks := newDiary(t), lock.NewMemory()
		all := map[string]*instance{}
		for _, who := range []string{"a", "b", "c"} {
			all[who] = p.start(who, schedule.Options{Locks: locks, Jobs: []schedule.Job{
				{Name: "one", When: schedule.Cron(everySecond), Hold: usual, OnLeader: true, MaxDelay: aWhile, Work: d.keep(who, done)},
				{Name: "two", When: schedule.Cron(everySecond), Hold: usual, OnLeader: true, MaxDelay: aWhile, Work: d.keep(who, done)},
			}})
		}
		pass(0)
		for seen := 0; len(all) > 0; {
			leader := electedOf(t, all)
			pass(3300 * time.Millisecond)
			works := slices.Concat(d.of("one")[seen/2:], d.of("two")[seen/2:])
			if seen += len(works); len(works) < 6 {
				t.Errorf("in three seconds there are %d works", len(works))
			}
			for _, e := range works {
				if e.who != leader {
					t.Errorf("%s runs %s of %s, and %s leads", e.who, e.run.Slot, e.run.Job, leader)
				}
			}
			if jobs, err := all[leader].Jobs(t.Context()); err != nil || jobs[0].Holder == nil || by(jobs[0].Holder.Owner) != leader {
				t.Errorf("the jobs are %+v: %v", jobs, err)
			}
			all[leader].stop()
			delete(all, leader)
			stopped := time.Now()
			pass(0)
			if h, err := locks.Show(t.Context(), "jobs"); err != nil || by(h.Owner) == leader || (h.Owner == "") != (len(all) == 0) {
				t.Errorf("after %s has stopped, the lead is %+v: %v", leader, h, err)
			}
			if took := time.Since(stopped); took != 0 {
				t.Errorf("the lead is handed over in %s", took)
			}
		}
		for _, job := range []string{"one", "two"} {
			p.mustRunOnTime(job, 9)
		}
	})
}

// electedOf is the only one that has been elected.
func electedOf(t *testing.T, all map[string]*instance) (leader string) {
	t.Helper()
	for who, i := range all {
		if len(i.log.about("this instance is elected leader")) > 0 {
			if leader != "" {
				t.Errorf("%s and %s lead", who, leader)
			}
			leader = who
		}
	}
	if leader == "" {
		t.Fatal("nobody leads")
	}
	return leader
}

// An instance stops while it waits for the database, and another waits on.
func TestStopWhileWaitingForTheDatabase(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		options := schedule.Options{Jobs: []schedule.Job{{Name: "job", When: schedule.After(once), Hold: usual, Work: done}}}
		a, b := p.create("a", options), p.create("b", options)
		a.ledger.cut(cutAtOnce)
		b.ledger.cut(cutRequests)
		a.begin()
		b.begin()
		pass(time.Minute)
		for _, i := range []*instance{a, b} {
			if len(i.log.about("jobs not registered in the database")) < 2 {
				t.Errorf("that there is no database is not said by %s", i.who)
			}
		}
		a.stop()
		if runs := p.runs("job"); len(runs) > 0 {
			t.Errorf("there are %+v", runs)
		}
		b.ledger.cut(0)
		pass(5 * time.Second)
		p.ended("job", 1, cronjob.Succeeded)
	})
}
