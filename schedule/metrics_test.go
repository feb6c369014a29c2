package schedule_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/cronjob"
	"firsttap/lock"
	"firsttap/schedule"
	"firsttap/servertest"
	"firsttap/testkit"
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

// atLeast waits until the metric is at least want.
func (m metrics) atLeast(name, job, what string, want float64) {
	m.t.Helper()
	testkit.Retry(m.t, func() error {
		if got, found := m.of(name, job, what); !found || got < want {
			return fmt.Errorf("%s of %s %s is %v (%v), want %v", name, job, what, got, found, want)
		}
		return nil
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	p, m := newPlace(t), newMetrics(t)
	when := time.Now().Add(3 * time.Second).UTC()
	a := p.start("a", schedule.Options{Metrics: m, Jobs: []schedule.Job{
		{Name: "tick", When: schedule.Cron(everySecond), Hold: usual, Work: done},
		{Name: "minutely", When: schedule.Cron("0 * * * * *"), Hold: usual, Work: done},
		{Name: "daily", When: schedule.Cron(when.Format("5 4 15 * * *")), Hold: usual, Work: done},
		{Name: "after", When: schedule.After(once), Hold: usual, Work: done},
		{Name: "fails", When: schedule.After(once), Hold: usual, Work: func(context.Context, cronjob.Run) (string, error) { return "", errWork }},
		{Name: "stops", When: schedule.After(once), Hold: usual, Work: untilCanceled},
	}})
	m.atLeast("firsttap_job_runs_total", "tick", "SUCCEEDED", 2)
	m.atLeast("firsttap_job_runs_total", "fails", "FAILED", 1)
	m.atLeast("firsttap_job_duration_seconds", "tick", "", 2)
	if n, _ := m.of("firsttap_job_skips_total", "tick", "held"); n > 0 {
		t.Errorf("alone, it leaves %v slots to another", n)
	}
	for job, want := range map[string]float64{"tick": 1, "minutely": 60, "daily": 24 * 3600, "after": 3600} {
		if got, _ := m.of("firsttap_job_period_seconds", job, ""); got != want {
			t.Errorf("the period of %s is %v, want %v", job, got, want)
		}
	}
	for _, zero := range []string{"INTERRUPTED", "held", "unavailable", "stuck", "invalid"} {
		name := "firsttap_job_skips_total"
		if zero == "INTERRUPTED" {
			name = "firsttap_job_runs_total"
		}
		if v, found := m.of(name, "fails", zero); v != 0 || !found {
			t.Errorf("%s of a job that is never %s is %v, found %v", name, zero, v, found)
		}
	}
	// The age grows for a job that has never succeeded, and for one that has.
	m.atLeast("firsttap_job_success_age_seconds", "fails", "", 2)
	first, _ := m.of("firsttap_job_success_age_seconds", "after", "")
	m.atLeast("firsttap_job_success_age_seconds", "after", "", first+1)
	known := time.Since(p.state("fails").RegisteredAt).Seconds()
	if age, _ := m.of("firsttap_job_success_age_seconds", "fails", ""); age > known+5 || age < known-5 {
		t.Errorf("known for %v s, it has not succeeded for %v", known, age)
	}
	// The age comes from the ledger.
	p.awaitRuns("daily", 1, cronjob.Succeeded)
	if age, _ := m.of("firsttap_job_success_age_seconds", "tick", ""); age > 10 {
		t.Errorf("it succeeds each second, %v s ago", age)
	}
	before, _ := m.of("firsttap_job_runs_total", "stops", "INTERRUPTED")
	a.stop()
	m.atLeast("firsttap_job_runs_total", "stops", "INTERRUPTED", before+1)
}

// The age is not 0 before the ledger was read: an instance that can't read it must not hide what the others know.
func TestSuccessIsNotKnownYet(t *testing.T) {
	t.Parallel()
	p, m := newPlace(t), newMetrics(t)
	_, err := schedule.New(schedule.Options{Ledger: p.store, Locks: lock.NewMemory(), Metrics: m, Jobs: []schedule.Job{
		{Name: "tick", When: schedule.Cron(everySecond), Hold: usual, Work: done},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if age, found := m.of("firsttap_job_success_age_seconds", "tick", ""); !math.IsNaN(age) || !found {
		t.Errorf("before it has run, it succeeded %v s ago (%v)", age, found)
	}
}

// Every instance knows from the ledger when a job last succeeded on another.
func TestSuccessIsKnownEverywhere(t *testing.T) {
	t.Parallel()
	p, m := newPlace(t), newMetrics(t)
	jobs := []schedule.Job{{Name: "led", When: schedule.Cron(everySecond), Hold: usual, OnLeader: true, Work: done}}
	locks := p.tableLocks()
	p.start("a", schedule.Options{Locks: locks, Jobs: jobs})
	p.awaitRuns("led", 1, cronjob.Succeeded)
	p.start("b", schedule.Options{Locks: locks, Metrics: m, Jobs: jobs})
	m.atLeast("firsttap_job_skips_total", "led", "held", 4)
	if age, found := m.of("firsttap_job_success_age_seconds", "led", ""); age > 3 || !found {
		t.Errorf("it succeeds each second, %v s ago", age)
	}
	if n, _ := m.of("firsttap_job_runs_total", "led", "SUCCEEDED"); n != 0 {
		t.Errorf("%v runs beside the leader", n)
	}
}

// questions counts the statements to a server that only this test uses.
func (p *place) questions() (n int) {
	p.t.Helper()
	if err := p.raw.QueryRowContext(p.t.Context(), "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(new(string), &n); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// Instances that have nothing to do only read the ledger, also while one is at work.
func TestIdleInstances(t *testing.T) {
	t.Parallel()
	const look, instances = 100 * time.Millisecond, 3
	server := servertest.StartMariaDB(t)
	p := newPlaceOn(t, server.URL(t))
	begun := make(chan struct{}, 2)
	work := func(ctx context.Context, run cronjob.Run) (string, error) {
		begun <- struct{}{}
		return untilCanceled(ctx, run)
	}
	locks := lock.NewMemory()
	for i := range instances {
		p.start(fmt.Sprint(i), schedule.Options{PollInterval: look, Locks: locks, Jobs: []schedule.Job{
			{Name: "waits", When: schedule.After(once), Hold: usual, Work: done},
			{Name: "at-work", When: schedule.After(once), Hold: usual, Work: work},
			{Name: "led", When: schedule.After(once), Hold: usual, OnLeader: true, Work: work},
			{Name: "yearly", When: schedule.Cron("0 0 0 1 1 *"), Hold: usual, Work: done},
		}})
	}
	testkit.Await(t, "one is at work", begun)
	testkit.Await(t, "two are at work", begun)
	p.awaitRuns("waits", 1, cronjob.Succeeded)
	first, began := p.questions(), time.Now()
	if err := pause(t.Context(), 3*time.Second); err != nil {
		t.Fatal(err)
	}
	each := float64(p.questions()-first) / time.Since(began).Seconds() / instances
	t.Logf("%.1f statements a second of an instance that looks %v times", each, 1/look.Seconds())
	// A reading is three statements, each after one that asks whether the server takes writes; two runs are renewed every two
	// seconds.
	if most := 1.3 * 6 / look.Seconds(); each > most || each < 1 {
		t.Errorf("want %v at most", most)
	}
}
