package schedule_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch/cronjob"
	"firsttap/internal/testkit"
	"firsttap/lock"
	"firsttap/schedule"
)

// demand is what a job's Demand answers.
type demand struct {
	at     atomic.Int64 // the time from which on there is work, in microseconds; 0 for none
	failed atomic.Bool
}

func (d *demand) from(t time.Time) { d.at.Store(t.UnixMicro()) }

func (d *demand) ask(context.Context) (time.Time, error) {
	switch at := d.at.Load(); {
	case d.failed.Load():
		return time.Time{}, errWork
	case at != 0:
		return time.UnixMicro(at), nil
	}
	return time.Time{}, nil
}

// withDemand are instances with a job for each second, which has no work at first.
func withDemand(t *testing.T, test func(p *place, d *demand, all map[string]*instance)) {
	t.Helper()
	inBubble(t, func(_ *testing.T, p *place) {
		d := &demand{}
		all := p.startAll(schedule.Options{Locks: p.locks, PollInterval: 100 * time.Millisecond, Jobs: []schedule.Job{
			{Name: "job", When: eachSecond, Demand: d.ask, MaxIdle: 5 * time.Second},
		}}, "a", "b")
		pass(11500 * time.Millisecond) // the first slot runs, as the demand is not known yet, and then one in five seconds
		test(p, d, all)
	})
}

// slots are the times of the job's runs, in seconds since the bubble began.
func (p *place) slots(job string) (all []int) {
	p.t.Helper()
	for _, r := range p.ended(job, 1, cronjob.Succeeded) {
		all = append(all, int(r.Slot.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))/time.Second))
	}
	return all
}

// Without work, a job runs once in MaxIdle, and costs no lock at the other slots. It is not taken for one that fails.
func TestSlotsWithoutWork(t *testing.T) {
	withDemand(t, func(p *place, _ *demand, all map[string]*instance) {
		testkit.Equal(p.t, "the slots that ran", []int{1, 6, 11}, p.slots("job"))
		for who, i := range all {
			if n := i.locks.count("acquire"); n > 2*3 { // by the slot's timer, and by a reading of the ledger at that moment
				t.Errorf("%s asked %d times for the lock", who, n)
			}
			if age := i.metric("firsttap_job_success_age_seconds", "job", ""); age > 1.5 {
				t.Errorf("%s says that the job succeeded %v s ago", who, age)
			}
			if ran, skipped := i.metric("firsttap_job_runs_total", "job", "SUCCEEDED"), i.skips("job", "held"); ran+skipped > 3 {
				t.Errorf("%s ran %v slots and skipped %v", who, ran, skipped)
			}
		}
	})
}

// The first slot at which there is work runs, once on all instances, and so does each slot until the work is done.
func TestSlotsWithWork(t *testing.T) {
	withDemand(t, func(p *place, d *demand, _ map[string]*instance) {
		d.from(time.Now().Add(3 * time.Second)) // 14.5 s
		pass(5 * time.Second)
		d.at.Store(0)
		pass(3 * time.Second)
		testkit.Equal(p.t, "the slots that ran", []int{1, 6, 11, 15, 16}, p.slots("job"))
	})
}

// When there is work and another process holds the job's lock, the slot runs later, when the lock is free. Until then, each instance counts
// the slot as skipped.
func TestMissedSlotWithWork(t *testing.T) {
	withDemand(t, func(p *place, d *demand, all map[string]*instance) {
		skipped := map[string]float64{}
		for who, i := range all {
			skipped[who] = i.skips("job", "held")
		}
		other := lock.New(p.locks, lock.Options{})
		defer other.Close()
		held, err := other.Acquire(p.t.Context(), "job", usual)
		if err != nil {
			t.Fatal(err)
		}
		d.from(time.Now())
		pass(2 * time.Second) // 13.5 s
		testkit.Equal(t, "the slots that ran while the lock was held", []int{1, 6, 11}, p.slots("job"))
		for who, i := range all {
			if i.skips("job", "held") == skipped[who] {
				t.Errorf("%s does not count that it has skipped a slot", who)
			}
		}
		if err := held.Release(p.t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(200 * time.Millisecond)
		testkit.Equal(t, "the slots that ran", []int{1, 6, 11, 13}, p.slots("job"))
	})
}

// While the question whether there is work fails, each slot is run.
func TestUnknownDemand(t *testing.T) {
	withDemand(t, func(p *place, d *demand, _ map[string]*instance) {
		d.failed.Store(true)
		pass(3 * time.Second)
		testkit.Equal(p.t, "the slots that ran", []int{1, 6, 11, 12, 13, 14}, p.slots("job"))
	})
}

// A requested run begins although there is no work, and a run whose instance has died is taken over.
func TestRequestedRunWithoutWork(t *testing.T) {
	withDemand(t, func(p *place, _ *demand, all map[string]*instance) {
		all["a"].request("job")
		pass(time.Second)
		if n := len(p.works("job")); n != 4 {
			t.Errorf("%d works", n)
		}
		p.exec("UPDATE job_runs SET status = 'RUNNING', owner = 'dead/1', alive_until = 1 WHERE slot = (SELECT MAX(slot) FROM job_runs)")
		pass(2 * time.Second)
		if runs := p.runs("job"); len(p.works("job")) != 5 || runs[len(runs)-1].Status != cronjob.Succeeded {
			t.Errorf("the runs are %+v", runs)
		}
	})
}

// A job whose runs fail is not reported as one that succeeds because its slots without work are passed over.
func TestFailingJobWithoutWork(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		i := p.start("a", schedule.Options{PollInterval: 100 * time.Millisecond, Jobs: []schedule.Job{{
			Name: "job", When: eachSecond, Demand: (&demand{}).ask, MaxIdle: 10 * time.Second,
			Work: firstly(func(context.Context, cronjob.Run) (string, error) { return "", errWork }),
		}}})
		pass(10500 * time.Millisecond)
		if age := i.metric("firsttap_job_success_age_seconds", "job", ""); age < 10 {
			t.Errorf("it says that the job succeeded %v s ago", age)
		}
		pass(5 * time.Second)
		if age := i.metric("firsttap_job_success_age_seconds", "job", ""); age > 1.5 {
			t.Errorf("it says that the job succeeded %v s ago", age)
		}
	})
}

// While polls fail, because a table that the ledger does not need is locked, runs begin all the same.
func TestJobsWithoutPolls(t *testing.T) {
	withDemand(t, func(p *place, d *demand, all map[string]*instance) {
		for _, i := range all {
			i.ledger.mu.Lock()
			i.ledger.fails = func(what string) outage {
				if what == "poll" {
					return cutAtOnce
				}
				return 0
			}
			i.ledger.mu.Unlock()
		}
		pass(3 * time.Second)
		testkit.Equal(t, "the slots that ran", []int{1, 6, 11, 12, 13, 14}, p.slots("job"))
		requested, err := p.store.Runs.RequestRun(p.t.Context(), "job", "key_1")
		if err != nil {
			t.Fatal(err)
		}
		pass(200 * time.Millisecond)
		if runs := p.runs("job"); !runs[len(runs)-1].Slot.Equal(requested.Slot) || runs[len(runs)-1].Status != cronjob.Succeeded {
			t.Errorf("the runs are %+v", runs)
		}
	})
}
