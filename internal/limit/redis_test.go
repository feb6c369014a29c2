package limit

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// scripts returns how many times the server has run a script.
func scripts(t *testing.T, c redis.UniversalClient) (n int) {
	t.Helper()
	info, err := c.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
		var calls int
		fmt.Sscanf(info["Commandstats"][name], "calls=%d", &calls)
		n += calls
	}
	return n
}

// awaitDebt waits until the server knows what the caller has spent.
func (l *Limiter) awaitDebt(t *testing.T, caller string) {
	t.Helper()
	testkit.Eventually(t, "the debt is charged", func() bool { return l.Redis.Exists(t.Context(), l.bucketKey(caller)).Val() == 1 })
}

// The first chunk is spent without asking Redis, and the next is fetched by one request.
func TestFirstTapsDoNotWait(t *testing.T) {
	l, _ := newLimiter(t, servertest.StartRedis(t).URL(), 20, 40)
	now := time.Now()
	if n := l.allowed(t, 5, "drv_1", now); n != 5 || scripts(t, l.Redis) != 0 {
		t.Errorf("%d of five requests allowed by %d scripts", n, scripts(t, l.Redis))
	}
	n, asked := l.allowed(t, 5, "drv_1", now), scripts(t, l.Redis)
	if n != 5 || asked < 1 || asked > 2 { // EVALSHA, and EVAL where the script is new
		t.Errorf("%d of the next five requests allowed by %d scripts", n, asked)
	}
	if l.allowed(t, 1, "drv_1", now.Add(l.refill)) != 1 || scripts(t, l.Redis) != asked {
		t.Error("the first request after a pause asked Redis or was refused")
	}
}

// Requests with long pauses between them cost a token each: what is left of a chunk that was charged is used first.
func TestCreditOutlastsAPause(t *testing.T) {
	l, _ := newLimiter(t, servertest.RedisURL(t), 20, 40)
	now, charged := time.Now(), int64(0)
	for range 3 * l.chunk {
		if l.allowed(t, 1, "drv_1", now) != 1 {
			t.Error("a request after a pause is refused")
		}
		charged += l.caller("drv_1").debt.Swap(0)
		now = now.Add(l.refill)
	}
	testkit.Equal(t, "tokens that are charged", int64(3*l.chunk), charged)
}

// The debts of all callers are charged, even if the server has lost the script, and every bucket expires.
func TestDebtsAreCharged(t *testing.T) {
	l := instance(t, servertest.StartRedis(t).URL(), 0.01, 40) // a chunk is five tokens, and takes 500 s to come back
	c := l.Redis
	const callers = maxChargeBatch + 50
	for round := range 2 {
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for i := range callers {
			l.Allow(t.Context(), fmt.Sprintf("drv_%d_%d", round, i), time.Now())
		}
		testkit.Eventually(t, "all debts are charged", func() bool {
			keys, err := c.Keys(t.Context(), fmt.Sprintf("*:rate:{drv_%d_*}", round)).Result()
			return err == nil && len(keys) == callers
		})
	}
	for _, key := range c.Keys(t.Context(), "*").Val() {
		if ttl := c.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > 500*time.Second {
			t.Errorf("%s expires in %s", key, ttl)
		}
	}
}

// Tokens that one instance gave on credit are not given again by another.
func TestDebtCounts(t *testing.T) {
	url, caller := servertest.StartRedis(t).URL(), "drv_1"
	const rate = 0.001 // a token every quarter of an hour: none comes meanwhile
	one := instance(t, url, rate, 8)
	one.Allow(t.Context(), caller, time.Now())
	one.awaitDebt(t, caller)
	n := instance(t, url, rate, 8).allowed(t, 20, caller, time.Now())
	if n < 7 || n > 8 { // its own credit may be charged after the seven others
		t.Errorf("the second instance allowed %d after the first allowed 1 of 8", n)
	}
}

// A caller that waits for Retry-After is allowed, with and without Redis.
func TestRetryAfterIsEnough(t *testing.T) {
	shared, _ := newLimiter(t, servertest.RedisURL(t), 5, 10) // Run is not called: a debt that it charges late would prolong a wait
	alone := New(Options{Rate: 5, Burst: 10})
	for what, l := range map[string]*Limiter{"shared": shared, "alone": alone} {
		caller, refused := name(t), 0
		for refused < 5 {
			wait, ok := l.Allow(t.Context(), caller, time.Now())
			if ok {
				continue
			}
			refused++
			if wait <= 0 || wait > time.Second {
				t.Fatalf("%s: wait %s", what, wait)
			}
			<-time.After(wait) //nolint:forbidigo // it waits for as long as it is told to
			if again, ok := l.Allow(t.Context(), caller, time.Now()); !ok {
				t.Fatalf("%s: refused for another %s after a wait of %s", what, again, wait)
			}
		}
	}
}

