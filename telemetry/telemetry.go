package telemetry

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/redisclient"
	"firsttap/repository"
)

// Telemetry is what operators see from outside: metrics always, and traces where they are wanted.
type Telemetry struct {
	*prometheus.Registry
	API    *apiMetrics
	traces *traces // nil: there are none, and nothing is done about them
	system string  // what kind of database there is
}

// Options say what is observed, and under which names.
type Options struct {
	// Database is the scheme of the database's URL: what kind of database spans name.
	Database string
	// Version and Instance identify the process in its traces.
	Version, Instance string
	Tracing           bool // spans are sent where OTEL_EXPORTER_OTLP_ENDPOINT says
	Log               *slog.Logger
}

// Open does not connect: the collector of the traces need not be there.
func Open(ctx context.Context, o Options) (*Telemetry, error) {
	t := &Telemetry{Registry: newRegistry(), system: o.Database}
	t.API = newAPIMetrics(t)
	if !o.Tracing {
		return t, nil
	}
	var err error
	t.traces, err = openTraces(ctx, o)
	return t, err
}

// Close sends the spans that are left, for traceTime at most.
func (t *Telemetry) Close() error {
	if t.traces == nil {
		return nil
	}
	return t.traces.Close()
}

// Server has what is served seen.
func (t *Telemetry) Server(api http.Handler) http.Handler {
	if t.traces == nil {
		return api
	}
	return t.traces.server(api)
}

// Log names the trace in each line that is written on behalf of one.
func (t *Telemetry) Log(log *slog.Logger) *slog.Logger {
	if t.traces == nil {
		return log
	}
	return slog.New(tracedLog{log.Handler()})
}

// Store has the database's answers seen, and whether it is up.
func (t *Telemetry) Store(s *repository.Store, up func() bool) {
	watchStore(t, s, up)
	var watch repository.Watch = t.API.statement
	if t.traces != nil {
		watch = t.traces.statements(t.system, watch)
	}
	s.Watch(watch)
}

// Redis has the answers to a client seen, and its connections counted under the name of what it is for.
func (t *Telemetry) Redis(name string, client redisclient.Client) {
	var watch redisclient.Watch = t.API.command
	if t.traces != nil {
		watch = t.traces.commands(watch)
	}
	redisclient.Observe(client, watch)
	watchConnections(t, name, client)
}

// Outgoing makes each request through to a span. It returns to itself where there are no traces.
func (t *Telemetry) Outgoing(to http.RoundTripper) http.RoundTripper {
	if t.traces == nil {
		return to
	}
	return t.traces.client(to)
}
