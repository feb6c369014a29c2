package schedule

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/cronjob"
)

// vectors are the metrics of all jobs.
type vectors struct {
	runs, skips *prometheus.CounterVec
	took        *prometheus.HistogramVec
}

func newVectors(r prometheus.Registerer) *vectors {
	v := &vectors{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_job_runs_total", Help: "Runs of scheduled jobs on this instance, by status.",
		}, []string{"job_name", "status"}),
		skips: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_job_skips_total",
			Help: "Runs that this instance skipped, by reason: held (another instance has the lock), unavailable (the lock or the ledger did not answer), stuck (earlier runs did not return), invalid (the lock can't have this name or hold).",
		}, []string{"job_name", "reason"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "firsttap_job_duration_seconds", Help: "Duration of runs of scheduled jobs.",
			Buckets: prometheus.ExponentialBuckets(.001, 4, 11),
		}, []string{"job_name"}),
	}
	if r != nil {
		r.MustRegister(v.runs, v.skips, v.took)
	}
	return v
}

// jobMetrics are what operators see of one job.
type jobMetrics struct {
	*vectors
	job       string
	succeeded atomic.Int64 // microseconds, by the database's clock; the registration before the first time
}

func newJobMetrics(s *Scheduler, j *job) *jobMetrics {
	m := &jobMetrics{vectors: s.vectors, job: j.Name}
	for _, status := range []cronjob.Status{cronjob.Succeeded, cronjob.Failed, cronjob.Interrupted} {
		m.runs.WithLabelValues(j.Name, string(status)) // a rate needs the zero before the first
	}
	for _, reason := range []string{"held", "unavailable", "stuck", "invalid"} {
		m.skips.WithLabelValues(j.Name, reason)
	}
	period := j.When.period(time.Now()).Seconds()
	if s.Metrics == nil || period == 0 {
		return m
	}
	of := prometheus.WrapRegistererWith(prometheus.Labels{"job_name": j.Name}, s.Metrics)
	of.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "firsttap_job_success_age_seconds", Help: "Time since a scheduled job last succeeded on any instance.",
		}, func() float64 {
			at := m.succeeded.Load()
			if at == 0 {
				return math.NaN() // the ledger has not been read yet
			}
			return s.clock.Since(time.UnixMicro(at)).Seconds()
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "firsttap_job_period_seconds", Help: "Time between two slots of a scheduled job.",
		}, func() float64 { return j.When.period(s.clock.Now()).Seconds() }),
	)
	return m
}

func (m *jobMetrics) ran(status cronjob.Status, took time.Duration) {
	m.runs.WithLabelValues(m.job, string(status)).Inc()
	m.took.WithLabelValues(m.job).Observe(took.Seconds())
}

func (m *jobMetrics) seen(state cronjob.State) {
	at := state.RegisteredAt
	if state.SucceededAt != nil {
		at = *state.SucceededAt
	}
	m.succeeded.Store(at.UnixMicro())
}
