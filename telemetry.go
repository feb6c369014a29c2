package main

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/lock"
	"firsttap/notify"
	"firsttap/repository"
)

// telemetry is what operators see from outside: metrics always, and traces where they are wanted.
type telemetry struct {
	*prometheus.Registry
	api    *apiMetrics
	traces *traces // nil: there are none, and nothing is done about them
	system string  // what kind of database there is
}

// telemetryOptions say what is observed, and under which names.
type telemetryOptions struct {
	// Database is the scheme of the database's URL: what kind of database spans name.
	Database string
	// Version and Instance identify the process in its traces.
	Version, Instance string
	Tracing           bool // spans are sent where OTEL_EXPORTER_OTLP_ENDPOINT says
	Log               *slog.Logger
}

// openTelemetry does not connect: the collector of the traces need not be there.
func openTelemetry(ctx context.Context, o telemetryOptions) (*telemetry, error) {
	t := &telemetry{Registry: newMetrics(), system: o.Database}
	t.api = newAPIMetrics(t)
	if !o.Tracing {
		return t, nil
	}
	var err error
	t.traces, err = openTraces(ctx, o)
	return t, err
}

// Close sends the spans that are left, for traceTime at most.
func (t *telemetry) Close() error {
	if t.traces == nil {
		return nil
	}
	return t.traces.Close()
}

// server has what is served seen.
func (t *telemetry) server(api http.Handler) http.Handler {
	if t.traces == nil {
		return api
	}
	return t.traces.server(api)
}

// log names the trace in each line that is written on behalf of one.
func (t *telemetry) log(log *slog.Logger) *slog.Logger {
	if t.traces == nil {
		return log
	}
	return slog.New(tracedLog{log.Handler()})
}

// store has the database's answers seen, and whether it is up.
func (t *telemetry) store(s *repository.Store, up func() bool) {
	watchStore(t, s, up)
	var watch repository.Watch = t.api.statement
	if t.traces != nil {
		watch = t.traces.statements(t.system, watch)
	}
	s.Watch(watch)
}

// redis has the answers to a client seen, and its connections counted under the name of what it is for.
func (t *telemetry) redis(name string, client lock.Client) {
	var watch lock.Watch = t.api.command
	if t.traces != nil {
		watch = t.traces.commands(watch)
	}
	lock.WatchRedis(client, watch)
	watchConnections(t, name, client)
}

// push has what is asked of FCM seen.
func (t *telemetry) push(o notify.FCMOptions) notify.FCMOptions {
	if t.traces != nil {
		o.Through = t.traces.client
	}
	return o
}
