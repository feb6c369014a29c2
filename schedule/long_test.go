package schedule_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch/cronjob"
	"firsttap/lock"
	"firsttap/schedule"
)

// Work that takes longer than the lock's TTL and the run's term stays the only one, as both are renewed.
func TestAWorkOutlivesItsLock(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		const takesTime = time.Minute
		hold := lock.Renewed(3*time.Second, time.Hour)
		p.startAll(schedule.Options{Locks: p.locks, Jobs: []schedule.Job{
			{Name: "long", Hold: hold, Work: takes(takesTime)}, {Name: "led", Hold: hold, OnLeader: true, Work: takes(takesTime)},
		}}, "a", "b")
		pass(takesTime + 2*time.Second)
		for _, job := range []string{"long", "led"} {
			runs := p.ended(job, 1, cronjob.Succeeded)
			if len(runs) != 1 || runs[0].Attempt != 1 || runs[0].EndedAt.Sub(*runs[0].BeganAt) != takesTime || len(p.works(job)) != 1 {
				t.Errorf("%s: %d works and the runs %+v", job, len(p.works(job)), runs)
			}
		}
	})
}

// deaf is work that ignores its context until the test ends.
func (p *place) deaf() work {
	p.overlaps = true
	end := make(chan struct{})
	p.t.Cleanup(func() { close(end) })
	return func(context.Context, cronjob.Run) (string, error) {
		<-end
		return "at last", nil
	}
}

// Work that hangs is canceled in time and FAILED, and the same instance runs the next slots.
func TestAWorkThatHangsIsCut(t *testing.T) {
	const longest, grace = 500 * time.Millisecond, 200 * time.Millisecond
	cut := lock.Renewed(3*time.Second, longest)
	for name, tt := range map[string]struct {
		hold     lock.Hold
		onLeader bool
		deaf     bool
		took     time.Duration // at least, and a tenth more at most: a lock that is not renewed ends a little early
		says     string
	}{
		"renewed":            {hold: cut, took: longest, says: "too long"},
		"on the leader":      {hold: cut, onLeader: true, took: longest, says: "too long"},
		"not renewed":        {hold: lock.Fixed(longest), took: longest - longest/10, says: "expired"},
		"fixed, leader":      {hold: lock.Fixed(longest), onLeader: true, took: longest, says: "too long"},
		"deaf":               {hold: cut, deaf: true, took: longest + grace, says: "abandoned"},
		"deaf, not renewed":  {hold: lock.Fixed(longest), deaf: true, took: longest - longest/10 + grace, says: "abandoned"},
		"deaf on the leader": {hold: cut, onLeader: true, deaf: true, took: longest + grace, says: "abandoned"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *place) {
				hangs := p.untilCanceled
				if tt.deaf {
					hangs = p.deaf()
				}
				p.start("a", schedule.Options{GracePeriod: grace, Jobs: []schedule.Job{{
					Name: "hangs", When: eachSecond, Hold: tt.hold, OnLeader: tt.onLeader, MaxDelay: aWhile, Work: firstly(hangs),
				}}})
				pass(4500 * time.Millisecond)
				runs := p.ended("hangs", 3, cronjob.Succeeded)
				first := runs[0]
				if first.Status != cronjob.Failed || first.Attempt != 1 || !strings.Contains(first.Error, tt.says) {
					t.Errorf("the first is %+v", first)
				}
				if took := first.EndedAt.Sub(*first.BeganAt); took != tt.took {
					t.Errorf("it was cut after %v, want %v", took, tt.took)
				}
				mustBeConsecutive(t, runs[1:])
				if runs[1].Slot.Sub(first.Slot) != time.Second {
					t.Errorf("after %s comes %s", first.Slot, runs[1].Slot)
				}
			})
		})
	}
}

// Work that is canceled and is slow to return stays the only one: its run is not taken over, and FAILED.
func TestACutWorkIsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		const ttl, longest, stopping = 3 * time.Second, 300 * time.Millisecond, 20 * time.Second // longer than the term of the run
		p.startAll(schedule.Options{GracePeriod: 30 * time.Second, Jobs: []schedule.Job{{
			Name: "slow", Hold: lock.Renewed(ttl, longest), Work: func(ctx context.Context, _ cronjob.Run) (string, error) {
				<-ctx.Done()
				return "", errors.Join(pause(context.WithoutCancel(ctx), stopping), errWork)
			},
		}}}, "a", "b")
		pass(time.Minute)
		runs := p.ended("slow", 1, cronjob.Failed)
		r := runs[0]
		if len(runs) != 1 || r.Attempt != 1 || len(p.works("slow")) != 1 || !strings.Contains(r.Error, "too long") || !strings.Contains(r.Error, errWork.Error()) {
			t.Errorf("%d works and the runs %+v", len(p.works("slow")), runs)
		}
		if took := r.EndedAt.Sub(*r.BeganAt); took != longest+stopping {
			t.Errorf("it took %s", took)
		}
	})
}

