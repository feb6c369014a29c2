package lock

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts the operations of Lockers and Gates, which may share one.
type Metrics struct {
	attempts, acquired, held, unavailable, nearMisses prometheus.Counter

	lost      *prometheus.CounterVec
	holding   prometheus.Gauge
	holdTime  prometheus.Histogram
	slackLeft prometheus.Histogram
}

// nearMiss is the fraction of the TTL below which a renewal counts as late.
const nearMiss = 0.2

// NewMetrics registers the metrics with r, if r is not nil. To distinguish several strategies, wrap r with
// prometheus.WrapRegistererWith.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "firsttap_lock_" + name, Help: help})
	}
	m := &Metrics{
		attempts:    counter("attempts_total", "Attempts to acquire a name."),
		acquired:    counter("acquired_total", "Attempts that acquired the name."),
		held:        counter("held_total", "Attempts that were refused because another owner held the name."),
		unavailable: counter("unavailable_total", "Attempts to which the server gave no answer that counts."),
		nearMisses:  counter("near_misses_total", "Renewals that were answered with less than a fifth of the TTL left."),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_lock_lost_total", Help: "Leases that were lost before their release.",
		}, []string{"reason"}),
		holding: prometheus.NewGauge(prometheus.GaugeOpts{Name: "firsttap_lock_leases", Help: "Leases that are not released."}),
		holdTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "firsttap_lock_hold_seconds", Help: "Time from the acquisition of a lease to its release.",
			Buckets: prometheus.ExponentialBuckets(.001, 4, 12),
		}),
		slackLeft: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "firsttap_lock_renewal_slack_ratio",
			Help:    "Time that a lease still had when its renewal was answered, as a fraction of the TTL.",
			Buckets: prometheus.LinearBuckets(0, .1, 10),
		}),
	}
	for _, reason := range reasons {
		m.lost.WithLabelValues(reason.label) // exports a zero, without which the first loss would not show in a rate
	}
	if r != nil {
		r.MustRegister(m.attempts, m.acquired, m.held, m.unavailable, m.nearMisses, m.lost, m.holding, m.holdTime, m.slackLeft)
	}
	return m
}

// reasons are the values of the label "reason".
var reasons = []struct {
	err   error
	label string
}{
	{ErrStolen, "stolen"}, {ErrUnreachable, "unreachable"}, {ErrMaxHold, "max_hold"}, {ErrStalled, "stalled"}, {ErrExpired, "expired"},
}

func (m *Metrics) attempt(err error) {
	m.attempts.Inc()
	switch {
	case err == nil:
		m.acquired.Inc()
	case errors.Is(err, ErrHeld):
		m.held.Inc()
	case errors.Is(err, ErrUnavailable):
		m.unavailable.Inc()
	}
}

func (m *Metrics) release(held time.Duration) {
	m.holding.Dec()
	m.holdTime.Observe(held.Seconds())
}

func (m *Metrics) lose(reason error) {
	for _, r := range reasons {
		if errors.Is(reason, r.err) {
			m.lost.WithLabelValues(r.label).Inc()
			return
		}
	}
}

func (m *Metrics) renewed(slack, ttl time.Duration) {
	left := slack.Seconds() / ttl.Seconds()
	m.slackLeft.Observe(left)
	if left < nearMiss {
		m.nearMisses.Inc()
	}
}