// While Redis is down, each instance limits on its own, and requests do not wait for Redis.
func TestRedisIsKilledAndBack(t *testing.T) {
	server := servertest.StartRedis(t)
	const rate, burst = 100.0, 80
	limiters, logs := instances(t, 3, server.URL(), rate, burst)
	server.Kill()
	allowed, took := hammer(limiters, "drv_1", 500*time.Millisecond)
	share := 3 * (float64(limiters[0].localBurst) + rate*took.Seconds())
	if allowed < 3*burst || float64(allowed) > share+3 {
		t.Errorf("%d allowed without Redis, want %.0f", allowed, share)
	}
	before := failures(limiters[0])
	limiters[0].allowed(t, 1000, "drv_1", time.Now())
	if n := failures(limiters[0]) - before; n > 100 { // a probe now and then
		t.Errorf("%.0f requests went to a Redis that is down, for 1000 calls", n)
	}
	server.Start()
	for i, l := range limiters {
		testkit.Eventually(t, "Redis is used again", func() bool { return !l.Degraded() && logs[i].Count("redis counts requests again") > 0 })
		if down, up := logs[i].Count("redis does not count requests"), logs[i].Count("redis counts requests again"); down != 1 || up != 1 {
			t.Errorf("logged %d times that Redis is unavailable, %d times that it is available again", down, up)
		}
	}
	allowed, took = hammer(limiters, "drv_2", 500*time.Millisecond)
	if most := burst + rate*took.Seconds() + float64(3*limiters[0].chunk); float64(allowed) > most {
		t.Errorf("%d allowed with Redis again, want at most %.0f", allowed, most)
	}
}

// When Redis hangs, one request waits for the timeout.
func TestRedisHangs(t *testing.T) {
	server := servertest.StartRedis(t)
	const timeout = 500 * time.Millisecond
	l := New(Options{
		Rate: 100, Burst: 8, Redis: dial(t, server.URL(), time.Hour), Timeout: timeout, Log: slog.New(slog.DiscardHandler),
	}) // Run is not called
	l.allowed(t, 2, "drv_1", time.Now()) // a chunk is one token: the second request asks Redis
	server.Freeze()
	allowed := l.allowed(t, 6, "drv_1", time.Now())
	if n := failures(l); allowed != 6 || n != 1 || !l.Degraded() {
		t.Errorf("%d of 6 allowed, and %.0f requests to Redis failed", allowed, n)
	}
	server.Thaw()
	testkit.Run(t, l.Run)
	testkit.Eventually(t, "Redis is used again", func() bool { return !l.Degraded() })
}

// A caller who has hung up is served, and says nothing about Redis.
func TestCallerWhoHungUp(t *testing.T) {
	l := instance(t, servertest.RedisURL(t), 100, 8)
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	for range 6 {
		l.Allow(ctx, name(t), time.Now())
	}
	if n := failures(l); n != 0 || l.Degraded() {
		t.Errorf("%.0f requests to Redis count as failed", n)
	}
}

func TestCallersAreBounded(t *testing.T) {
	for callers, most := range map[int]int{0: maxCallers, 10: 10} {
		l, now := New(Options{Rate: 1, Burst: 1, Callers: callers}), time.Now()
		for i := range most + 100 {
			l.Allow(t.Context(), fmt.Sprint(i), now)
		}
		testkit.Equal(t, "buckets that are kept", most, l.callers.Len())
	}
}

// Rates may be fractions, or more than any caller reaches.
func TestRates(t *testing.T) {
	for _, rate := range []float64{0.005, 0.01, 1e5, 1e9} {
		burst := max(1, int(2*rate))
		l := instance(t, servertest.RedisURL(t), rate, burst)
		caller, now, few := name(t), time.Now(), min(burst, 50)
		if n := l.allowed(t, few, caller, now); n != few {
			t.Errorf("%v/s: %d of %d requests are allowed", rate, n, few)
		}
		if rate > 1 {
			continue
		}
		l.awaitDebt(t, caller)
		wait, ok := l.Allow(t.Context(), caller, now)
		if want := time.Duration(float64(time.Second) / rate); ok || wait > want+2*slack || wait < want/2 {
			t.Errorf("%v/s: wait %s, allowed %v; want a wait of at most %s", rate, wait, ok, want)
		}
	}
}

