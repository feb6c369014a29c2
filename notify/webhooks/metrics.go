package webhooks

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch/webhook"
)

// The results of an attempt, as a metric's label.
const (
	resultDelivered = "delivered"
	resultRefused   = "refused" // an answer that is neither 2xx nor 410
	resultGone      = "gone"
	resultNoAnswer  = "no_answer"
)

type metrics struct {
	attempts *prometheus.CounterVec
	seconds  prometheus.Histogram
	paused   *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_webhook_attempts_total", Help: "Attempts to deliver a webhook, by result.",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "firsttap_webhook_attempt_seconds", Help: "How long attempts to deliver a webhook took.",
			Buckets: []float64{.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10},
		}),
		paused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_webhook_paused_total", Help: "Webhook endpoints that were paused because they failed for too long or are gone.",
		}, []string{"reason"}),
	}
	// A rate needs the zero before the first.
	for _, result := range []string{resultDelivered, resultRefused, resultGone, resultNoAnswer} {
		m.attempts.WithLabelValues(result)
	}
	for _, reason := range []webhook.PauseReason{webhook.PausedFailing, webhook.PausedGone} {
		m.paused.WithLabelValues(labelOf(reason))
	}
	if r != nil {
		r.MustRegister(m.attempts, m.seconds, m.paused)
	}
	return m
}

func labelOf(reason webhook.PauseReason) string { return strings.ToLower(string(reason)) }

func (m *metrics) observe(r *webhook.Result) {
	result := resultRefused
	switch {
	case r.Succeeded():
		result = resultDelivered
	case r.Gone:
		result = resultGone
	case r.Attempt.HTTPStatus == 0:
		result = resultNoAnswer
	}
	m.attempts.WithLabelValues(result).Inc()
	m.seconds.Observe(r.Attempt.Took.Seconds())
}

func (m *metrics) countPaused(reason webhook.PauseReason) {
	m.paused.WithLabelValues(labelOf(reason)).Inc()
}
