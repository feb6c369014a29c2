// Package limit bounds how often each caller may do something, over all instances that share a Redis.
//
// An instance has a bucket of tokens of its own for each caller, and that alone when there is no Redis or it is away; it is
// as large as the limit, and a chunk larger with Redis. With Redis it takes tokens from the common bucket in chunks, an eighth of the burst. The first chunk of a caller
// who has been quiet is on credit, and is settled behind the request: a first tap waits for nobody. So a caller who uses
// all instances at once has the burst, the rate, and one chunk for each instance at most.
package limit

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

const (
	// maxCallers bounds the buckets. A caller whose bucket is dropped starts with a full one.
	maxCallers = 65536
	// chunksPerBurst is how many times an instance asks for a whole burst.
	chunksPerBurst = 8
	// slack makes up for what Redis' clock and ours cut off: who waits as long as was asked gets through.
	slack = time.Millisecond
)

// Options are the limit and where it is kept.
type Options struct {
	Rate  float64 // a second
	Burst int     // at once; at least 1
	// Redis has the common buckets; nil for this instance's own. It must heed contexts (ContextTimeoutEnabled).
	Redis redis.UniversalClient
	// Timeout is what a call may lose to Redis.
	Timeout time.Duration
	Log     *slog.Logger
	Metrics *Metrics // nil where nobody counts
}

// Limiter keeps a bucket for each of the callers seen last. Safe for concurrent use. With Redis, Run must be running: it
// settles what was taken on credit, and finds out when Redis is back.
type Limiter struct {
	Options
	chunk      int
	localBurst int           // the burst of an instance's own bucket
	refill     time.Duration // of a whole bucket
	callers    *lru.Cache[string, *caller]
	down       atomic.Bool
	debts      debts
}

// caller is one who is limited.
type caller struct {
	mu     sync.Mutex
	latest time.Time // of the latest request: one that has waited for another must not turn the local bucket's clock back
	local  *rate.Limiter
	// credit are tokens that were taken from the common bucket, or will be, and were not used yet.
	credit     int
	debt       atomic.Int64 // of the credit, what is not settled
	lastSeen   time.Time    // when the caller asked last
	emptyUntil time.Time    // the common bucket is empty until then
	// waiting are the requests that wait for mu: who asks Redis asks for them too, so that nobody waits for it many times.
	waiting atomic.Int64
}

// New returns a limiter for o.
func New(o Options) *Limiter {
	callers, err := lru.New[string, *caller](maxCallers)
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
		l.localBurst += l.chunk // so that the common bucket is empty first, which knows for how long
	}
	return l
}

// Allow reports whether the caller may go on at now; if not, how long until asking again is of use. It asks Redis at most
// once, and not for a caller who has been quiet for as long as an empty bucket takes to fill. Of one caller's requests, one
// asks and the others wait for it.
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
		own.CancelAt(now) // a refusal costs nothing, or waiting as long as was asked would not be enough
		return wait, false
	}
	return 0, true
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

// takeShared takes a token from the common bucket, or says how long there is none. c is locked.
func (l *Limiter) takeShared(ctx context.Context, name string, c *caller, now time.Time) time.Duration {
	quiet := now.Sub(c.lastSeen) >= l.refill
	c.lastSeen = now
	switch {
	case now.Before(c.emptyUntil):
		return c.emptyUntil.Sub(now)
	case quiet:
		c.credit = l.chunk - 1
		c.debt.Store(int64(l.chunk))
		l.debts.add(name, c)
		return 0
	case c.credit > 0:
		c.credit--
		return 0
	case l.down.Load():
		return 0
	}
	asked := time.Now()
	got, wait, err := l.fetchTokens(ctx, name, c)
	switch {
	case err != nil:
		return 0
	case got == 0:
		wait += slack
		c.emptyUntil = now.Add(time.Since(asked) + wait) // now is when the request came
		return wait
	}
	c.credit = got - 1
	return 0
}

// redisFailed takes Redis to be gone, unless the caller is, or Redis has answered, if with an error.
func (l *Limiter) redisFailed(ctx context.Context, err error) {
	l.Metrics.failures.Inc()
	if ctx.Err() == nil && !redisAnswered(err) && !l.down.Swap(true) {
		l.Log.Warn("redis is away: each instance limits by itself", "error", err)
	}
}

// Metrics counts for any number of limiters.
type Metrics struct{ failures prometheus.Counter }

// NewMetrics returns metrics that r has, if it is not nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{prometheus.NewCounter(prometheus.CounterOpts{
		Name: "firsttap_rate_limit_redis_failures_total", Help: "Questions for the common rate limit that Redis did not answer.",
	})}
	if r != nil {
		r.MustRegister(m.failures)
	}
	return m
}