// After a few runs that never return, the job does not run on the instance, which is reported, until they do.
func TestStuckWorksAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		p.overlaps = true
		end := make(chan struct{})
		i := p.start("a", schedule.Options{GracePeriod: 50 * time.Millisecond, Jobs: []schedule.Job{{
			Name: "deaf", When: eachSecond, Hold: lock.Fixed(100 * time.Millisecond), MaxDelay: aWhile,
			Work: func(context.Context, cronjob.Run) (string, error) { <-end; return "", nil },
		}}})
		pass(9500 * time.Millisecond)
		if n := i.skips("deaf", "stuck"); n < 3 || len(p.works("deaf")) != 3 {
			t.Errorf("%d works don't return, and %v slots were skipped", len(p.works("deaf")), n)
		}
		b := p.state("deaf").Blocked
		if lines := i.said("ERROR", "job not run", "deaf"); len(lines) != 1 || b == nil || b.By != "a" || !strings.Contains(b.Reason, "have not returned") {
			t.Errorf("blocked: %+v; said: %q", b, lines)
		}
		close(end)
		pass(time.Second)
		p.ended("deaf", 1, cronjob.Succeeded)
		if b := p.state("deaf").Blocked; b != nil {
			t.Errorf("it has begun, and is blocked: %+v", b)
		}
	})
}

// However work fails, its run has the error, and the next slots are run.
func TestAWorkThatFails(t *testing.T) {
	fails := map[string]struct {
		work work
		says string
	}{
		"error": {func(context.Context, cronjob.Run) (string, error) { return "half", errWork }, errWork.Error()},
		"panic": {func(context.Context, cronjob.Run) (string, error) { panic("a thing that cannot be") }, "a thing that cannot be"},
		"exit":  {func(context.Context, cronjob.Run) (string, error) { runtime.Goexit(); return "", nil }, "called runtime.Goexit"},
		// An error of the work's own locks is not an error of the job's lock.
		"held":        {func(context.Context, cronjob.Run) (string, error) { return "", &lock.HeldError{Owner: "x"} }, "held by x"},
		"unavailable": {func(context.Context, cronjob.Run) (string, error) { return "", lock.ErrUnavailable }, "unavailable"},
		"undue":       {func(context.Context, cronjob.Run) (string, error) { return "", cronjob.ErrNotDue }, "not due"},
	}
	inBubble(t, func(t *testing.T, p *place) {
		var jobs []schedule.Job
		for name, f := range fails {
			jobs = append(jobs, schedule.Job{Name: name, When: eachSecond, MaxDelay: aWhile, Work: firstly(f.work)})
		}
		i := p.start("a", schedule.Options{Jobs: jobs})
		pass(3500 * time.Millisecond)
		for name, f := range fails {
			runs := p.ended(name, 2, cronjob.Succeeded)
			first := runs[0]
			if first.Status != cronjob.Failed || first.Attempt != 1 || !strings.Contains(first.Error, f.says) || (first.Result == "half") != (name == "error") {
				t.Errorf("%s: the first is %+v", name, first)
			}
			if name == "panic" && !strings.Contains(first.Error, "long_test.go") {
				t.Errorf("where it was is not said: %s", first.Error)
			}
			mustBeConsecutive(t, having(runs[1:], cronjob.Succeeded))
			if n := i.metric("firsttap_job_runs_total", name, "FAILED"); n != 1 {
				t.Errorf("%s: %v failures are counted", name, n)
			}
			if lines := i.said("job not run", "job="+name+" ", f.says); len(lines) > 0 {
				t.Errorf("%s is taken for the ledger's: %q", name, lines)
			}
			if lines := i.said("job failed", "job="+name+" ", f.says); len(lines) != 1 {
				t.Errorf("%s is said %q", name, lines)
			}
		}
	})
}

// Work gets its run and the run's lease. The run's term is the lock's TTL, unless that is very short or very long.
func TestWorkGetsItsRunAndLease(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		terms := map[time.Duration]time.Duration{
			300 * time.Millisecond: time.Second, 6 * time.Second: 6 * time.Second, time.Minute: 10 * time.Second,
		}
		var jobs []schedule.Job
		for ttl, term := range terms {
			name := ttl.String()
			jobs = append(jobs, schedule.Job{Name: name, Hold: lock.Renewed(ttl, time.Hour), Work: func(ctx context.Context, run cronjob.Run) (string, error) {
				lease, stored := lock.FromContext(ctx), p.runs(name)[0]
				if lease == nil || lease.Fence() != run.Fence || lease.Owner() != run.Owner || stored.Fence != run.Fence || stored.Owner != run.Owner ||
					!stored.Slot.Equal(run.Slot) || run.Attempt != stored.Attempt || run.Job != name || run.LeasedUntil.Sub(*run.BeganAt) != term {
					t.Errorf("%s: got %+v with %+v, stored %+v", name, run, lease, stored)
				}
				return "", nil
			}})
		}
		p.start("a", schedule.Options{Jobs: jobs})
		pass(2 * time.Second)
		for ttl := range terms {
			p.ended(ttl.String(), 1, cronjob.Succeeded)
		}
	})
}
