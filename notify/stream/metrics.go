package stream

import "github.com/prometheus/client_golang/prometheus"

type hubMetrics struct {
	drivers, admins                       prometheus.Gauge
	replaced, lagging, stalled            prometheus.Counter
	delivered, resyncs, overflow, outages prometheus.Counter
}

// newHubMetrics registers the metrics with r, unless r is nil.
func newHubMetrics(r prometheus.Registerer) *hubMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "firsttap_stream_" + name, Help: help})
	}
	open := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "firsttap_stream_open", Help: "Open live streams."}, []string{"kind"})
	cut := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "firsttap_stream_cut_total", Help: "Live streams that this instance closed early, by reason.",
	}, []string{"reason"})
	m := &hubMetrics{
		drivers: open.WithLabelValues("driver"), admins: open.WithLabelValues("admin"),
		replaced: cut.WithLabelValues("replaced"), lagging: cut.WithLabelValues("lagging"), stalled: cut.WithLabelValues("stalled"),
		delivered: counter("messages_total", "Messages written to live streams."),
		resyncs:   counter("resyncs_total", "Resync messages written to live streams."),
		outages:   counter("outages_total", "Outages of Redis, during which live streams got the events of this instance only."),
		overflow:  counter("overflow_total", "Events that were dropped because the queue for the live streams was full."),
	}
	if r != nil {
		r.MustRegister(open, cut, m.delivered, m.resyncs, m.overflow, m.outages)
	}
	return m
}
