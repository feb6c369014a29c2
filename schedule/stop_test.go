package schedule_test

import (
	"testing"
	"time"

	"firsttap/dispatch/cronjob"
	"firsttap/lock"
	"firsttap/schedule"
)

// An instance that stops during a run gives the run back, and another takes it over when it next reads the ledger, long before
// any lease would have expired. The attempt does not count.
func TestAnInstanceThatStopsGivesItsRunBack(t *testing.T) {
	for name, onLeader := range map[string]bool{"own lock": false, "leader": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *place) {
				all := p.startAll(schedule.Options{Locks: p.locks, PollInterval: time.Second, Jobs: []schedule.Job{{
					Name: "long", Hold: lock.Renewed(time.Minute, time.Hour), OnLeader: onLeader, Work: firstly(p.untilCanceled),
				}}}, "a", "b", "c")
				pass(10500 * time.Millisecond)
				first := all[by(p.works("long")[0].Owner)]
				first.stop()
				pass(time.Second)
				runs, works := p.ended("long", 1, cronjob.Succeeded), p.works("long")
				if len(works) != 2 || works[1].Fence <= works[0].Fence || !works[1].Slot.Equal(works[0].Slot) || by(works[1].Owner) == first.who {
					t.Fatalf("the works are %+v", works)
				}
				if r := runs[0]; len(runs) != 1 || r.Attempt != 1 || r.Owner != works[1].Owner {
					t.Errorf("the runs are %+v", runs)
				}
				if lines := first.said("interrupted", "long"); len(lines) != 1 {
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
		options := schedule.Options{GracePeriod: 100 * time.Millisecond, PollInterval: 100 * time.Millisecond, Jobs: []schedule.Job{{
			Name: "deaf", Hold: lock.Renewed(9*time.Second, time.Hour), Work: firstly(p.deaf()),
		}}}
		a := p.start("a", options)
		pass(10 * time.Second)
		p.start("b", options)
		a.stop()
		if lines := a.said("interrupted", "abandoned"); len(lines) != 1 {
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
		all := p.startAll(schedule.Options{Locks: p.locks, Jobs: []schedule.Job{
			{Name: "one", When: eachSecond, OnLeader: true, MaxDelay: aWhile}, {Name: "two", When: eachSecond, OnLeader: true, MaxDelay: aWhile},
		}}, "a", "b", "c")
		pass(0)
		for seen := 0; len(all) > 0; seen += 3 {
			leader := electedOf(t, all)
			pass(3300 * time.Millisecond)
			for _, job := range []string{"one", "two"} {
				works := p.works(job)[seen:]
				if len(works) != 3 {
					t.Errorf("in three seconds there are %d works of %s", len(works), job)
				}
				for _, w := range works {
					if by(w.Owner) != leader {
						t.Errorf("%s runs %s of %s, and %s leads", w.Owner, w.Slot, job, leader)
					}
				}
			}
			mustBeHeldBy(t, leader, all[leader].jobs()[0].Holder, 3*time.Second)
			began := time.Now()
			all[leader].stop()
			delete(all, leader)
			pass(0)
			if h, err := p.locks.Show(t.Context(), "jobs"); err != nil || by(h.Owner) == leader || (h.Owner == "") != (len(all) == 0) {
				t.Errorf("after %s has stopped, the lead is %+v: %v", leader, h, err)
			}
			if took := time.Since(began); took != 0 {
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
		if len(i.said("this instance is elected leader")) > 0 {
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
		options := schedule.Options{Jobs: []schedule.Job{{Name: "job"}}}
		a, b := p.create("a", options), p.create("b", options)
		a.ledger.cut(cutAtOnce)
		b.ledger.cut(cutRequests)
		a.begin()
		b.begin()
		pass(time.Minute)
		for _, i := range []*instance{a, b} {
			if n := len(i.said("job ledger not read")); n != 1 {
				t.Errorf("%s says %d times that the ledger is not read", i.who, n)
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
