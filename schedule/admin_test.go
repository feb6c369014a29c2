package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/lock"
	"firsttap/schedule"
	"firsttap/testkit"
)

// New lists everything that is wrong with the jobs.
func TestNewRefusesInvalidJobs(t *testing.T) {
	t.Parallel()
	every := schedule.Cron(everySecond)
	beat, wait := usual, usual
	beat.Heartbeat, wait.Wait = time.Second, time.Second
	bad := []schedule.Job{
		{Name: "fine", When: every, Hold: usual, Work: done},
		{Name: "fine", When: every, Hold: usual, Work: done},
		{Name: "", When: every, Hold: usual, Work: done},
		{Name: "a b", When: every, Hold: usual, Work: done},
		{Name: strings.Repeat("x", 65), When: every, Hold: usual, Work: done},
		{Name: "jobs", When: every, Hold: usual, Work: done},
		{Name: "relay", When: every, Hold: usual, Work: done},
		{Name: "no-when", Hold: usual, Work: done},
		{Name: "no-work", When: every, Hold: usual},
		{Name: "no-hold", When: every, Work: done},
		{Name: "for-ever", When: every, Hold: lock.Hold{TTL: time.Second, RenewEvery: 300 * time.Millisecond}, Work: done},
		{Name: "beats", When: every, Hold: beat, Work: done},
		{Name: "waits", When: every, Hold: wait, Work: done},
		{Name: "early", When: every, Hold: usual, MaxDelay: -time.Second, Work: done},
		{Name: "cron", When: schedule.Cron("61 * * * * *"), Hold: usual, Work: done},
		{Name: "no-cron", When: schedule.Cron(""), Hold: usual, Work: done},
		{Name: "february", When: schedule.Cron("0 0 0 30 2 *"), Hold: usual, Work: done},
		{Name: "delay", When: schedule.After(0), Hold: usual, Work: done},
	}
	s, err := schedule.New(schedule.Options{Jobs: bad, Locks: lock.NewMemory(), OtherLocks: []string{"relay"}, Instance: strings.Repeat("w", 61)})
	if s != nil || err == nil {
		t.Fatalf("%v, %v", s, err)
	}
	problems := strings.Split(err.Error(), "\n")
	for _, j := range bad[1:] {
		said := 0
		for _, problem := range problems {
			if strings.Contains(problem, fmt.Sprintf("job %q: ", j.Name)) {
				said++
			}
		}
		if said != 1 {
			t.Errorf("that %q makes no sense is said %d times: %q", j.Name, said, problems)
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
	name := strings.Repeat("j", lock.MaxNameLength)
	who := strings.Repeat("w", 60)
	p.start(who, schedule.Options{Locks: p.tableLocks(), Jobs: []schedule.Job{{Name: name, When: schedule.After(once), Hold: usual, Work: done}}})
	if runs := p.awaitRuns(name, 1, cronjob.Succeeded); by(runs[0].Owner) != who {
		t.Errorf("it ran on %s", runs[0].Owner)
	}
}

// A run that is requested at any instance, running or not, is run once and soon by one that is running.
func TestRunNow(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		d := newDiary(t)
		const yearly = "0 0 0 1 1 *"
		options := func(who string) schedule.Options {
			return schedule.Options{Jobs: []schedule.Job{
				{Name: "job", When: schedule.Cron(yearly), Hold: usual, Work: d.keep(who, done)},
				{Name: "led", When: schedule.Cron(yearly), Hold: usual, OnLeader: true, Work: d.keep(who, done)},
				{Name: "after", When: schedule.After(once), Hold: usual, Work: d.keep(who, done)},
			}}
		}
		idle := p.create("idle", options("idle"))
		_, err := idle.RunNow(t.Context(), "unknown", "key_1")
		if !errors.Is(err, cronjob.ErrNotFound) {
			t.Errorf("an unknown job: %v", err)
		}
		a := p.start("a", options("a"))
		p.start("b", options("b"))
		pass(2 * time.Second)
		p.ended("after", 1, cronjob.Succeeded)
		for _, job := range []string{"job", "led", "after"} {
			for i, from := range []*instance{idle, a} {
				asked, err := from.RunNow(t.Context(), job, "key_1")
				if err != nil || asked.Job != job || asked.RequestedBy != "key_1" || asked.Status != cronjob.Queued {
					t.Fatalf("asked for %+v: %v", asked, err)
				}
				pass(time.Second) // until an instance has read the ledger
				n := i + 1
				if job == "after" {
					n++
				}
				runs := p.ended(job, n, cronjob.Succeeded)
				if r := runs[n-1]; len(runs) != n || !r.Slot.Equal(asked.Slot) || r.RequestedBy != "key_1" || r.Attempt != 1 || len(d.of(job)) != n {
					t.Errorf("%s: asked for %+v, and there are %+v", job, asked, runs)
				}
			}
		}
	})
}

