package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/lock"
	"firsttap/schedule"
)

// New lists everything that is wrong with the jobs.
func TestNewRefusesInvalidJobs(t *testing.T) {
	t.Parallel()
	beat, wait := usual, usual
	beat.Heartbeat, wait.Wait = time.Second, time.Second
	bad := []schedule.Job{
		{Name: "fine", When: eachSecond, Hold: usual, Work: done},
		{Name: "fine", When: eachSecond, Hold: usual, Work: done},
		{Name: "no-when", Hold: usual, Work: done},
		{Name: "no-work", When: eachSecond, Hold: usual},
		{Name: "no-hold", When: eachSecond, Work: done},
		{Name: "for-ever", When: eachSecond, Hold: lock.Hold{TTL: time.Second, RenewEvery: 300 * time.Millisecond}, Work: done},
		{Name: "beats", When: eachSecond, Hold: beat, Work: done},
		{Name: "waits", When: eachSecond, Hold: wait, Work: done},
		{Name: "early", When: eachSecond, Hold: usual, MaxDelay: -time.Second, Work: done},
		{Name: "delay", When: schedule.After(0), Hold: usual, Work: done},
		{Name: "cron", When: schedule.Cron("@every 5s"), Hold: usual, Work: done},
		{Name: "kept", When: schedule.Every(9 * time.Second), Hold: lock.Between(10*time.Second, 20*time.Second), Work: done},
	}
	var d demand
	for name, j := range map[string]schedule.Job{
		"no-idle": {When: eachSecond, Demand: d.ask}, "no-demand": {When: eachSecond, MaxIdle: time.Second},
		"minus": {When: eachSecond, Demand: d.ask, MaxIdle: -1}, "no-cron": {When: schedule.After(time.Second), Demand: d.ask, MaxIdle: time.Second},
	} {
		j.Name, j.Hold, j.Work = name, usual, done
		bad = append(bad, j)
	}
	for _, name := range []string{"", "a b", strings.Repeat("x", 65), "jobs", "relay"} {
		bad = append(bad, schedule.Job{Name: name, When: eachSecond, Hold: usual, Work: done})
	}
	s, err := schedule.New(schedule.Options{Jobs: bad, Locks: lock.NewMemory(), OtherLocks: []string{"relay"}, Instance: strings.Repeat("w", 61)})
	if s != nil || err == nil {
		t.Fatalf("%v, %v", s, err)
	}
	for _, j := range bad[1:] {
		if said := strings.Count(err.Error(), fmt.Sprintf("job %q: ", j.Name)); said != 1 {
			t.Errorf("that %q makes no sense is said %d times: %v", j.Name, said, err)
		}
	}
	if !strings.Contains(err.Error(), "wwww") {
		t.Errorf("that the instance's name is too long is not said: %v", err)
	}
	if _, err := schedule.New(schedule.Options{Jobs: bad[:1], Locks: lock.NewMemory(), Instance: strings.Repeat("w", 60)}); err != nil {
		t.Error(err)
	}
}

// The longest names fit their columns.
func TestLongNames(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	name, who := strings.Repeat("j", lock.MaxNameLength), strings.Repeat("w", 60)
	p.start(who, schedule.Options{Locks: p.tableLocks(), Jobs: []schedule.Job{{Name: name}}})
	if runs := p.awaitRuns(name, 1, cronjob.Succeeded); by(runs[0].Owner) != who {
		t.Errorf("it ran on %s", runs[0].Owner)
	}
}

// A run that is requested at any instance, running or not, is run once by one that is running: at once by the one that was asked, and
// otherwise when one has read the ledger.
func TestRunNow(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		options := schedule.Options{Jobs: []schedule.Job{
			{Name: "job", When: yearly}, {Name: "led", When: yearly, OnLeader: true}, {Name: "after"},
		}}
		idle := p.create("idle", options)
		if _, err := idle.RunNow(t.Context(), "unknown", "key_1"); !errors.Is(err, cronjob.ErrNotFound) {
			t.Errorf("an unknown job: %v", err)
		}
		if _, err := idle.RunNow(t.Context(), "job", "key_1"); !errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("a job of an instance that has just started: %v", err)
		}
		all := p.startAll(options, "a", "b")
		pass(2 * time.Second)
		p.ended("after", 1, cronjob.Succeeded)
		for job, n := range map[string]int{"job": 1, "led": 1, "after": 2} {
			for _, from := range []*instance{idle, all["a"]} {
				asked := from.request(job)
				if from == idle || job == "led" {
					pass(time.Second)
				}
				pass(0)
				runs := p.ended(job, n, cronjob.Succeeded)
				if r := runs[n-1]; len(runs) != n || !r.Slot.Equal(asked.Slot) || r.RequestedBy != "key_1" || r.Attempt != 1 || len(p.works(job)) != n {
					t.Errorf("%s: asked for %+v, and there are %+v", job, asked, runs)
				}
				n++
			}
		}
	})
}

// A job that is requested while it runs, however often, runs once more afterwards.
func TestRunNowWhileItRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		all := p.startAll(schedule.Options{Jobs: []schedule.Job{{Name: "job", Work: takes(5 * time.Second)}}}, "a", "b")
		pass(2 * time.Second)
		asked := all["a"].request("job")
		for _, who := range []string{"b", "a", "b"} {
			if run := all[who].request("job"); !run.Slot.Equal(asked.Slot) {
				t.Errorf("asked for %+v and %+v", asked, run)
			}
		}
		open := all["a"].jobs()[0].Unfinished
		if len(open) != 2 || open[0].Status != cronjob.Running || open[1].Status != cronjob.Queued {
			t.Errorf("%+v", open)
		}
		pass(12 * time.Second)
		runs := p.ended("job", 2, cronjob.Succeeded)
		if len(runs) != 2 || !runs[1].Slot.Equal(asked.Slot) || runs[1].BeganAt.Before(*runs[0].EndedAt) {
			t.Errorf("asked for %+v, and there are %+v", asked, runs)
		}
	})
}

