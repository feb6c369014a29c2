package schedule_test

import (
	"context"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/lock"
	"firsttap/schedule"
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

// mustRunOnTime fails the test unless n runs of the job are consecutive and began exactly at their times.
func (p *place) mustRunOnTime(job string, n int) {
	p.t.Helper()
	runs := p.runs(job)
	mustBeConsecutive(p.t, runs)
	if len(runs) != n {
		p.t.Errorf("%d runs of %s, want %d", len(runs), job, n)
	}
	for _, r := range runs {
		if !r.BeganAt.Equal(r.Slot) {
			p.t.Errorf("%s of %s was begun at %s", r.Slot, job, r.BeganAt)
		}
	}
}

// With every kind of locks and any hold, one of three instances runs the job each second, on time, and two skip the slot. Each knows
// from the ledger when the job last succeeded.
func TestASlotRunsOnce(t *testing.T) {
	const slots = 10
	jobs := []schedule.Job{
		{Name: "renewed"}, {Name: "led", OnLeader: true}, {Name: "fixed", Hold: lock.Fixed(2 * time.Second)},
		{Name: "expected", Hold: lock.Expected(time.Second)}, {Name: "between", Hold: lock.Between(700*time.Millisecond, 2*time.Second)},
	}
	for k := range jobs {
		jobs[k].When, jobs[k].MaxDelay = eachSecond, aWhile
	}
	for name, locks := range map[string]func(p *place) schedule.Strategy{
		"memories": func(*place) schedule.Strategy { return nil }, // every lock has three holders
		"memory":   func(p *place) schedule.Strategy { return p.locks },
		"table":    func(p *place) schedule.Strategy { return lasting{p.tableLocks()} },
	} {
		t.Run(name, func(t *testing.T) {
			jobs := jobs
			if name == "table" {
				jobs = jobs[:2] // by the table's clock, which is not the bubble's, a hold for a minimum time would not end
			}
			inBubble(t, func(t *testing.T, p *place) {
				all := p.startAll(schedule.Options{Locks: locks(p), Jobs: jobs}, "a", "b", "c")
				pass(slots*time.Second + time.Second/2)
				for who, i := range all {
					i.stop()
					if lines := append(i.said("ERROR"), i.said("not due")...); len(lines) > 0 {
						t.Errorf("%s says %q", who, lines)
					}
				}
				for _, j := range jobs {
					p.mustRunOnTime(j.Name, slots)
					if n := len(p.works(j.Name)); n != slots {
						t.Errorf("%d works for %d slots of %s", n, slots, j.Name)
					}
					if name == "memories" && j.OnLeader {
						continue // each leads
					}
					for _, r := range p.runs(j.Name) {
						if r.Result != "done" {
							t.Errorf("a run of %s is %+v", j.Name, r)
						}
					}
					mustShareSlots(t, all, j.Name, slots)
				}
			})
		})
	}
}

// lasting are locks that nobody loses in a test, however busy the machine is: the table's clock is not the bubble's.
type lasting struct{ *lock.Table }

type lastingGrant struct{ lock.Grant }

func (l lasting) Acquire(ctx context.Context, name, owner string, _ time.Duration) (lock.Grant, error) {
	g, err := l.Table.Acquire(ctx, name, owner, time.Hour)
	if g == nil {
		return nil, err
	}
	return lastingGrant{g}, err
}

func (g lastingGrant) Extend(ctx context.Context, _ time.Duration) error {
	return g.Grant.Extend(ctx, time.Hour)
}

// mustShareSlots fails the test unless each instance has run or left each slot, and knows that the last has just succeeded.
func mustShareSlots(t *testing.T, all map[string]*instance, job string, slots float64) {
	t.Helper()
	for who, i := range all {
		ran, left := i.metric("firsttap_job_runs_total", job, "SUCCEEDED"), i.skips(job, "held")
		if ran+left != slots {
			t.Errorf("%s counts that it has run %v of %v slots of %s and left %v", who, ran, slots, job, left)
		}
		if age := i.metric("firsttap_job_success_age_seconds", job, ""); age > 1.5 {
			t.Errorf("%s says that %s succeeded %v s ago", who, job, age)
		}
	}
}

// An instance that is alone skips no slot, not even one that it began a little early.
func TestSingleInstanceSkipsNoSlot(t *testing.T) {
	const early = 30 * time.Millisecond
	for name, poll := range map[string]time.Duration{"polling seldom": time.Hour, "polling often": 20 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *place) {
				a := p.create("a", schedule.Options{PollInterval: poll, Jobs: []schedule.Job{{Name: "tick", When: eachSecond}}})
				// Of a reading that took long, the clock takes the middle for the database's time: it is ahead.
				a.ledger.slow(2*early, 0)
				a.begin()
				pass(2 * early)
				a.ledger.slow(0, 0)
				pass(4 * time.Second)
				a.stop()
				runs := p.runs("tick")
				if first := runs[0]; first.Slot.Sub(*first.BeganAt) != early {
					t.Errorf("%s was begun at %s, want it %s early", first.Slot, first.BeganAt, early)
				}
				mustBeConsecutive(t, runs)
				if n := a.skips("tick", "held"); n != 0 || len(runs) != 4 {
					t.Errorf("it left %v of %d slots", n, len(runs))
				}
			})
		})
	}
}

