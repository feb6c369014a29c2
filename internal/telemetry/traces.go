package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"firsttap/internal/redisclient"
	"firsttap/repository/database"
)

const (
	// traceTime bounds how long the stop waits until the last spans are sent.
	traceTime = 2 * time.Second
	// maxQueryText cuts the text of a statement: one that adds a thousand drivers is mostly placeholders.
	maxQueryText = 500
)

// traces makes spans of requests, of their statements and Redis commands, and of requests to FCM. A span never holds values.
// The exporter's queue drops spans when it is full, so no request waits for the collector.
type traces struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// openTraces exports spans as the SDK's own environment variables say. It does not connect.
func openTraces(ctx context.Context, o Options) (*traces, error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "firsttap"), attribute.String("service.version", o.Version),
		attribute.String("service.instance.id", o.Instance),
	), resource.WithTelemetrySDK(), resource.WithFromEnv()) // last, so that OTEL_RESOURCE_ATTRIBUTES wins
	if err != nil {
		return nil, errors.Join(fmt.Errorf("traces: %w", err), exporter.Shutdown(ctx))
	}
	// The SDK has one error handler for the process, and calls it for each batch.
	now := &rate.Sometimes{First: 1, Interval: time.Minute}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		now.Do(func() { o.Log.Warn("spans were not exported and are lost; the next batch is tried", "error", err) })
	}))
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	return &traces{provider: provider, tracer: provider.Tracer("firsttap")}, nil
}

// Close sends the remaining spans, for traceTime at most. An absent collector is no error of the service.
func (t *traces) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), traceTime)
	defer cancel()
	_ = t.provider.Shutdown(ctx)
	return nil
}

// options turn off OpenTelemetry's metrics: Prometheus has them.
func (t *traces) options(more ...otelhttp.Option) []otelhttp.Option {
	return append(more, otelhttp.WithTracerProvider(t.provider), otelhttp.WithMeterProvider(noop.NewMeterProvider()))
}

// server makes each request a span named by its route, in the caller's trace if the request has a traceparent. Probes and live
// streams are not traced: a stream lasts for an hour.
func (t *traces) server(api http.Handler) http.Handler {
	routed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.ServeHTTP(w, r)
		trace.SpanFromContext(r.Context()).SetAttributes(
			attribute.String("http.route", r.Pattern), attribute.String("firsttap.request_id", w.Header().Get("X-Request-Id")))
	})
	return otelhttp.NewHandler(routed, "request", t.options(
		otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithFilter(func(r *http.Request) bool {
			return r.URL.Path != "/livez" && r.URL.Path != "/readyz" && !strings.HasSuffix(r.URL.Path, "/stream")
		}),
	)...)
}

// client makes each request to FCM a span. It sends FCM no traceparent.
func (t *traces) client(to http.RoundTripper) http.RoundTripper {
	return otelhttp.NewTransport(to, t.options(otelhttp.WithPropagators(propagation.NewCompositeTextMapPropagator()))...)
}

// statements makes each statement within a trace a span, and calls next.
func (t *traces) statements(system string, next database.StatementObserver) database.StatementObserver {
	return func(ctx context.Context, s database.Statement) (context.Context, func(error)) {
		ctx, answered := next(ctx, s)
		span := t.step(&ctx, s.Operation)
		if span == nil {
			return ctx, answered
		}
		span.SetAttributes(attribute.String("db.system.name", system), attribute.String("db.operation.name", s.Operation),
			attribute.String("firsttap.pool", s.Pool))
		if s.Query != "" {
			span.SetAttributes(attribute.String("db.query.text", s.Query[:min(len(s.Query), maxQueryText)]))
		}
		return ctx, func(err error) { end(span, err, answered) }
	}
}

// commands makes each Redis command within a trace a span, and calls next.
func (t *traces) commands(next redisclient.Observer) redisclient.Observer {
	return func(ctx context.Context, command string) (context.Context, func(error)) {
		ctx, answered := next(ctx, command)
		span := t.step(&ctx, command)
		if span == nil {
			return ctx, answered
		}
		span.SetAttributes(attribute.String("db.system.name", "redis"), attribute.String("db.operation.name", command))
		return ctx, func(err error) { end(span, err, answered) }
	}
}

// step begins a child of the span in ctx. It returns nil without one: background work is not traced.
func (t *traces) step(ctx *context.Context, name string) trace.Span {
	if !trace.SpanFromContext(*ctx).IsRecording() {
		return nil
	}
	var span trace.Span
	*ctx, span = t.tracer.Start(*ctx, name, trace.WithSpanKind(trace.SpanKindClient))
	return span
}

// end ends a span. It records the type of an error but not its text, which may hold values. A step that the caller canceled has not failed.
func end(span trace.Span, err error, answered func(error)) {
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			span.SetStatus(codes.Error, "")
		}
		span.SetAttributes(attribute.String("error.type", fmt.Sprintf("%T", err)))
	}
	span.End()
	answered(err)
}

// tracedLog adds the trace id to each record of a traced request.
type tracedLog struct{ slog.Handler }

// Handle implements slog.Handler.
func (l tracedLog) Handle(ctx context.Context, r slog.Record) error {
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		r.AddAttrs(slog.String("trace_id", s.TraceID().String()))
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l tracedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return tracedLog{l.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (l tracedLog) WithGroup(name string) slog.Handler { return tracedLog{l.Handler.WithGroup(name)} }