// Operators see the same of a job at any instance: before it runs, while it does, and afterwards.
func TestJobs(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		end := make(chan struct{})
		options := schedule.Options{Locks: p.locks, Jobs: []schedule.Job{
			{Name: "minutely", When: schedule.Cron("0 * * * * *")},
			{Name: "led", OnLeader: true, Work: func(context.Context, cronjob.Run) (string, error) { <-end; return "3 told", errWork }},
			{Name: "ran"},
		}}
		other := p.create("other", options)
		if jobs := other.jobs(); len(jobs) != 3 {
			t.Fatalf("before any run: %+v", jobs)
		}
		p.start("a", options)
		pass(2 * time.Second)
		jobs := other.jobs()
		led, minutely, ran := jobs[0], jobs[1], jobs[2]
		if led.Name != "led" || led.Schedule != "after 1h0m0s" || !led.OnLeader || led.Zone != time.UTC || led.Last != nil || led.EndedAt != nil ||
			len(led.Unfinished) != 1 || led.Unfinished[0].Status != cronjob.Running || by(led.Unfinished[0].Owner) != "a" {
			t.Errorf("the running job is %+v", led)
		}
		mustBeHeldBy(t, "a", led.Holder, 3*time.Second)
		held, err := other.HeldLocks(t.Context())
		if err != nil || len(held) != 1 || held[0].Name != "jobs" || held[0].Fence <= 0 {
			t.Fatalf("the locks are %+v, %v", held, err)
		}
		mustBeHeldBy(t, "a", &held[0].Holder, 3*time.Second)
		if next := time.Now().Truncate(time.Minute).Add(time.Minute); minutely.Schedule != "0 * * * * *" || minutely.Holder != nil || !minutely.NextAt.Equal(next) {
			t.Errorf("the waiting job is %+v, want it next at %v", minutely, next)
		}
		if ran.Schedule != "after 1h0m0s" || ran.NextAt == nil || ran.Last == nil || ran.Last.Result != "done" || ran.SucceededAt == nil {
			t.Errorf("the finished job is %+v", ran)
		}
		close(end)
		pass(0)
		led = other.jobs()[0]
		if l := led.Last; l == nil || l.Status != cronjob.Failed || l.Result != "3 told" || l.Error != errWork.Error() || led.SucceededAt != nil ||
			len(led.Unfinished) != 0 || led.NextAt.Sub(*led.EndedAt) != once {
			t.Errorf("the ended job is %+v", led)
		}
		other.ledger.cut(cutAtOnce)
		if jobs, err := other.Jobs(t.Context()); !errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("without a database: %+v, %v", jobs, err)
		}
	})
}

func mustBeHeldBy(t *testing.T, who string, h *cronjob.Holder, longest time.Duration) {
	t.Helper()
	if h == nil || by(h.Owner) != who || h.Remaining <= 0 || h.Remaining > longest {
		t.Errorf("the holder is %+v, want %s", h, who)
	}
}

// A run whose instance has died is not shown as running.
func TestJobsOfDeadInstances(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		i := p.create("a", schedule.Options{Jobs: []schedule.Job{{Name: "job"}}})
		p.register("job")
		p.dies("job")
		for _, want := range []cronjob.Status{cronjob.Running, cronjob.Interrupted} {
			if open := i.jobs()[0].Unfinished; len(open) != 1 || open[0].Status != want {
				t.Errorf("%+v, want one that is %s", open, want)
			}
			pass(time.Minute)
		}
	})
}

// HeldLocks asks for all names at once: servers that are slow, or do not answer, delay it as if there were one name. It asks for no list,
// whose cost depends on what else is in Redis.
func TestHeldLocks(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		i := p.create("a", schedule.Options{Locks: p.locks, OtherLocks: []string{"relay", "more"}, Jobs: []schedule.Job{{Name: "own"}, {Name: "free"}}})
		want := []string{"jobs", "own", "relay"}
		for _, name := range want {
			if _, err := p.locks.Acquire(t.Context(), name, "host:1/"+name, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		i.locks.slow(300*time.Millisecond, 300*time.Millisecond)
		held, err := i.HeldLocks(t.Context())
		if err != nil || len(held) != len(want) {
			t.Fatalf("%+v are held, want %v: %v", held, want, err)
		}
		for k, l := range held {
			if l.Name != want[k] || l.Owner != "host:1/"+l.Name || l.Remaining <= 0 || l.Remaining > time.Hour || l.Fence <= 0 {
				t.Errorf("%+v", l)
			}
		}
		if took := time.Since(began); took != 600*time.Millisecond {
			t.Errorf("with a slow server it takes %s", took)
		}
		if shown, listed := i.locks.count("show"), i.locks.count("list"); shown != 5 || listed != 0 {
			t.Errorf("it asked for %d names and %d lists", shown, listed)
		}
		began = time.Now()
		i.locks.cut(cutRequests)
		if held, err := i.HeldLocks(t.Context()); !errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("without a server: %+v, %v", held, err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("without a server it takes %s", took)
		}
	})
}