// The instance that gets a request reads the ledger at once.
func TestRunNowIsNow(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		i := p.start("a", schedule.Options{PollInterval: time.Hour, Jobs: []schedule.Job{{Name: "job", When: schedule.Cron("0 0 0 1 1 *"), Hold: usual, Work: done}}})
		pass(time.Second)
		if _, err := i.RunNow(t.Context(), "job", "key_1"); err != nil {
			t.Fatal(err)
		}
		pass(0)
		p.ended("job", 1, cronjob.Succeeded)
	})
}

// A job that is requested while it runs, however often, runs once more afterwards.
func TestRunNowWhileItRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		d := newDiary(t)
		begun, end := make(chan struct{}, 10), make(chan struct{})
		var all []*instance
		for _, who := range []string{"a", "b"} {
			all = append(all, p.start(who, schedule.Options{Jobs: []schedule.Job{{
				Name: "job", When: schedule.After(once), Hold: usual,
				Work: d.keep(who, func(ctx context.Context, _ cronjob.Run) (string, error) {
					begun <- struct{}{}
					select {
					case <-end:
						return "", nil
					case <-ctx.Done():
						return "", context.Cause(ctx)
					}
				}),
			}}}))
		}
		testkit.Await(t, "it begins", begun)
		var asked cronjob.Run
		for i := range 4 {
			run, err := all[i%2].RunNow(t.Context(), "job", "key_1")
			if err != nil || i > 0 && !run.Slot.Equal(asked.Slot) {
				t.Errorf("asked for %+v and %+v: %v", asked, run, err)
			}
			asked = run
		}
		jobs, err := all[0].Jobs(t.Context())
		if err != nil || len(jobs[0].Unfinished) != 2 || jobs[0].Unfinished[0].Status != cronjob.Running || jobs[0].Unfinished[1].Status != cronjob.Queued {
			t.Errorf("%+v: %v", jobs, err)
		}
		close(end)
		pass(2 * time.Second)
		runs := p.ended("job", 2, cronjob.Succeeded)
		if len(runs) != 2 || !runs[1].Slot.Equal(asked.Slot) || runs[1].BeganAt.Before(*runs[0].EndedAt) {
			t.Errorf("asked for %+v, and there are %+v", asked, runs)
		}
	})
}

