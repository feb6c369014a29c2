package notify

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
)

// relayMetrics are the metrics of a Relay.
type relayMetrics struct {
	results     *prometheus.CounterVec
	unsent      *prometheus.CounterVec
	delay       *prometheus.HistogramVec
	overflow    prometheus.Counter
	suspected   prometheus.Counter
	cleared     prometheus.Counter
	quarantined prometheus.Counter
	platforms   *prometheus.CounterVec
	topics      *prometheus.CounterVec
	backlog     atomic.Pointer[backlog]
	// distrusted is until when the push service is shown as not believed, in Unix nanoseconds.
	distrusted atomic.Int64
}

func newRelayMetrics(r prometheus.Registerer, c *throttle) *relayMetrics {
	m := &relayMetrics{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_push_attempts_total", Help: "Requests to the push service, by outcome.",
		}, []string{"class"}),
		unsent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_push_dropped_total", Help: "Notifications that were dropped before they were sent.",
		}, []string{"reason"}),
		delay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "firsttap_push_delay_seconds", Help: "Time from the commit of an event to the first request to the push service.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300},
		}, []string{"type"}),
		overflow: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "firsttap_push_overflow_total", Help: "Events that wait for their lease to end because the relay's queue was full.",
		}),
		suspected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "firsttap_push_tokens_suspected_total", Help: "Tokens that the push service reported dead for the first time.",
		}),
		cleared: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "firsttap_push_tokens_cleared_total", Help: "Suspected tokens that the push service accepted again.",
		}),
		quarantined: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "firsttap_push_tokens_quarantined_total", Help: "Tokens that were quarantined: nothing is pushed to them.",
		}),
		platforms: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_push_platform_closed_total", Help: "Pauses of a platform whose credentials the push service lacks.",
		}, []string{"platform"}),
		topics: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_push_topic_calls_total", Help: "Calls that subscribe or unsubscribe an audience, by outcome.",
		}, []string{"class"}),
	}
	for _, class := range []Class{
		Sent, DeadToken, BadToken, WrongSender, Poison, Quota, Auth, PlatformAuth, Unavailable, Unreached, Unsure,
	} {
		m.results.WithLabelValues(string(class)) // a rate needs the zero before the first
	}
	if r == nil {
		return m
	}
	state := func(name, help string, value func(throttleState) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return value(c.state(time.Now())) })
	}
	distrusted := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "firsttap_push_distrusted", Help: "1 for some minutes after the push service called tokens dead twice and was not believed.",
	}, func() float64 { return oneIf(time.Now().UnixNano() < m.distrusted.Load()) })
	r.MustRegister(
		distrusted,
		m.results,
		m.unsent,
		m.delay,
		m.overflow,
		m.suspected,
		m.cleared,
		m.quarantined,
		m.platforms,
		m.topics,
		m.ofBacklog("firsttap_push_backlog", "Notifications that are due and not leased, over all instances.",
			func(b *backlog) float64 { return float64(b.due) }),
		m.ofBacklog("firsttap_push_backlog_age_seconds", "How long the oldest due notification has been due.",
			func(b *backlog) float64 { return b.oldest.Seconds() }),
		m.ofBacklog("firsttap_push_topics_per_device", "The largest number of topics that a device has.",
			func(b *backlog) float64 { return float64(b.topics) }),
		state("firsttap_push_width", "How many requests may be in flight.", func(s throttleState) float64 { return float64(s.limit) }),
		state("firsttap_push_paused_seconds", "Rest of the pause in which nothing is sent.",
			func(s throttleState) float64 { return s.paused.Seconds() }),
		state("firsttap_push_circuit_open",
			"1 while the push service refuses our credentials, until 3 minutes after the last refusal.",
			func(s throttleState) float64 { return oneIf(s.refused) }),
	)
	return m
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func (m *relayMetrics) countDropped(reason string, n int) {
	if n > 0 {
		m.unsent.WithLabelValues(reason).Add(float64(n))
	}
}

func (m *relayMetrics) observeDelay(p outbox.Push, now time.Time) {
	if p.Attempts == 0 && !p.Tried {
		m.delay.WithLabelValues(string(p.Type)).Observe(max(0, now.Sub(p.EventAt).Seconds()))
	}
}

func (m *relayMetrics) countAttempt(o Outcome) {
	m.results.WithLabelValues(string(o.Class)).Inc()
}

// countVerdicts counts verdicts that were recorded.
func (m *relayMetrics) countVerdicts(what outbox.Verdict, devices int) {
	switch what {
	case outbox.Suspected:
		m.suspected.Add(float64(devices))
	case outbox.Quarantined:
		m.quarantined.Add(float64(devices))
	case outbox.Trusted:
		m.cleared.Add(float64(devices))
	}
}

func (m *relayMetrics) countTopicCall(o Outcome) { m.topics.WithLabelValues(string(o.Class)).Inc() }

func (m *relayMetrics) platformClosed(p dispatch.Platform) {
	m.platforms.WithLabelValues(string(p)).Inc()
}

// backlog is what is due for all instances, and the most topics of a device.
type backlog struct {
	due    int
	oldest time.Duration
	topics int
	readAt time.Time
}

const (
	backlogInterval = 10 * time.Second
	// backlogKnown is how long a backlog is shown that is not read again: a process that relays no more knows no newer one.
	backlogKnown = 3 * backlogInterval
)

func (m *relayMetrics) ofBacklog(name, help string, value func(*backlog) float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		b := m.backlog.Load()
		if b == nil || time.Since(b.readAt) > backlogKnown {
			return 0
		}
		return value(b)
	})
}

// watchBacklog reads the backlog for the metrics until ctx ends.
func (r *Relay) watchBacklog(ctx context.Context) {
	tick := time.NewTicker(backlogInterval)
	defer tick.Stop()
	var topics topicCount
	for {
		if due, oldest, err := r.readBacklog(ctx); err == nil {
			r.metrics.backlog.Store(&backlog{due: due, oldest: oldest, topics: topics.next(ctx, r.options.Topics), readAt: time.Now()})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// readBacklog counts the backlog, unless a poll says that no notification is due.
func (r *Relay) readBacklog(ctx context.Context) (due int, oldest time.Duration, err error) {
	next, err := r.readDue(ctx)
	if at := next.Notifications; err == nil && (at.IsZero() || at.After(time.Now())) {
		return 0, 0, nil
	}
	return r.options.Notifications.Backlog(ctx)
}
