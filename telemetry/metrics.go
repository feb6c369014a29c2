package telemetry

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"firsttap/dispatch"
	"firsttap/lock"
	"firsttap/redisclient"
	"firsttap/repository"
	"firsttap/service"
)

// RequestMetrics counts requests, claims and sign-ins, and times requests, statements and Redis commands. Every label has few
// values: a route is its pattern, a method one of HTTP's.
type RequestMetrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	claims    *prometheus.CounterVec
	decisions *prometheus.CounterVec
	signIns   *prometheus.CounterVec
	database  *prometheus.HistogramVec
	redis     *prometheus.HistogramVec
}

var (
	_ service.Counter       = (*RequestMetrics)(nil)
	_ service.SignInCounter = (*RequestMetrics)(nil)
)

// newRequestMetrics registers with r.
func newRequestMetrics(r prometheus.Registerer) *RequestMetrics {
	m := &RequestMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_http_requests_total", Help: "HTTP requests answered, by route, method and status.",
		}, []string{"route", "method", "status"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "firsttap_http_request_duration_seconds", Help: "Time from a request to its answer, without the live streams.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10},
		}, []string{"route", "method"}),
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_claims_total", Help: "Taps on Accept, by answer.",
		}, []string{"result"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_gate_decisions_total", Help: "Taps on Accept, by the layer that decided and its decision.",
		}, []string{"layer", "decision"}),
		signIns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_sign_ins_total", Help: "Session sign-ins, and refused keys and tokens, by door and result.",
		}, []string{"door", "result"}),
		database: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "firsttap_database_duration_seconds", Help: "Time from a statement to the start of its answer; begin includes the wait for a connection.",
			Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
		}, []string{"operation", "pool"}),
		redis: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "firsttap_redis_duration_seconds", Help: "Time from a Redis command to its answer or its timeout.",
			Buckets: []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1},
		}, []string{"command"}),
	}
	for _, result := range claimResults() {
		m.claims.WithLabelValues(string(result)) // rate() needs the zero before the first claim
	}
	for layer, decisions := range map[service.Layer][]service.Decision{
		service.LayerMemory: {service.DecisionRefused}, service.LayerInFlight: {service.DecisionRefused, service.DecisionJoined},
		service.LayerMarker: {service.DecisionRefused}, service.LayerLock: {service.DecisionRefused},
		service.LayerDatabase:  {service.DecisionWon, service.DecisionReplayed, service.DecisionRefused, service.DecisionFailed},
		service.LayerSidelined: {service.DecisionWon, service.DecisionReplayed, service.DecisionRefused, service.DecisionFailed},
	} {
		for _, d := range decisions {
			m.decisions.WithLabelValues(string(layer), string(d))
		}
	}
	m.signIns.WithLabelValues(string(service.AuthSession), string(service.SignInOK))
	for _, door := range []service.AuthMethod{service.AuthSession, service.AuthKey, service.AuthToken} {
		for _, result := range []service.SignInResult{service.SignInFailed, service.SignInLimited} {
			m.signIns.WithLabelValues(string(door), string(result))
		}
	}
	r.MustRegister(m.requests, m.durations, m.claims, m.decisions, m.signIns, m.database, m.redis)
	return m
}

func claimResults() []service.ClaimResult {
	return []service.ClaimResult{
		service.ClaimResult(dispatch.AttemptWon), service.ClaimReplayed, "ALREADY_TAKEN", "OFFER_STALE", "DRIVER_BUSY", "NOT_OPEN_YET",
		"NOT_ELIGIBLE", "DISPATCH_EXPIRED", "DISPATCH_CANCELED", service.ClaimNotFound, service.ClaimResult(dispatch.AttemptUnavailable),
	}
}

// CountClaim implements service.Counter.
func (m *RequestMetrics) CountClaim(r service.ClaimResult) { m.claims.WithLabelValues(string(r)).Inc() }

// CountDecision implements service.Counter.
func (m *RequestMetrics) CountDecision(l service.Layer, d service.Decision) {
	m.decisions.WithLabelValues(string(l), string(d)).Inc()
}

// CountSignIn implements service.SignInCounter.
func (m *RequestMetrics) CountSignIn(d service.AuthMethod, r service.SignInResult) {
	m.signIns.WithLabelValues(string(d), string(r)).Inc()
}

// methods are the values of the method label. A caller can send any other.
var methods = []string{
	http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions,
}

// ObserveRequest counts an answered request. Without a route, no label has a value that the caller could choose.
func (m *RequestMetrics) ObserveRequest(method, route string, status int, took time.Duration) {
	if route == "" {
		route = "none"
	}
	if !slices.Contains(methods, method) {
		method = "other"
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	if !strings.HasSuffix(route, "/stream") {
		m.durations.WithLabelValues(route, method).Observe(took.Seconds())
	}
}

// statement times a statement of the database.
func (m *RequestMetrics) statement(ctx context.Context, s repository.Statement) (context.Context, func(error)) {
	began := time.Now()
	return ctx, func(error) {
		m.database.WithLabelValues(s.Operation, s.Pool).Observe(time.Since(began).Seconds())
	}
}

// command times a Redis command.
func (m *RequestMetrics) command(ctx context.Context, name string) (context.Context, func(error)) {
	began := time.Now()
	return ctx, func(error) { m.redis.WithLabelValues(name).Observe(time.Since(began).Seconds()) }
}

// WatchStore exports the database's connection pools and whether it is up.
func (t *Telemetry) WatchStore(store *repository.Store, up func() bool) {
	for name, pool := range store.Pools() {
		t.MustRegister(collectors.NewDBStatsCollector(pool, name))
	}
	t.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "firsttap_database_up", Help: "1 while the database takes writes, checked once a second.",
	}, func() float64 {
		if up() {
			return 1
		}
		return 0
	}))
}

// WatchGate exports how long the gate was without Redis. A nil gate counts nothing.
func (t *Telemetry) WatchGate(gate *lock.Gate) {
	t.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "firsttap_redis_degraded_seconds_total", Help: "Time that this instance has run without Redis.",
	}, func() float64 {
		if gate == nil {
			return 0
		}
		return gate.DegradedFor().Seconds()
	}))
}

// watchConnections exports the connections of a Redis client under the name of its purpose.
func watchConnections(r prometheus.Registerer, name string, client redisclient.Client) {
	r = prometheus.WrapRegistererWith(prometheus.Labels{"pool": name}, r)
	gauge := func(metric, help string, value func() uint32) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metric, Help: help}, func() float64 { return float64(value()) })
	}
	r.MustRegister(
		gauge("firsttap_redis_pool_open", "Open connections to Redis.", func() uint32 { return client.PoolStats().TotalConns }),
		gauge("firsttap_redis_pool_idle", "Idle connections to Redis.", func() uint32 { return client.PoolStats().IdleConns }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "firsttap_redis_pool_timeouts_total", Help: "Timeouts of the wait for a connection to Redis.",
		}, func() float64 { return float64(client.PoolStats().Timeouts) }))
}
