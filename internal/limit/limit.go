// Package limit limits the request rate of each caller, across all instances that share a Redis.
//
// Each instance keeps a local token bucket per caller. Without Redis, or while Redis is unavailable, the local bucket is
// the limit. With Redis, the instance fetches tokens from the caller's shared bucket in chunks of an eighth of the burst,
// and its local bucket is one chunk larger than the limit. The first chunk after a pause is taken on credit and charged to
// the shared bucket in the background, so that a first request does not wait for Redis. A caller that uses all instances
// at once therefore gets at most the burst, the rate, and one chunk per instance.
package limit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

const (
	// maxCallers is the usual bound of the local buckets. A caller whose bucket was evicted starts with a full one.
	maxCallers = 65536
	// chunksPerBurst is how many requests to Redis fetch a whole burst.
	chunksPerBurst = 8
	// slack covers the rounding of the two clocks: a caller that waits as long as it was told must be allowed.
	slack = time.Millisecond
)

// Options configure a Limiter.
type Options struct {
	Rate  float64 // requests per second
	Burst int     // requests at once; at least 1
	// Callers is how many of the most recent callers have a local bucket; 0 for maxCallers.
	Callers int
	// Redis holds the shared buckets; nil for local buckets only. The client must obey contexts (ContextTimeoutEnabled).
	Redis redis.UniversalClient
	// Namespace begins the shared buckets' names in Redis. Limiters with the same one share their callers' buckets.
	Namespace string
	// Timeout bounds how long a call waits for Redis.
	Timeout time.Duration
	Log     *slog.Logger // required with Redis
	Metrics *Metrics     // optional
}

// Limiter keeps a local bucket for each of the most recent callers. It is safe for concurrent use. With Redis, Run must be
// running: it charges what was taken on credit, and it notices when Redis is available again.
type Limiter struct {
	Options
	chunk      int
	localBurst int           // the size of a local bucket
	refill     time.Duration // how long an empty bucket takes to fill
	callers    *lru.Cache[string, *caller]
	down       atomic.Pointer[time.Time] // since when Redis is unavailable; nil while it is not
	debts      debts
}

// caller is the local state of one caller.
type caller struct {
	mu     sync.Mutex
	latest time.Time // the latest time passed to Allow: the local bucket's clock must not go back
	local  *rate.Limiter
	// credit counts the tokens that were fetched from the shared bucket, or taken on credit, and not used yet.
	credit     int
	debt       atomic.Int64 // tokens taken on credit and not charged yet
	lastSeen   time.Time    // the latest request that reached the shared bucket or its credit
	emptyUntil time.Time    // the shared bucket is empty until then
	// waiting counts the requests that wait for mu. The request that asks Redis fetches tokens for them too.
	waiting atomic.Int64
}

// New returns a limiter.
func New(o Options) *Limiter {
	callers, err := lru.New[string, *caller](cmp.Or(o.Callers, maxCallers))
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	o.Burst = max(1, o.Burst)
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	l := &Limiter{
		Options: o, localBurst: o.Burst, callers: callers, chunk: max(1, o.Burst/chunksPerBurst),
		refill: time.Duration(float64(o.Burst) / o.Rate * float64(time.Second)),
		debts:  debts{owed: map[string]*caller{}, wake: make(chan struct{}, 1)},
	}
	if o.Redis != nil {
		l.localBurst += l.chunk // the shared bucket is empty first, and it knows for how long
	}
	return l
}

// Allow reports whether the named caller may make a request at now and, if not, how long it has to wait. It asks Redis at
// most once, and not at all after a pause in which an empty bucket would fill. Of several requests of one caller, one asks
// Redis and the others wait for it.
func (l *Limiter) Allow(ctx context.Context, name string, now time.Time) (wait time.Duration, ok bool) {
	c := l.caller(name)
	c.waiting.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting.Add(-1)
	if now.Before(c.latest) {
		now = c.latest
	}
	c.latest = now
	own := c.local.ReserveN(now, 1)
	if wait := own.DelayFrom(now); !own.OK() || wait > 0 {
		own.CancelAt(now)
		return wait, false
	}
	if l.Redis == nil {
		return 0, true
	}
	if wait := l.takeShared(ctx, name, c, now); wait > 0 {
		own.CancelAt(now) // a refused request takes no token, or the caller would have to wait longer than it was told
		return wait, false
	}
	return 0, true
}

// Wait returns how long the local bucket would refuse the caller's requests, zero if it would allow one at now. It takes nothing.
func (l *Limiter) Wait(name string, now time.Time) time.Duration {
	c, ok := l.callers.Peek(name)
	if !ok {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.latest) {
		now = c.latest
	}
	return time.Duration(max(0, 1-c.local.TokensAt(now)) / l.Rate * float64(time.Second))
}

func (l *Limiter) caller(name string) *caller {
	if c, ok := l.callers.Get(name); ok {
		return c
	}
	c := &caller{local: rate.NewLimiter(rate.Limit(l.Rate), l.localBurst)}
	if first, had, _ := l.callers.PeekOrAdd(name, c); had {
		return first
	}
	return c
}

// takeShared takes a token from the shared bucket, or returns how long it is empty. c is locked.
func (l *Limiter) takeShared(ctx context.Context, name string, c *caller, now time.Time) time.Duration {
	quiet := now.Sub(c.lastSeen) >= l.refill
	c.lastSeen = now
	switch {
	case now.Before(c.emptyUntil):
		return c.emptyUntil.Sub(now)
	case c.credit > 0: // also after a pause: it is paid for
		c.credit--
		return 0
	case quiet:
		c.credit = l.chunk - 1
		c.debt.Store(int64(l.chunk))
		l.debts.add(name, c)
		return 0
	case l.down.Load() != nil:
		return 0
	}
	asked := time.Now()
	got, wait, err := l.fetchTokens(ctx, name, c)
	switch {
	case err != nil:
		return 0
	case got == 0:
		wait += slack
		c.emptyUntil = now.Add(time.Since(asked) + wait) // now is when the request arrived
		return wait
	}
	c.credit = got - 1
	return 0
}

// redisFailed marks Redis as down, unless ctx has ended. A Redis that answers with an error does not count requests either. A caller who
// hung up is no failure.
func (l *Limiter) redisFailed(ctx context.Context, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	l.Metrics.failures.Inc()
	if now := time.Now(); ctx.Err() == nil && l.down.CompareAndSwap(nil, &now) {
		l.Log.Warn("redis does not count requests; each instance limits on its own until redis counts a probe", "error", err)
	}
}

// Degraded reports whether the instance limits on its own because Redis is unavailable.
func (l *Limiter) Degraded() bool { return l.down.Load() != nil }

// Metrics are shared by any number of limiters.
type Metrics struct{ failures prometheus.Counter }

// NewMetrics registers the metrics with r, if r is not nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{prometheus.NewCounter(prometheus.CounterOpts{
		Name: "firsttap_rate_limit_redis_failures_total", Help: "Requests to the shared rate limit that Redis did not answer.",
	})}
	if r != nil {
		r.MustRegister(m.failures)
	}
	return m
}

// Rate is how many requests per second a caller may make. The burst is twice that.
type Rate float64

// ParseRate reads "20/s".
func ParseRate(s string) (Rate, error) {
	number, ok := strings.CutSuffix(s, "/s")
	n, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(n > 0 && n <= 1e9) {
		return 0, fmt.Errorf("%q is not a rate like 20/s", s)
	}
	return Rate(n), nil
}

// Options returns the options for this rate, with local buckets only.
func (r Rate) Options() Options {
	return Options{Rate: float64(r), Burst: int(2 * r)}
}