// While the shared bucket is known to be empty, refusals do not ask Redis.
func TestRefusalsCostNothing(t *testing.T) {
	l, _ := newLimiter(t, servertest.StartRedis(t).URL(), 0.1, 8) // Run is not called: it charges a debt by a script of its own
	now := time.Now()
	for ok := true; ok; {
		_, ok = l.Allow(t.Context(), "drv_1", now)
	}
	before := scripts(t, l.Redis)
	if n, asked := l.allowed(t, 100, "drv_1", now), scripts(t, l.Redis)-before; n != 0 || asked != 0 {
		t.Errorf("%d of 100 requests allowed, by %d scripts", n, asked)
	}
}

// Of many requests at once, one fetches tokens for all that wait.
func TestOneFetchesForAll(t *testing.T) {
	server := servertest.StartRedis(t)
	proxy := servertest.StartProxy(t, server.Addr())
	l, _ := newLimiter(t, proxy.URL(server.URL()), 20, 40)
	l.allowed(t, 6, "another", time.Now()) // one chunk on credit and one fetched: the server knows the script now
	before := scripts(t, l.Redis)
	hold := proxy.Hold("drv_1")
	now := time.Now() // of all: one that comes after a pause would be given another chunk on credit
	var all sync.WaitGroup
	for range 36 {
		all.Go(func() { l.Allow(t.Context(), "drv_1", now) })
	}
	<-hold.Reached()
	// The first five were given on credit, and one asks.
	testkit.Eventually(t, "the others wait", func() bool { return l.caller("drv_1").waiting.Load() == 30 })
	hold.Release()
	all.Wait()
	if n := scripts(t, l.Redis) - before; n > 3 { // the first, and one for all that wait; the third where the burst is over
		t.Errorf("%d scripts for 36 requests at once", n)
	}
}

// While one server of a cluster is away, some callers can't be counted: that is one outage, which ends when every server counts again.
func TestPartOfAClusterIsAway(t *testing.T) {
	t.Parallel()
	cluster := servertest.StartRedisCluster(t)
	limiters, logs := instances(t, 1, cluster.URL(), 100, 8)
	askForAll := func() {
		for i := range 20 { // on each server some
			limiters[0].allowed(t, 4, fmt.Sprint("drv_", i), time.Now())
		}
	}
	var probes probeCounter
	limiters[0].Redis.AddHook(&probes)
	cluster.Nodes[1].Kill()
	testkit.Eventually(t, "it is noticed", func() bool { askForAll(); return limiters[0].Degraded() })
	before := probes.n.Load()
	testkit.Eventually(t, "it is probed again and again", func() bool { askForAll(); return probes.n.Load() >= before+10 })
	if down, up := logs[0].Count("redis does not count requests"), logs[0].Count("redis counts requests again"); down != 1 || up != 0 {
		t.Errorf("logged %d times that Redis is unavailable, %d times that it is available again", down, up)
	}
	cluster.Nodes[1].Start()
	testkit.Eventually(t, "Redis is used again", func() bool { return !limiters[0].Degraded() })
}

// probeCounter counts the probes of an outage.
type probeCounter struct{ n atomic.Int64 }

// DialHook implements redis.Hook.
func (*probeCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (p *probeCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.Contains(fmt.Sprint(cmd.Args()...), "{probe-") {
			p.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (*probeCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A Redis that answers with an error counts no requests either: the instance limits on its own until Redis counts a probe.
func TestRedisRefusesToCount(t *testing.T) {
	server := servertest.StartRedis(t)
	admin := dial(t, server.URL(), testkit.Patience)
	limiters, logs := instances(t, 1, server.URL(), 100, 8)
	for what, fault := range map[string][2][]any{
		"full":       {{"CONFIG", "SET", "maxmemory", "1"}, {"CONFIG", "SET", "maxmemory", "0"}},
		"no right":   {{"ACL", "SETUSER", "default", "-psetex"}, {"ACL", "SETUSER", "default", "+psetex"}},
		"no scripts": {{"ACL", "SETUSER", "default", "-evalsha"}, {"ACL", "SETUSER", "default", "+evalsha"}},
	} {
		if err := admin.Do(t.Context(), fault[0]...).Err(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, what+": it is noticed", func() bool {
			limiters[0].allowed(t, 4, what, time.Now())
			return limiters[0].Degraded() && logs[0].Count("redis does not count requests") > 0
		})
		if n := logs[0].Count("redis does not count requests"); n != 1 {
			t.Errorf("%s: %d lines", what, n)
		}
		if err := admin.Do(t.Context(), fault[1]...).Err(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, what+": Redis is used again", func() bool { return !limiters[0].Degraded() })
		logs[0].Drain()
	}
}
