package schedule_test

import (
	"context"
	"testing"
	"time"

	"firsttap/dispatch/cronjob"
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

// With every kind of locks and any hold, one of three instances runs the job each second, on time. Each knows from the ledger when
// the job last succeeded.
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

// mustShareSlots fails the test unless the instances count each slot once, and each knows that the last has just succeeded.
func mustShareSlots(t *testing.T, all map[string]*instance, job string, slots float64) {
	t.Helper()
	sum := 0.
	for who, i := range all {
		sum += i.metric("firsttap_job_runs_total", job, "SUCCEEDED")
		if age := i.metric("firsttap_job_success_age_seconds", job, ""); age > 1.5 {
			t.Errorf("%s says that %s succeeded %v s ago", who, job, age)
		}
	}
	if sum != slots {
		t.Errorf("%v runs of %s are counted for %v slots", sum, job, slots)
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

// A cron expression is in the zone of the options.
func TestTheZone(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		seoul, err := time.LoadLocation("Asia/Seoul")
		if err != nil {
			t.Fatal(err)
		}
		i := p.start("a", schedule.Options{Zone: seoul, PollInterval: 10 * time.Minute, Jobs: []schedule.Job{{Name: "nightly", When: schedule.Cron("0 0 4 * * *")}}})
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
