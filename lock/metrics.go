package lock

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts what a Locker or a Gate does. Several may share one.
type Metrics struct {
	attempts, acquired, held, unavailable, nearMisses prometheus.Counter

	lost      *prometheus.CounterVec
	holding   prometheus.Gauge
	holdTime  prometheus.Histogram
	slackLeft prometheus.Histogram
}

// nearMiss is the part of the TTL that must be left when a renewal is answered. Below it, something is too slow.
const nearMiss = 0.2

// NewMetrics registers the metrics with r; nil keeps them to itself. Wrap r with prometheus.WrapRegistererWith to tell
// several strategies apart.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "firsttap_lock_" + name, Help: help})
	}
	m := &Metrics{
		attempts:    counter("attempts_total", "Times a name was asked for."),
		acquired:    counter("acquired_total", "Attempts that got the name."),
		held:        counter("held_total", "Attempts that found somebody else in possession."),
		unavailable: counter("unavailable_total", "Attempts that nobody answered."),
		nearMisses:  counter("near_misses_total", "Renewals that came with less than a fifth of the TTL left."),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_lock_lost_total", Help: "Leases that were lost before their release.",
		}, []string{"reason"}),
		holding: prometheus.NewGauge(prometheus.GaugeOpts{Name: "firsttap_lock_leases", Help: "Leases that are not released."}),
		holdTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "firsttap_lock_hold_seconds", Help: "Time from the acquisition of a lease to its release.",
			Buckets: prometheus.ExponentialBuckets(.001, 4, 12),
		}),
		slackLeft: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "firsttap_lock_renewal_slack_ratio", Help: "Time that a lease still had when its renewal was answered, as a fraction of the TTL.",
			Buckets: prometheus.LinearBuckets(0, .1, 10),
		}),
	}
	for _, reason := range reasons {
		m.lost.WithLabelValues(reason.label) // a rate needs the zero before the first
	}
	if r != nil {
		r.MustRegister(m.attempts, m.acquired, m.held, m.unavailable, m.nearMisses, m.lost, m.holding, m.holdTime, m.slackLeft)
	}
	return m
}

// reasons are the labels of the ways to lose a lease.
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
