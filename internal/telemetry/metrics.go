package telemetry

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"firsttap/dispatch"
	"firsttap/internal/auth"
	"firsttap/internal/redisclient"
	"firsttap/lock"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/service"
)

// RequestMetrics counts requests, claims and sign-ins, and times requests, statements and Redis commands. Every label has few
// values: a route is its pattern, a method one of HTTP's.
type RequestMetrics struct {
	answers   memo[answer, answerMetrics]
	claims    memo[service.ClaimResult, prometheus.Counter]
	decisions memo[decision, prometheus.Counter]
	signIns   *prometheus.CounterVec
	database  *prometheus.HistogramVec
	redis     *prometheus.HistogramVec
}

// answer is a kind of answer to a request.
type answer struct {
	route, method string
	status        int
}

type answerMetrics struct {
	count    prometheus.Counter
	duration prometheus.Observer // nil for a live stream
}

type decision struct {
	layer    service.Layer
	decision service.Decision
}

// memo keeps what find returned for each key: the look-up of a metric by its labels costs more than counting. There must be few
// keys. It is safe for concurrent use, and takes no lock.
type memo[K comparable, V any] struct {
	find func(K) V
	// known is replaced, never changed.
	known atomic.Pointer[map[K]V]
}

func (m *memo[K, V]) get(key K) V {
	old := m.known.Load()
	if old != nil {
		if v, ok := (*old)[key]; ok {
			return v
		}
	}
	v, all := m.find(key), map[K]V{}
	if old != nil {
		maps.Copy(all, *old)
	}
	all[key] = v
	m.known.CompareAndSwap(old, &all) // if another call was quicker, this key is found again later
	return v
}

var (
	_ service.Counter    = (*RequestMetrics)(nil)
	_ auth.SignInCounter = (*RequestMetrics)(nil)
)

// newRequestMetrics registers with r.
func newRequestMetrics(r prometheus.Registerer) *RequestMetrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "firsttap_http_requests_total", Help: "HTTP requests answered, by route, method and status.",
	}, []string{"route", "method", "status"})
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "firsttap_http_request_duration_seconds", Help: "Time from a request to its answer, without the live streams.",
		Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10},
	}, []string{"route", "method"})
	claims := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "firsttap_claims_total", Help: "Taps on Accept, by answer.",
	}, []string{"result"})
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "firsttap_gate_decisions_total", Help: "Taps on Accept, by the layer that decided and its decision.",
	}, []string{"layer", "decision"})
	m := &RequestMetrics{
		signIns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_sign_ins_total", Help: "Session sign-ins, and refused keys and tokens, by door and result.",
		}, []string{"door", "result"}),
		database: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "firsttap_database_duration_seconds",
			Help:    "Time from a statement to the start of its answer; begin and call include the wait for a connection.",
			Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
		}, []string{"operation", "pool"}),
		redis: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "firsttap_redis_duration_seconds", Help: "Time from a Redis command to its answer or its timeout.",
			Buckets: []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1},
		}, []string{"command"}),
	}
	m.answers.find = func(a answer) answerMetrics {
		found := answerMetrics{count: requests.WithLabelValues(a.route, a.method, strconv.Itoa(a.status))}
		if !strings.HasSuffix(a.route, "/stream") {
			found.duration = durations.WithLabelValues(a.route, a.method)
		}
		return found
	}
	m.claims.find = func(r service.ClaimResult) prometheus.Counter { return claims.WithLabelValues(string(r)) }
	m.decisions.find = func(d decision) prometheus.Counter {
		return decisions.WithLabelValues(string(d.layer), string(d.decision))
	}
	for _, result := range claimResults() {
		m.claims.get(result) // rate() needs the zero before the first claim
	}
	for layer, made := range map[service.Layer][]service.Decision{
		service.LayerMemory: {service.DecisionRefused}, service.LayerInFlight: {service.DecisionRefused, service.DecisionJoined},
		service.LayerMarker: {service.DecisionRefused}, service.LayerLock: {service.DecisionRefused},
		service.LayerDatabase:  {service.DecisionWon, service.DecisionReplayed, service.DecisionRefused, service.DecisionFailed},
		service.LayerSidelined: {service.DecisionWon, service.DecisionReplayed, service.DecisionRefused, service.DecisionFailed},
	} {
		for _, d := range made {
			m.decisions.get(decision{layer, d})
		}
	}
	m.signIns.WithLabelValues(string(auth.BySession), string(auth.OK))
	for _, door := range []auth.Method{auth.BySession, auth.ByKey, auth.ByToken} {
		for _, result := range []auth.Result{auth.Failed, auth.Limited} {
			m.signIns.WithLabelValues(string(door), string(result))
		}
	}
	r.MustRegister(requests, durations, claims, decisions, m.signIns, m.database, m.redis)
	return m
}