// Operators see the same of a job at any instance.
func TestJobs(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		locks := lock.NewMemory()
		begun, end := make(chan struct{}, 10), make(chan struct{})
		options := schedule.Options{Locks: locks, Jobs: []schedule.Job{
			{Name: "minutely", When: schedule.Cron("0 * * * * *"), Hold: usual, Work: done},
			{Name: "led", When: schedule.After(once), Hold: usual, OnLeader: true, Work: func(context.Context, cronjob.Run) (string, error) {
				begun <- struct{}{}
				<-end
				return "3 told", errWork
			}},
			{Name: "ran", When: schedule.After(once), Hold: usual, Work: done},
		}}
		other := p.create("other", options)
		jobs, err := other.Jobs(t.Context())
		if err != nil || len(jobs) != 3 {
			t.Fatalf("before any run: %+v, %v", jobs, err)
		}
		p.start("a", options)
		testkit.Await(t, "it runs", begun)
		pass(0)
		p.ended("ran", 1, cronjob.Succeeded)
		if jobs, err = other.Jobs(t.Context()); err != nil {
			t.Fatal(err)
		}
		led, minutely, ran := jobs[0], jobs[1], jobs[2]
		if led.Name != "led" || led.Schedule != "after 1h0m0s" || !led.OnLeader || led.Zone != time.UTC || led.Last != nil || led.EndedAt != nil ||
			len(led.Unfinished) != 1 || led.Unfinished[0].Status != cronjob.Running || by(led.Unfinished[0].Owner) != "a" {
			t.Errorf("the running job is %+v", led)
		}
		if h := led.Holder; h == nil || by(h.Owner) != "a" || h.Remaining <= 0 || h.Remaining > 3*time.Second {
			t.Errorf("the leader is %+v", h)
		}
		held, err := other.HeldLocks(t.Context())
		if i := slices.IndexFunc(held, func(l cronjob.HeldLock) bool { return l.Name == "jobs" }); err != nil || i < 0 || by(held[i].Owner) != "a" ||
			held[i].Remaining <= 0 || held[i].Fence <= 0 {
			t.Errorf("the locks are %+v, %v", held, err)
		}
		now := time.Now()
		if next := minutely.NextAt; minutely.Schedule != "0 * * * * *" || minutely.Holder != nil || next == nil || next.Second() != 0 ||
			next.Before(now.Add(-time.Second)) || next.After(now.Add(time.Minute)) {
			t.Errorf("the waiting job is %+v", minutely)
		}
		if ran.Schedule != "after 1h0m0s" || ran.NextAt == nil || ran.Last == nil || ran.Last.Result != "done" || ran.SucceededAt == nil {
			t.Errorf("the finished job is %+v", ran)
		}
		close(end)
		pass(0)
		p.ended("led", 1, cronjob.Failed)
		if jobs, err = other.Jobs(t.Context()); err != nil {
			t.Fatal(err)
		}
		led = jobs[0]
		if l := led.Last; l == nil || l.Status != cronjob.Failed || l.Result != "3 told" || l.Error != errWork.Error() || led.SucceededAt != nil || len(led.Unfinished) != 0 {
			t.Errorf("the ended job is %+v", led)
		}
		if led.NextAt == nil || led.NextAt.Sub(*led.EndedAt) != once {
			t.Errorf("next at %v, ended at %v", led.NextAt, led.EndedAt)
		}
		other.ledger.cut(cutAtOnce)
		if jobs, err := other.Jobs(t.Context()); !errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("without a database: %+v, %v", jobs, err)
		}
	})
}

// A run whose instance has died is not shown as running.
func TestJobsOfDeadInstances(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		i := p.create("a", schedule.Options{Jobs: []schedule.Job{{Name: "job", When: schedule.After(once), Hold: usual, Work: done}}})
		if _, err := p.store.RegisterJobs(t.Context(), []string{"job"}); err != nil {
			t.Fatal(err)
		}
		_, err := p.store.BeginRun(t.Context(), "job", "dead/1", time.Minute, func(_ cronjob.JobState, now time.Time) time.Time { return now })
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []cronjob.Status{cronjob.Running, cronjob.Interrupted} {
			jobs, err := i.Jobs(t.Context())
			if err != nil || len(jobs[0].Unfinished) != 1 || jobs[0].Unfinished[0].Status != want {
				t.Errorf("%+v, %v, want one that is %s", jobs, err, want)
			}
			pass(time.Minute)
		}
	})
}

func TestRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		i := p.start("a", schedule.Options{Jobs: []schedule.Job{{Name: "job", When: schedule.After(once), Hold: usual, Work: done}}})
		pass(2 * time.Second)
		p.ended("job", 1, cronjob.Succeeded)
		if runs, next, err := i.Runs(t.Context(), "job", dispatch.Page{Limit: 5}); err != nil || len(runs) != 1 || next != "" {
			t.Errorf("%+v, %q, %v", runs, next, err)
		}
		if _, _, err := i.Runs(t.Context(), "unknown", dispatch.Page{Limit: 5}); !errors.Is(err, cronjob.ErrNotFound) {
			t.Errorf("of an unknown job: %v", err)
		}
		if _, _, err := i.Runs(t.Context(), "job", dispatch.Page{Limit: 5, Cursor: "x"}); !errors.Is(err, dispatch.ErrBadCursor) {
			t.Errorf("from an unknown place: %v", err)
		}
	})
}
