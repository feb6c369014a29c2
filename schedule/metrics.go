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
			Name: "firsttap_job_runs_total", Help: "Runs of scheduled jobs by this instance, by how they ended.",
		}, []string{"job_name", "status"}),
		skips: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_job_skips_total",
			Help: "Times this instance did not run a job: another had it (held), nobody could tell who has it (unavailable), works of it don't return here (stuck), or its lock can't be (invalid).",
		}, []string{"job_name", "reason"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "firsttap_job_duration_seconds", Help: "How long runs of scheduled jobs took.",
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
			Name: "firsttap_job_success_age_seconds", Help: "How long ago a scheduled job has succeeded, on whichever instance.",
		}, func() float64 {
			at := m.succeeded.Load()
			if at == 0 {
				return math.NaN() // the ledger has not been read yet
			}
			return s.clock.Since(time.UnixMicro(at)).Seconds()
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "firsttap_job_period_seconds", Help: "How long it is from one time of a scheduled job to the next.",
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
