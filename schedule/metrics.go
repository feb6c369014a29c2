package schedule

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch/cronjob"
)

// vectors are the metrics that all jobs share.
type vectors struct {
	runs, skips *prometheus.CounterVec
	took        *prometheus.HistogramVec
}

func newVectors(r prometheus.Registerer) *vectors {
	v := &vectors{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_job_runs_total", Help: "Runs of scheduled jobs by this instance, by how they ended.",
		}, []string{"job_name", "status"}),
		skips: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_job_skips_total",
			Help: "Times this instance did not run a job: another instance held it (held), its lock or the ledger was unavailable " +
				"(unavailable), or earlier runs have not returned here (stuck).",
		}, []string{"job_name", "reason"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "firsttap_job_duration_seconds", Help: "How long runs of scheduled jobs took.",
			Buckets: prometheus.ExponentialBuckets(.001, 4, 12),
		}, []string{"job_name"}),
	}
	if r != nil {
		r.MustRegister(v.runs, v.skips, v.took)
	}
	return v
}

// jobMetrics are the metrics of one job.
type jobMetrics struct {
	*vectors
	job string
	// good is when it last succeeded, was registered, or had no work, by this process's clock; nil before the ledger was read.
	good    atomic.Pointer[time.Time]
	failing bool // the last run did not succeed; for watch only
}

func newJobMetrics(s *Scheduler, j *job) *jobMetrics {
	m := &jobMetrics{vectors: s.vectors, job: j.Name}
	for _, status := range []cronjob.Status{cronjob.Succeeded, cronjob.Failed, cronjob.Interrupted} {
		m.runs.WithLabelValues(j.Name, string(status)) // a rate needs a zero to begin with
	}
	for _, reason := range []string{"held", "unavailable", "stuck"} {
		m.skips.WithLabelValues(j.Name, reason)
	}
	if s.Metrics == nil {
		return m
	}
	of := prometheus.WrapRegistererWith(prometheus.Labels{"job_name": j.Name}, s.Metrics)
	of.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "firsttap_job_success_age_seconds",
			Help: "Time since a scheduled job last succeeded on any instance, or had nothing to do.",
		}, func() float64 {
			if good := m.good.Load(); good != nil && !j.Off {
				return time.Since(*good).Seconds()
			}
			return math.NaN() // what other instances know must not be hidden
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "firsttap_job_period_seconds", Help: "Time from one slot of a scheduled job to the next, at most.",
		}, func() float64 {
			if j.Off {
				return math.NaN()
			}
			period := j.When.period(time.Now())
			if _, ok := j.When.(after); ok { // the next slot is after the end of a run
				period += j.maxRun
			}
			return period.Seconds()
		}),
	)
	return m
}

func (m *jobMetrics) ran(status cronjob.Status, took time.Duration) {
	m.runs.WithLabelValues(m.job, string(status)).Inc()
	m.took.WithLabelValues(m.job).Observe(took.Seconds())
}

// skipped counts that this instance did not run the job.
func (m *jobMetrics) skipped(reason string) { m.skips.WithLabelValues(m.job, reason).Inc() }

// idled records that there is nothing to do. It is no success while the runs fail.
func (m *jobMetrics) idled() {
	if now := time.Now(); !m.failing {
		m.good.Store(&now)
	}
}

// seen records what the ledger knew at now, by the database's clock.
func (m *jobMetrics) seen(state cronjob.JobState, now time.Time) {
	succeeded := state.RegisteredAt
	if state.SucceededAt != nil {
		succeeded = *state.SucceededAt
	}
	m.failing = state.EndedAt != nil && state.EndedAt.After(succeeded)
	at := time.Now().Add(succeeded.Sub(now))
	if last := m.good.Load(); last == nil || m.failing || at.After(*last) {
		m.good.Store(&at)
	}
}
