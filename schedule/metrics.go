package schedule

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/cronjob"
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
			Help: "Times this instance did not run a job: another instance held it (held), its lock or the ledger was unavailable (unavailable), " +
				"earlier runs have not returned here (stuck), or its lock is invalid (invalid).",
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
	// succeeded is when it last succeeded, or was registered, and idle the last slot that it passed over, in microseconds of the
	// database's clock.
	succeeded, idle atomic.Int64
	failing         atomic.Bool // the last run did not succeed
}

func newJobMetrics(s *Scheduler, j *job) *jobMetrics {
	m := &jobMetrics{vectors: s.vectors, job: j.Name}
	for _, status := range []cronjob.Status{cronjob.Succeeded, cronjob.Failed, cronjob.Interrupted} {
		m.runs.WithLabelValues(j.Name, string(status)) // a rate needs a zero to begin with
	}
	for _, reason := range []string{"held", "unavailable", "stuck", "invalid"} {
		m.skips.WithLabelValues(j.Name, reason)
	}
	if s.Metrics == nil {
		return m
	}
	of := prometheus.WrapRegistererWith(prometheus.Labels{"job_name": j.Name}, s.Metrics)
	of.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "firsttap_job_success_age_seconds", Help: "Time since a scheduled job last succeeded on any instance, or had nothing to do.",
		}, func() float64 {
			at := m.succeeded.Load()
			if at == 0 {
				return math.NaN() // the ledger has not been read
			}
			now := s.clock.now()
			if idle := m.idle.Load(); idle <= now.UnixMicro() { // later if the database's clock was set back
				at = max(at, idle)
			}
			return now.Sub(time.UnixMicro(at)).Seconds()
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "firsttap_job_period_seconds", Help: "Time from one slot of a scheduled job to the next, at most.",
		}, func() float64 {
			period := j.When.period(s.clock.now())
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

// passed records a slot at which there was nothing to do. It is no success while the runs fail.
func (m *jobMetrics) passed(slot time.Time) {
	if !m.failing.Load() {
		m.idle.Store(slot.UnixMicro())
	}
}

func (m *jobMetrics) seen(state cronjob.JobState) {
	at := state.RegisteredAt
	if state.SucceededAt != nil {
		at = *state.SucceededAt
	}
	m.succeeded.Store(at.UnixMicro())
	m.failing.Store(state.EndedAt != nil && state.EndedAt.After(at))
}
