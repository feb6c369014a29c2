package schedule_test

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/cronjob"
	"firsttap/lock"
	"firsttap/repository"
	"firsttap/repository/repositorytest"
	"firsttap/schedule"
)

// metrics are the metrics of one instance.
type metrics struct {
	*prometheus.Registry
	t *testing.T
}

func newMetrics(t *testing.T) metrics { return metrics{prometheus.NewPedanticRegistry(), t} }

// of returns the value of a metric of the job, and of the status or reason unless that is "".
func (m metrics) of(name, job, what string) (value float64, found bool) {
	m.t.Helper()
	families, err := m.Gather()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range one.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() != name || labels["job_name"] != job || labels["status"]+labels["reason"] != what {
				continue
			}
			return one.GetCounter().GetValue() + one.GetGauge().GetValue() + float64(one.GetHistogram().GetSampleCount()), true
		}
	}
	return 0, false
}

func TestMetrics(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		m := newMetrics(t)
		a := p.start("a", schedule.Options{Metrics: m, Jobs: []schedule.Job{
			{Name: "tick", When: schedule.Cron(everySecond), Hold: usual, Work: done},
			{Name: "minutely", When: schedule.Cron("0 * * * * *"), Hold: usual, Work: done},
			{Name: "daily", When: schedule.Cron("4 0 0 * * *"), Hold: usual, Work: done},
			{Name: "after", When: schedule.After(once), Hold: usual, Work: done},
			{Name: "fails", When: schedule.After(once), Hold: usual, Work: func(context.Context, cronjob.Run) (string, error) { return "", errWork }},
			{Name: "stops", When: schedule.After(once), Hold: lock.Renewed(6*time.Second, time.Hour), Work: untilCanceled},
		}})
		pass(3500 * time.Millisecond)
		is := func(name, job, what string, want float64) {
			t.Helper()
			if got, found := m.of(name, job, what); !found || got != want {
				t.Errorf("%s of %s %s is %v (%v), want %v", name, job, what, got, found, want)
			}
		}
		is("firsttap_job_runs_total", "tick", "SUCCEEDED", 3)
		is("firsttap_job_duration_seconds", "tick", "", 3)
		is("firsttap_job_runs_total", "fails", "FAILED", 1)
		is("firsttap_job_skips_total", "tick", "held", 0)
		is("firsttap_job_runs_total", "fails", "INTERRUPTED", 0)
		for _, reason := range []string{"held", "unavailable", "stuck", "invalid"} {
			is("firsttap_job_skips_total", "fails", reason, 0)
		}
		for job, want := range map[string]float64{"tick": 1, "minutely": 60, "daily": 24 * 3600, "after": 3600} {
			is("firsttap_job_period_seconds", job, "", want)
		}
		// The age grows for a job that has never succeeded, since its registration, and for one that has. It comes from the ledger,
		// which was last read half a second ago.
		pass(7 * time.Second)
		is("firsttap_job_success_age_seconds", "fails", "", 10.5)
		is("firsttap_job_success_age_seconds", "after", "", 9.5)
		is("firsttap_job_success_age_seconds", "daily", "", 6.5)
		if age, found := m.of("firsttap_job_success_age_seconds", "tick", ""); age > 1.5 || !found {
			t.Errorf("it succeeds each second, %v s ago", age)
		}
		a.stop()
		is("firsttap_job_runs_total", "stops", "INTERRUPTED", 1)
	})
}

// The age is not 0 before the ledger was read: an instance that can't read it must not hide what the others know.
func TestSuccessIsNotKnownYet(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		m := newMetrics(t)
		p.create("a", schedule.Options{Metrics: m, Jobs: []schedule.Job{{Name: "tick", When: schedule.Cron(everySecond), Hold: usual, Work: done}}})
		if age, found := m.of("firsttap_job_success_age_seconds", "tick", ""); !math.IsNaN(age) || !found {
			t.Errorf("before it has run, it succeeded %v s ago (%v)", age, found)
		}
	})
}

// Every instance knows from the ledger when a job last succeeded on another.
func TestSuccessIsKnownEverywhere(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		m, locks := newMetrics(t), lock.NewMemory()
		jobs := []schedule.Job{{Name: "led", When: schedule.Cron(everySecond), Hold: usual, OnLeader: true, Work: done}}
		p.start("a", schedule.Options{Locks: locks, Jobs: jobs})
		pass(1500 * time.Millisecond)
		p.start("b", schedule.Options{Locks: locks, Metrics: m, Jobs: jobs})
		pass(10 * time.Second)
		if age, found := m.of("firsttap_job_success_age_seconds", "led", ""); age > 1.5 || !found {
			t.Errorf("it succeeds each second, %v s ago", age)
		}
		if n, _ := m.of("firsttap_job_skips_total", "led", "held"); n != 10 {
			t.Errorf("it leaves %v slots of ten to another", n)
		}
		if n, _ := m.of("firsttap_job_runs_total", "led", "SUCCEEDED"); n != 0 {
			t.Errorf("%v runs beside the leader", n)
		}
	})
}

// Instances that have nothing to do only read the ledger, also while one is at work; a reading takes a few statements.
func TestIdleInstances(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		const look, readings = 200 * time.Millisecond, 50
		var statements atomic.Int64
		store := repositorytest.Open(t, p.url, repository.Options{
			Observer: func(ctx context.Context, _ repository.Statement) (context.Context, func(error)) {
				statements.Add(1)
				return ctx, func(error) {}
			},
		})
		locks := lock.NewMemory()
		var links [3]link
		for i := range links {
			p.start(fmt.Sprint(i), schedule.Options{Ledger: linkedLedger{store, &links[i]}, PollInterval: look, Locks: locks, Jobs: []schedule.Job{
				{Name: "waits", When: schedule.After(once), Hold: usual, Work: done},
				{Name: "at-work", When: schedule.After(once), Hold: usual, Work: untilCanceled},
				{Name: "led", When: schedule.After(once), Hold: usual, OnLeader: true, Work: untilCanceled},
				{Name: "yearly", When: schedule.Cron("0 0 0 1 7 *"), Hold: usual, Work: done},
			}})
		}
		pass(2*time.Second + look/2)
		sum := func(requests ...string) (n int) {
			for i := range links {
				for _, what := range requests {
					n += links[i].count(what)
				}
			}
			return n
		}
		others := []string{"register", "begin", "end", "interrupt", "skip", "block"}
		read, renewed, other, before := sum("read"), sum("renew"), sum(others...), statements.Load()
		pass(readings * look)
		read, renewed, other = sum("read")-read, sum("renew")-renewed, sum(others...)-other
		if read != readings*len(links) || other != 0 {
			t.Errorf("in %s the ledger was read %d times, and there were %d other requests", readings*look, read, other)
		}
		// Two runs of the jobs at work are renewed every two seconds.
		if renewed < 8 || renewed > 12 {
			t.Errorf("the runs were renewed %d times", renewed)
		}
		if each := float64(statements.Load()-before-int64(renewed)) / float64(read); each > 3 || each < 1 {
			t.Errorf("a reading is %v statements, want 3 at most", each)
		}
	})
}