// The next run begins when the delay has passed since the end of the last.
func TestAFixedDelay(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		const delay, took, poll = 400 * time.Millisecond, 300 * time.Millisecond, 50 * time.Millisecond
		p.startAll(schedule.Options{PollInterval: poll, Jobs: []schedule.Job{{Name: "after", When: schedule.After(delay), Work: takes(took)}}}, "a", "b")
		pass(4*(delay+took) + poll)
		runs := p.runs("after")
		if len(runs) != 5 || !runs[0].Slot.Equal(p.state("after").RegisteredAt) {
			t.Fatalf("registered at %v, the runs are %+v", p.state("after").RegisteredAt, runs)
		}
		for i, r := range runs[1:] {
			if between := r.BeganAt.Sub(*runs[i].EndedAt); between != delay || r.Attempt != 1 {
				t.Errorf("%v after %+v comes %+v", between, runs[i], r)
			}
		}
	})
}

// A job waits while its lock has a holder that does not run it.
func TestWhileAnotherInstanceHoldsTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		rival, err := p.locks.Acquire(t.Context(), "start", "rival/1", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		i := p.start("a", schedule.Options{Locks: p.locks, Jobs: []schedule.Job{{Name: "start"}}})
		pass(time.Minute)
		if n := i.skips("start", "held"); n < 2 || len(p.works("start")) > 0 {
			t.Errorf("%d works beside the lock's holder, and %v skips", len(p.works("start")), n)
		}
		if err := rival.Release(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		p.ended("start", 1, cronjob.Succeeded)
	})
}

// A cron expression is in the zone of the options.
func TestTheZone(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		seoul, err := time.LoadLocation("Asia/Seoul")
		if err != nil {
			t.Fatal(err)
		}
		// The ledger is hardly polled, so that only the clock wakes the job.
		i := p.start("a", schedule.Options{Zone: seoul, PollInterval: 1000 * time.Hour, Jobs: []schedule.Job{{Name: "nightly", When: schedule.Cron("0 0 4 * * *")}}})
		pass(48 * time.Hour)
		runs := p.runs("nightly")
		if len(runs) != 2 {
			t.Fatalf("in two days there are the runs %+v", runs)
		}
		for _, r := range runs {
			if r.BeganAt.In(seoul).Format(time.TimeOnly) != "04:00:00" || r.BeganAt.UTC().Hour() != 19 {
				t.Errorf("it ran at %v", r.BeganAt)
			}
		}
		if job := i.jobs()[0]; job.Zone != seoul || job.NextAt.Sub(runs[1].Slot) != 24*time.Hour {
			t.Errorf("next at %v, in %v", job.NextAt, job.Zone)
		}
	})
}
