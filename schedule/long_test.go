package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/lock"
	"firsttap/schedule"
	"firsttap/testkit"
)

// Work that takes longer than the lock's TTL and the run's term stays the only one, as both are renewed.
func TestAWorkOutlivesItsLock(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		d, locks := newDiary(t), lock.NewMemory()
		const ttl, takes = 3 * time.Second, time.Minute
		for _, who := range []string{"a", "b"} {
			work := d.keep(who, func(ctx context.Context, _ cronjob.Run) (string, error) { return "", pause(ctx, takes) })
			p.start(who, schedule.Options{Locks: locks, Jobs: []schedule.Job{
				{Name: "long", When: schedule.After(once), Hold: lock.Renewed(ttl, time.Hour), Work: work},
				{Name: "led", When: schedule.After(once), Hold: lock.Renewed(ttl, time.Hour), OnLeader: true, Work: work},
			}})
		}
		pass(takes + 2*time.Second)
		for _, job := range []string{"long", "led"} {
			runs := p.ended(job, 1, cronjob.Succeeded)
			if len(runs) != 1 || runs[0].Attempt != 1 || runs[0].EndedAt.Sub(*runs[0].BeganAt) != takes || len(d.of(job)) != 1 {
				t.Errorf("%s: %d works and the runs %+v", job, len(d.of(job)), runs)
			}
		}
	})
}

// hanging is work whose first run calls hangs and whose other runs are done at once.
func hanging(hangs JobStore) JobStore {
	var hung atomic.Bool
	return func(ctx context.Context, run cronjob.Run) (string, error) {
		if hung.CompareAndSwap(false, true) {
			return hangs(ctx, run)
		}
		return done(ctx, run)
	}
}

// deaf is work that ignores its context until the test ends.
func deaf(t *testing.T) JobStore {
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
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
				hangs := untilCanceled
				if tt.deaf {
					hangs = deaf(t)
				}
				p.start("a", schedule.Options{GracePeriod: grace, Jobs: []schedule.Job{{
					Name: "hangs", When: schedule.Cron(everySecond), Hold: tt.hold, OnLeader: tt.onLeader, MaxDelay: aWhile, Work: hanging(hangs),
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
		d := newDiary(t)
		const ttl, longest, stopping = 3 * time.Second, 300 * time.Millisecond, 20 * time.Second // longer than the term of the run
		for _, who := range []string{"a", "b"} {
			p.start(who, schedule.Options{GracePeriod: 30 * time.Second, Jobs: []schedule.Job{{
				Name: "slow", When: schedule.After(once), Hold: lock.Renewed(ttl, longest),
				Work: d.keep(who, func(ctx context.Context, _ cronjob.Run) (string, error) {
					<-ctx.Done()
					return "", errors.Join(pause(context.WithoutCancel(ctx), stopping), errWork)
				}),
			}}})
		}
		pass(time.Minute)
		runs := p.ended("slow", 1, cronjob.Failed)
		r := runs[0]
		if len(runs) != 1 || r.Attempt != 1 || len(d.of("slow")) != 1 || !strings.Contains(r.Error, "too long") || !strings.Contains(r.Error, errWork.Error()) {
			t.Errorf("%d works and the runs %+v", len(d.of("slow")), runs)
		}
		if took := r.EndedAt.Sub(*r.BeganAt); took != longest+stopping {
			t.Errorf("it took %s", took)
		}
	})
}

// After a few runs that never return, the job does not run on the instance, which is reported, until they do.
func TestStuckWorksAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		d, m := newDiary(t), newMetrics(t)
		end := make(chan struct{})
		i := p.start("a", schedule.Options{GracePeriod: 50 * time.Millisecond, Metrics: m, Jobs: []schedule.Job{{
			Name: "deaf", When: schedule.Cron(everySecond), Hold: lock.Fixed(100 * time.Millisecond), MaxDelay: aWhile,
			Work: d.note("a", func(context.Context, cronjob.Run) (string, error) { <-end; return "", nil }),
		}}})
		pass(9500 * time.Millisecond)
		if n, _ := m.of("firsttap_job_skips_total", "deaf", "stuck"); n < 3 || len(d.of("deaf")) != 3 {
			t.Errorf("%d works don't return, and %v slots were skipped", len(d.of("deaf")), n)
		}
		b := p.state("deaf").Blocked
		if lines := i.log.about("ERROR", "job not run", "deaf"); len(lines) != 1 || b == nil || b.By != "a" || !strings.Contains(b.Reason, "have not returned") {
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
		work JobStore
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
		m := newMetrics(t)
		var jobs []schedule.Job
		for name, f := range fails {
			jobs = append(jobs, schedule.Job{Name: name, When: schedule.Cron(everySecond), Hold: usual, MaxDelay: aWhile, Work: hanging(f.work)})
		}
		i := p.start("a", schedule.Options{Metrics: m, Jobs: jobs})
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
			if n, _ := m.of("firsttap_job_runs_total", name, "FAILED"); n != 1 {
				t.Errorf("%s: %v failures are counted", name, n)
			}
			if lines := i.log.about("job not run", "job="+name+" ", f.says); len(lines) > 0 {
				t.Errorf("%s is taken for the ledger's: %q", name, lines)
			}
			if lines := i.log.about("job failed", "job="+name+" ", f.says); len(lines) != 1 {
				t.Errorf("%s is said %q", name, lines)
			}
		}
	})
}

// Work gets its run and the run's lease. The run's term is the lock's TTL, unless that is very short or very long.
func TestWorkGetsItsRunAndLease(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		told := make(chan error, 3)
		var jobs []schedule.Job
		for ttl, term := range map[time.Duration]time.Duration{
			300 * time.Millisecond: time.Second, 6 * time.Second: 6 * time.Second, time.Minute: 10 * time.Second,
		} {
			name := ttl.String()
			work := func(ctx context.Context, run cronjob.Run) (string, error) {
				lease, stored := lock.FromContext(ctx), p.runs(name)[0]
				if lease == nil || lease.Fence() != run.Fence || lease.Owner() != run.Owner || stored.Fence != run.Fence || stored.Owner != run.Owner ||
					!stored.Slot.Equal(run.Slot) || run.Attempt != stored.Attempt || run.Job != name || run.LeasedUntil.Sub(*run.BeganAt) != term {
					told <- fmt.Errorf("%s: got %+v with %+v, stored %+v", name, run, lease, stored)
					return "", nil
				}
				told <- nil
				return "", nil
			}
			jobs = append(jobs, schedule.Job{Name: name, When: schedule.After(once), Hold: lock.Renewed(ttl, time.Hour), Work: work})
		}
		p.start("a", schedule.Options{Jobs: jobs})
		for range jobs {
			if err := testkit.Await(t, "it runs", told); err != nil {
				t.Error(err)
			}
		}
	})
}
