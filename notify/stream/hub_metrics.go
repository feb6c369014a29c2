package stream

import "github.com/prometheus/client_golang/prometheus"

type hubMetrics struct {
	drivers, admins                       prometheus.Gauge
	replaced, lagging, stalled            prometheus.Counter
	delivered, resyncs, overflow, outages prometheus.Counter
}

// newHubMetrics registers with r; nil keeps them to itself.
func newHubMetrics(r prometheus.Registerer) *hubMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	open := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "firsttap_stream_open", Help: "Open live streams, by kind."}, []string{"kind"})
	cut := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "firsttap_stream_cut_total", Help: "Live streams that this instance closed early, by reason.",
	}, []string{"reason"})
	m := &hubMetrics{
		drivers: open.WithLabelValues("driver"), admins: open.WithLabelValues("admin"),
		replaced: cut.WithLabelValues("replaced"), lagging: cut.WithLabelValues("lagging"), stalled: cut.WithLabelValues("stalled"),
		delivered: counter("firsttap_stream_messages_total", "Messages written to live streams."),
		resyncs:   counter("firsttap_stream_resyncs_total", "Resync events sent to live streams."),
		outages:   counter("firsttap_stream_outages_total", "Times that the live streams switched to local-only mode because Redis was down."),
		overflow:  counter("firsttap_stream_overflow_total", "Events dropped on the way to the live streams because a queue was full."),
	}
	if r != nil {
		r.MustRegister(open, cut, m.delivered, m.resyncs, m.overflow, m.outages)
	}
	return m
}
