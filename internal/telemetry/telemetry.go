package telemetry

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"firsttap/internal/redisclient"
	"firsttap/repository/database"
)

// Telemetry is what operators observe of a process: metrics always, traces where the settings ask for them.
type Telemetry struct {
	*prometheus.Registry
	Requests  *RequestMetrics
	traces    *traces // nil: no request is traced
	statement database.StatementObserver
}

// Options configure a Telemetry.
type Options struct {
	// Database is the scheme of the database's URL. Spans name it as the kind of database.
	Database string
	// Version and Instance identify the process in its traces.
	Version, Instance string
	Tracing           bool // spans are sent where OTEL_EXPORTER_OTLP_ENDPOINT says
	Log               *slog.Logger
}

// Open returns a Telemetry. It does not connect, so a missing trace collector is no error.
func Open(ctx context.Context, o Options) (*Telemetry, error) {
	t := &Telemetry{Registry: newRegistry()}
	t.Requests = newRequestMetrics(t)
	t.statement = t.Requests.statement
	if !o.Tracing {
		return t, nil
	}
	var err error
	if t.traces, err = openTraces(ctx, o); err != nil {
		return nil, err
	}
	t.statement = t.traces.statements(o.Database, t.statement)
	return t, nil
}

// Close sends the spans that are left, for traceTime at most.
func (t *Telemetry) Close() error {
	if t.traces == nil {
		return nil
	}
	return t.traces.Close()
}

// WrapServer wraps the API with tracing.
func (t *Telemetry) WrapServer(api http.Handler) http.Handler {
	if t.traces == nil {
		return api
	}
	return t.traces.server(api)
}

// WrapLogger adds the trace id to each line that is logged for a traced request.
func (t *Telemetry) WrapLogger(log *slog.Logger) *slog.Logger {
	if t.traces == nil {
		return log
	}
	return slog.New(tracedLog{log.Handler()})
}

// Statement observes a statement of the database: it is a database.StatementObserver.
func (t *Telemetry) Statement(ctx context.Context, s database.Statement) (context.Context, func(error)) {
	return t.statement(ctx, s)
}

// WatchRedis observes the commands of a client, and counts its connections under the name of its purpose.
func (t *Telemetry) WatchRedis(purpose string, client redisclient.Client) {
	var watch redisclient.Observer = t.Requests.command
	if t.traces != nil {
		watch = t.traces.commands(watch)
	}
	redisclient.Instrument(client, watch)
	watchConnections(t, purpose, client)
}

// WrapTransport makes each request that passes through next a span. Without tracing it returns next.
func (t *Telemetry) WrapTransport(next http.RoundTripper) http.RoundTripper {
	if t.traces == nil {
		return next
	}
	return t.traces.client(next)
}

// newRegistry returns a registry with the metrics of the Go runtime and the process.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// WithStrategy adds the label strategy to what is registered with r.
func WithStrategy(name string, r prometheus.Registerer) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"strategy": name}, r)
}

// NewLogger writes text to a terminal and JSON to anything else. A duration is written with its unit, to three digits.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			d := a.Value.Duration()
			digits := time.Duration(1)
			for abs := d.Abs(); abs/digits >= 1000; {
				digits *= 10
			}
			a.Value = slog.StringValue(d.Round(digits).String())
		}
		return a
	}}
	if IsTerminal(w) {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// IsTerminal reports whether w shows what is written to a person. /dev/null is a device, but no terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
