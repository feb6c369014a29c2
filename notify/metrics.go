package notify

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
)

// relayMetrics are what operators see of a Relay.
type relayMetrics struct {
	results     *prometheus.CounterVec
	unsent      *prometheus.CounterVec
	delay       *prometheus.HistogramVec
	overflow    prometheus.Counter
	quarantined prometheus.Counter
	platforms   *prometheus.CounterVec
	topics      *prometheus.CounterVec
	backlog     prometheus.Gauge
	backlogAge  prometheus.Gauge
	// answers counts what the push service answered at all.
	answers atomic.Int64
}

func newRelayMetrics(r prometheus.Registerer, c *channel) *relayMetrics {
	m := &relayMetrics{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_push_attempts_total", Help: "Requests to the push service, by what they came to.",
		}, []string{"class"}),
		unsent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_push_dropped_total", Help: "Notifications that were of no use any more before they were sent.",
		}, []string{"reason"}),
		delay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "firsttap_push_delay_seconds", Help: "From the commit of what is told to the first request to the push service.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300},
		}, []string{"type"}),
		overflow: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "firsttap_push_overflow_total", Help: "Events that wait for their lease to end because too many were committed at once.",
		}),
		quarantined: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "firsttap_push_tokens_quarantined_total", Help: "Tokens that the push service called dead.",
		}),
		platforms: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_push_platform_closed_total", Help: "How often a platform could not be reached with the credentials there are.",
		}, []string{"platform"}),
		topics: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_push_topic_calls_total", Help: "Calls that subscribe or unsubscribe an audience, by what they came to.",
		}, []string{"class"}),
		backlog: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "firsttap_push_backlog", Help: "Notifications that are due and not leased, over all instances.",
		}),
		backlogAge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "firsttap_push_backlog_age_seconds", Help: "For how long the oldest of them has been due.",
		}),
	}
	if r == nil {
		return m
	}
	state := func(name, help string, value func(channelState) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return value(c.state(time.Now())) })
	}
	r.MustRegister(m.results, m.unsent, m.delay, m.overflow, m.quarantined, m.platforms, m.topics, m.backlog, m.backlogAge,
		state("firsttap_push_width", "How many requests may be under way.", func(s channelState) float64 { return float64(s.width) }),
		state("firsttap_push_paused_seconds", "How long nothing is sent yet.", func(s channelState) float64 { return s.paused.Seconds() }),
		state("firsttap_push_circuit_open", "1 while the push service refuses us.", func(s channelState) float64 {
			if s.circuit != "" {
				return 1
			}
			return 0
		}))
	return m
}

func (m *relayMetrics) dropped(reason string, n int) {
	if n > 0 {
		m.unsent.WithLabelValues(reason).Add(float64(n))
	}
}

func (m *relayMetrics) started(p dispatch.Push, now time.Time) {
	if p.Attempts == 0 {
		m.delay.WithLabelValues(string(p.Type)).Observe(max(0, now.Sub(p.At).Seconds()))
	}
}

func (m *relayMetrics) attempted(o Outcome) {
	switch o.Class {
	case Unreached, Unavailable, Unsure, Quota, Auth:
	default:
		m.answers.Add(1)
	}
	m.results.WithLabelValues(string(o.Class)).Inc()
}

func (m *relayMetrics) topic(o Outcome) { m.topics.WithLabelValues(string(o.Class)).Inc() }

func (m *relayMetrics) platformClosed(p dispatch.Platform) {
	m.platforms.WithLabelValues(string(p)).Inc()
}