func claimResults() []service.ClaimResult {
	return []service.ClaimResult{
		service.ClaimResult(dispatch.AttemptWon), service.ClaimReplayed, "ALREADY_TAKEN", "OFFER_STALE", "DRIVER_BUSY", "NOT_OPEN_YET",
		"NOT_ELIGIBLE", "DISPATCH_EXPIRED", "DISPATCH_CANCELED", service.ClaimNotFound, service.ClaimResult(dispatch.AttemptUnavailable),
	}
}

// CountClaim implements service.Counter.
func (m *RequestMetrics) CountClaim(r service.ClaimResult) { m.claims.get(r).Inc() }

// CountDecision implements service.Counter.
func (m *RequestMetrics) CountDecision(l service.Layer, d service.Decision) {
	m.decisions.get(decision{l, d}).Inc()
}

// CountSignIn implements auth.SignInCounter.
func (m *RequestMetrics) CountSignIn(d auth.Method, r auth.Result) {
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
	of := m.answers.get(answer{route, method, status})
	of.count.Inc()
	if of.duration != nil {
		of.duration.Observe(took.Seconds())
	}
}

// statement times a statement of the database.
func (m *RequestMetrics) statement(ctx context.Context, s database.Statement) (context.Context, func(error)) {
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

// WatchRoles exports the roles of this instance, so that a role that no instance has is seen.
func (t *Telemetry) WatchRoles(roles []string) {
	has := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "firsttap_role", Help: "1 for each role that this instance has.",
	}, []string{"role"})
	for _, role := range roles {
		has.WithLabelValues(role).Set(1)
	}
	t.MustRegister(has)
}

// WatchStore exports the database's connection pools and whether it is up.
func (t *Telemetry) WatchStore(store *repository.Store, up func() bool) {
	for name, pool := range store.Pools() {
		t.MustRegister(collectors.NewDBStatsCollector(pool, name))
	}
	t.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "firsttap_database_up",
		Help: "1 while the database takes writes, checked every two seconds, and each second during an outage.",
	}, func() float64 {
		if up() {
			return 1
		}
		return 0
	}))
}

// WatchReplica exports who answers the reads that the replica may answer, if there is one.
func (t *Telemetry) WatchReplica(use func() (database.ReplicaUse, bool)) {
	if _, found := use(); !found {
		return
	}
	reads := func(server string, of func(database.ReplicaUse) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "firsttap_replica_reads_total", Help: "Lists, searches and boards, by the server that answered.",
			ConstLabels: prometheus.Labels{"server": server},
		}, func() float64 {
			now, _ := use()
			return float64(of(now))
		})
	}
	t.MustRegister(
		reads("replica", func(u database.ReplicaUse) uint64 { return u.ByReplica }),
		reads("primary", func(u database.ReplicaUse) uint64 { return u.ByPrimary }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "firsttap_replica_up", Help: "1 while the replica is used, 0 after it lagged or did not answer.",
		}, func() float64 {
			if now, _ := use(); now.InUse {
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

// WatchRedisUp exports whether Redis does what this instance needs it for.
func (t *Telemetry) WatchRedisUp(degraded func() bool) {
	t.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "firsttap_redis_up", Help: "1 while Redis grants locks, counts requests and carries the live stream.",
	}, func() float64 {
		if degraded() {
			return 0
		}
		return 1
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
