package schedule_test

import (
	"fmt"
	"testing"
	"time"

	"firsttap/dispatch/cronjob"
	"firsttap/internal/testkit"
	"firsttap/lock"
	"firsttap/schedule"
)

// An instance is cut off from the ledger, from the locks, or from both, at any moment of a run, also while a request or a reply
// is under way; cut off from both it is as good as dead. Its work ends before another instance begins the run, which is when
// its term is over, and the run SUCCEEDS once.
func TestCutOffAtAnyMoment(t *testing.T) {
	step := time.Duration(testkit.Scale(120, 31)) * time.Millisecond
	for name, o := range map[string]cutOff{
		"the ledger refuses":                 {outage: cutAtOnce, ledger: true},
		"the ledger does not answer":         {outage: cutReplies, ledger: true},
		"the locks refuse":                   {outage: cutAtOnce, locks: true},
		"the locks swallow":                  {outage: cutRequests, locks: true},
		"the locks do not answer":            {outage: cutReplies, locks: true},
		"both swallow, as if it died":        {outage: cutRequests, ledger: true, locks: true},
		"the ledger alone decides, refuses":  {outage: cutAtOnce, ledger: true, apart: true},
		"the ledger alone decides, swallows": {outage: cutRequests, ledger: true, apart: true},
		"the ledger alone decides, is mute":  {outage: cutReplies, ledger: true, apart: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The runs of one bubble are at as many moments when they are cut off.
			const life, runs = 2600 * time.Millisecond, 40
			moments, again := 0, 0
			for youngest := time.Duration(0); youngest < life; youngest += runs * step {
				n := min(runs, int((life-youngest)/step)+1)
				moments += n
				bubble(t, func(t *testing.T, p *place) { again += o.at(t, p, youngest, step, n) })
			}
			if again == 0 {
				t.Error("no run was begun again: this has shown nothing")
			}
			t.Logf("cut off at %d moments; %d runs were begun again", moments, again)
		})
	}
}

type cutOff struct {
	outage        outage
	ledger, locks bool
	apart         bool // the locks have two holders
}

// at cuts an instance off when its n runs are so old, each by step older than the one before. It returns how many were begun again.
func (o cutOff) at(t *testing.T, p *place, youngest, step time.Duration, n int) (again int) {
	const ttl, took = 2 * time.Second, 2500 * time.Millisecond
	names, jobs := make([]string, n), make([]schedule.Job, n)
	for k := range names {
		names[k] = fmt.Sprintf("%s-old", youngest+time.Duration(n-1-k)*step)
		jobs[k] = schedule.Job{Name: names[k], When: yearly, Hold: lock.Renewed(ttl, time.Minute), Work: takes(took)}
	}
	a := p.start("a", schedule.Options{Locks: p.locks, Jobs: jobs})
	a.ledger.slow(3*time.Millisecond, 3*time.Millisecond)
	a.locks.slow(2*time.Millisecond, 2*time.Millisecond)
	locks := p.locks
	if o.apart {
		locks = lock.NewMemory()
	}
	p.start("b", schedule.Options{Locks: locks, Jobs: jobs})
	pass(10 * time.Millisecond)
	for k, name := range names {
		a.request(name)
		if k < n-1 {
			pass(step)
		}
	}
	pass(youngest)
	if o.ledger {
		a.ledger.cut(o.outage)
	}
	if o.locks {
		a.locks.cut(o.outage)
	}
	pass(ttl + 2*linkTimeout + time.Second + took) // the term, requests that a waits for, b's poll, and its work
	for _, name := range names {
		runs, works := p.runs(name), len(p.works(name))
		if len(runs) != 1 || runs[0].Status != cronjob.Succeeded || runs[0].Attempt > 2 || works < 1 || works > 2 {
			t.Errorf("%s: %d works and the runs %+v", name, works, runs)
		}
		if works > 1 || runs[0].Attempt > 1 {
			again++
		}
	}
	return again
}

// Whichever single request to the ledger or to the locks fails, on its way there or on its way back, and whether or not an answer
// says so: one works at a time, the run SUCCEEDS once, and no later slot is missed.
func TestAnyRequestFails(t *testing.T) {
	inEachOutage(t, func(t *testing.T, o outage) {
		for _, locksFail := range []bool{false, true} {
			tried := 0
			for nth, failed := 1, true; failed; nth += testkit.Scale(3, 1) {
				bubble(t, func(t *testing.T, p *place) { failed = fails(t, p, o, locksFail, nth) })
				if failed {
					tried++
				}
			}
			t.Logf("%d requests have failed", tried)
		}
	})
}

// fails has the nth request of an instance fail, and reports whether there was one.
func fails(t *testing.T, p *place, o outage, locksFail bool, nth int) (failed bool) {
	options := schedule.Options{Locks: p.locks, Jobs: []schedule.Job{{
		Name: "job", When: schedule.Cron("*/5 * * * * *"), Hold: lock.Renewed(3*time.Second, time.Minute), MaxDelay: aWhile,
		Work: takes(1200 * time.Millisecond),
	}}}
	a := p.create("a", options)
	n, what := 0, ""
	link := &a.ledger
	if locksFail {
		link = &a.locks
	}
	link.fails = func(kind string) outage {
		if n++; n != nth {
			return 0
		}
		failed, what = true, kind
		return o
	}
	a.begin()
	pass(5500 * time.Millisecond) // a begins the first slot
	b := p.start("b", options)
	pass(14 * time.Second)
	a.stop()
	b.stop()
	runs := p.runs("job")
	if len(runs) != 3 || len(having(runs, cronjob.Succeeded)) != 3 {
		t.Errorf("the %d-th request, %s, fails: %+v", nth, what, runs)
	}
	return failed
}
