package schedule_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch/cronjob"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/repository/repositorytest"
	"firsttap/schedule"
)

// metric returns the value of a metric of the job, and of the status or reason unless that is "". The test fails if there is none.
func (i *instance) metric(name, job, what string) float64 {
	i.t.Helper()
	families, err := i.metrics.Gather()
	if err != nil {
		i.t.Fatal(err)
	}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range one.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == name && labels["job_name"] == job && labels["status"]+labels["reason"] == what {
				return one.GetCounter().GetValue() + one.GetGauge().GetValue() + float64(one.GetHistogram().GetSampleCount())
			}
		}
	}
	i.t.Errorf("there is no %s of %s %s", name, job, what)
	return 0
}

// skips is how often the instance did not run the job for that reason.
func (i *instance) skips(job, reason string) float64 {
	i.t.Helper()
	return i.metric("firsttap_job_skips_total", job, reason)
}

func TestMetrics(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		a := p.create("a", schedule.Options{Jobs: []schedule.Job{
			{Name: "tick", When: eachSecond},
			{Name: "minutely", When: schedule.Cron("0 * * * * *")},
			{Name: "daily", When: schedule.Cron("4 0 0 * * *")},
			{Name: "after"},
			{Name: "fails", Work: func(context.Context, cronjob.Run) (string, error) { return "", errWork }},
			{Name: "stops", Work: p.untilCanceled},
		}})
		// An instance that can't read the ledger must not hide what the others know.
		if age := a.metric("firsttap_job_success_age_seconds", "tick", ""); !math.IsNaN(age) {
			t.Errorf("before the ledger was read, it succeeded %v s ago", age)
		}
		a.begin()
		pass(3500 * time.Millisecond)
		is := func(name, job, what string, want float64) {
			t.Helper()
			if got := a.metric(name, job, what); got != want {
				t.Errorf("%s of %s %s is %v, want %v", name, job, what, got, want)
			}
		}
		is("firsttap_job_runs_total", "tick", "SUCCEEDED", 3)
		is("firsttap_job_duration_seconds", "tick", "", 3)
		is("firsttap_job_skips_total", "tick", "held", 0)
		is("firsttap_job_runs_total", "fails", "FAILED", 1)
		is("firsttap_job_runs_total", "fails", "INTERRUPTED", 0)
		for _, reason := range []string{"held", "unavailable", "stuck"} {
			is("firsttap_job_skips_total", "fails", reason, 0)
		}
		// A run of "after" may take a minute.
		for job, want := range map[string]float64{"tick": 1, "minutely": 60, "daily": 24 * 3600, "after": 3600 + 60} {
			is("firsttap_job_period_seconds", job, "", want)
		}
		// The age grows for a job that has never succeeded, since its registration, and for one that has. It comes from the ledger,
		// which was last read half a second ago.
		pass(7 * time.Second)
		for job, want := range map[string]float64{"fails": 10.5, "after": 10.5, "daily": 6.5} {
			is("firsttap_job_success_age_seconds", job, "", want)
		}
		if age := a.metric("firsttap_job_success_age_seconds", "tick", ""); age > 1.5 {
			t.Errorf("it succeeds each second, %v s ago", age)
		}
		a.stop()
		is("firsttap_job_runs_total", "stops", "INTERRUPTED", 1)
	})
}

// An instance that has nothing to do sends one statement every PollInterval.
func TestIdleInstances(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		const look, readings = 200 * time.Millisecond, 50
		var statements atomic.Int64
		p.store = repositorytest.Open(t, p.url, repository.Options{
			Observer: func(ctx context.Context, _ database.Statement) (context.Context, func(error)) {
				statements.Add(1)
				return ctx, func(error) {}
			},
		})
		all := p.startAll(schedule.Options{PollInterval: look, Locks: p.locks, Jobs: []schedule.Job{
			{Name: "waits"},
			{Name: "led", OnLeader: true, When: yearly},
			{Name: "yearly", When: yearly},
		}}, "a", "b", "c")
		pass(2*time.Second + look/2)
		sum := func(requests ...string) (n int) {
			for _, i := range all {
				for _, what := range requests {
					n += i.ledger.count(what)
				}
			}
			return n
		}
		others := []string{"register", "begin", "renew", "end", "interrupt", "skip", "block"}
		polled, read, other, before := sum("poll"), sum("read"), sum(others...), statements.Load()
		pass(readings * look)
		polled, read, other = sum("poll")-polled, sum("read")-read, sum(others...)-other
		if polled != readings*len(all) || read > 2*len(all) || other != 0 {
			t.Errorf("in %s the instances polled %d times and read the ledger %d times, and there were %d other requests", readings*look, polled, read, other)
		}
		if n := int(statements.Load() - before); n > polled+read {
			t.Errorf("%d statements for %d polls and %d readings", n, polled, read)
		}
	})
}
