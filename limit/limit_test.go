package limit

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"firsttap/redisclient"
	"firsttap/servertest"
	"firsttap/testkit"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// dial returns a client as the service has it.
func dial(t *testing.T, url string, timeout time.Duration) redis.UniversalClient {
	t.Helper()
	client, err := redisclient.Dial(url, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// instance is a limiter as an instance has it, running until the test ends.
func instance(t *testing.T, url string, rate float64, burst int) (*Limiter, *testkit.LogBuffer) {
	t.Helper()
	log := &testkit.LogBuffer{}
	l := New(Options{
		Rate: rate, Burst: burst, Redis: dial(t, url, 100*time.Millisecond), Timeout: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	testkit.Run(t, l.Run)
	return l, log
}

// asked is how often the limiter has asked Redis in vain.
func asked(l *Limiter) float64 { return testutil.ToFloat64(l.Metrics.failures) }

func name(t *testing.T) string { return fmt.Sprintf("%s-%d", t.Name(), time.Now().UnixNano()) }

// hammer asks as often as it can, of all instances at once, for that long. It returns how often it was let through.
func hammer(limiters []*Limiter, caller string, d time.Duration) (allowed int, took time.Duration) {
	var all sync.WaitGroup
	var n atomic.Int64
	began := time.Now()
	for _, l := range limiters {
		for range 2 {
			all.Go(func() {
				for now := time.Now(); now.Sub(began) < d; now = time.Now() {
					if _, ok := l.Allow(context.Background(), caller, now); ok {
						n.Add(1)
					}
				}
			})
		}
	}
	all.Wait()
	return int(n.Load()), time.Since(began)
}

// holdsOver checks that a caller who hammers three instances has one share, and not three.
func holdsOver(t *testing.T, url string) {
	t.Helper()
	const rate, burst = 100.0, 80
	var limiters []*Limiter
	for range 3 {
		l, _ := instance(t, url, rate, burst)
		limiters = append(limiters, l)
	}
	allowed, took := hammer(limiters, name(t), time.Second)
	share := float64(burst) + rate*took.Seconds()
	overshoot := float64(len(limiters) * limiters[0].chunk)
	if float64(allowed) > share+overshoot || float64(allowed) < share*0.8 {
		t.Errorf("%d in %s over three instances; one share is %.0f, and %.0f may be too many", allowed, took, share, overshoot)
	}
	t.Logf("%d in %s over three instances; one share is %.0f", allowed, took, share)
}

func TestThreeInstances(t *testing.T) { holdsOver(t, servertest.RedisURL(t)) }

func TestCluster(t *testing.T) { holdsOver(t, servertest.StartRedisCluster(t).URL()) }

func TestSentinel(t *testing.T) { holdsOver(t, servertest.StartRedisSentinel(t).URL()) }

// TestSlyCaller rests on each instance for just as long as makes the next chunk one on credit. What was had on credit is
// owed, so that it comes to the rate all the same.
func TestSlyCaller(t *testing.T) {
	const rate, burst = 40.0, 8 // a chunk is 1, and 200 ms of rest are enough
	url, caller := servertest.RedisURL(t), name(t)
	var limiters []*Limiter
	for range 30 {
		l, _ := instance(t, url, rate, burst)
		limiters = append(limiters, l)
	}
	began, allowed := time.Now(), 0
	tick := time.NewTicker(limiters[0].refill + 5*time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < 2*time.Second {
		for _, l := range limiters {
			if _, ok := l.Allow(t.Context(), caller, time.Now()); ok {
				allowed++
			}
		}
		<-tick.C
	}
	most := burst + rate*time.Since(began).Seconds() + float64(len(limiters))
	if float64(allowed) > most || float64(allowed) < rate {
		t.Errorf("%d were had; at most %.0f should be, and not nothing", allowed, most)
	}
	t.Logf("%d of at most %.0f", allowed, most)
}

// scripts returns how many scripts the server has run.
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

// TestFirstTapsWaitForNobody: a chunk is spent before Redis is asked anything, and the next is asked for once.
func TestFirstTapsWaitForNobody(t *testing.T) {
	url := servertest.StartRedis(t).URL()
	c := dial(t, url, time.Second)
	l := New(Options{Rate: 20, Burst: 40, Redis: c, Timeout: time.Second, Log: slog.New(slog.DiscardHandler)}) // which does not run
	now := time.Now()
	for range 5 {
		if _, ok := l.Allow(t.Context(), "drv_1", now); !ok {
			t.Fatal("refused")
		}
	}
	if n := scripts(t, c); n != 0 {
		t.Errorf("%d scripts for five taps", n)
	}
	for range 5 {
		if _, ok := l.Allow(t.Context(), "drv_1", now); !ok {
			t.Fatal("refused")
		}
	}
	if n := scripts(t, c); n < 1 || n > 2 { // EVALSHA, and EVAL where the script is new
		t.Errorf("%d scripts for the next five taps", n)
	}
	now = now.Add(l.refill)
	before := scripts(t, c)
	if _, ok := l.Allow(t.Context(), "drv_1", now); !ok || scripts(t, c) != before {
		t.Error("who was quiet has to wait")
	}
}

// TestDebtsAreSettled, of all callers and at a server that has forgotten the script; every bucket ends.
func TestDebtsAreSettled(t *testing.T) {
	url := servertest.StartRedis(t).URL()
	c := dial(t, url, time.Second)
	l, _ := instance(t, url, 0.1, 40)
	const callers = settleBatch + 50
	for round := range 2 {
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for i := range callers {
			l.Allow(t.Context(), fmt.Sprintf("drv_%d_%d", round, i), time.Now())
		}
		testkit.Eventually(t, "all debts are settled", func() bool {
			keys, err := c.Keys(t.Context(), fmt.Sprintf("rate:{drv_%d_*}", round)).Result()
			return err == nil && len(keys) == callers
		})
	}
	for _, key := range c.Keys(t.Context(), "*").Val() {
		if ttl := c.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > 50*time.Second {
			t.Errorf("%s ends in %s", key, ttl)
		}
	}
}

// TestDebtCounts: what one instance gave on credit another does not give again.
func TestDebtCounts(t *testing.T) {
	url, caller := servertest.StartRedis(t).URL(), "drv_1"
	c := dial(t, url, time.Second)
	one, _ := instance(t, url, 0.1, 8)
	one.Allow(t.Context(), caller, time.Now())
	testkit.Eventually(t, "the debt is settled", func() bool { return c.Exists(t.Context(), key(caller)).Val() == 1 })
	two, _ := instance(t, url, 0.1, 8)
	allowed := 0
	for range 20 {
		if _, ok := two.Allow(t.Context(), caller, time.Now()); ok {
			allowed++
		}
	}
	if allowed < 7 || allowed > 8 { // its own on credit, and seven; the debt of it may come last
		t.Errorf("the second instance gave %d after the first gave 1 of 8", allowed)
	}
}

// TestWhoWaitsGetsThrough: as long as was asked, and no longer, on one instance and with Redis.
func TestWhoWaitsGetsThrough(t *testing.T) {
	shared, _ := instance(t, servertest.RedisURL(t), 50, 10)
	alone := New(Options{Rate: 50, Burst: 10})
	for what, l := range map[string]*Limiter{"shared": shared, "alone": alone} {
		caller, refused := name(t), 0
		for refused < 15 {
			wait, ok := l.Allow(t.Context(), caller, time.Now())
			if ok {
				continue
			}
			refused++
			if wait <= 0 || wait > time.Second {
				t.Fatalf("%s: wait %s", what, wait)
			}
			<-time.After(wait)
			if again, ok := l.Allow(t.Context(), caller, time.Now()); !ok {
				t.Fatalf("%s: who waited %s is asked to wait %s more", what, wait, again)
			}
		}
	}
}

// TestRedisIsKilledAndBack: meanwhile each instance limits by itself, and nobody waits for Redis again and again.
func TestRedisIsKilledAndBack(t *testing.T) {
	server := servertest.StartRedis(t)
	const rate, burst = 100.0, 80
	var limiters []*Limiter
	var logs []*testkit.LogBuffer
	for range 3 {
		l, log := instance(t, server.URL(), rate, burst)
		limiters, logs = append(limiters, l), append(logs, log)
	}
	server.Kill()
	allowed, took := hammer(limiters, "drv_1", 500*time.Millisecond)
	share := 3 * (float64(limiters[0].local) + rate*took.Seconds())
	if float64(allowed) < share*0.8 || float64(allowed) > share+3 {
		t.Errorf("%d without Redis, want %.0f", allowed, share)
	}
	before := asked(limiters[0])
	for range 1000 {
		limiters[0].Allow(t.Context(), "drv_1", time.Now())
	}
	if n := asked(limiters[0]) - before; n > 10 { // the probes' own
		t.Errorf("a Redis that is away was asked %.0f times for 1000 requests", n)
	}
	server.Start()
	for i, l := range limiters {
		testkit.Eventually(t, "Redis is noticed", func() bool { return !l.down.Load() && logs[i].Count("redis is back") > 0 })
		if away, back := logs[i].Count("redis is away"), logs[i].Count("redis is back"); away != 1 || back != 1 {
			t.Errorf("said %d times that Redis is away, %d times that it is back", away, back)
		}
	}
	allowed, took = hammer(limiters, "drv_2", 500*time.Millisecond)
	if most := burst + rate*took.Seconds() + float64(3*limiters[0].chunk); float64(allowed) > most {
		t.Errorf("%d after Redis was back, want at most %.0f", allowed, most)
	}
}

// TestRedisHangs: a request loses the timeout to it, once.
func TestRedisHangs(t *testing.T) {
	server := servertest.StartRedis(t)
	l, _ := instance(t, server.URL(), 100, 8)
	for range 2 { // a chunk is 1: the second asks
		l.Allow(t.Context(), "drv_1", time.Now())
	}
	server.Freeze()
	now, allowed := time.Now(), 0
	for range 6 {
		if _, ok := l.Allow(t.Context(), "drv_1", now); ok {
			allowed++
		}
	}
	if n := asked(l); allowed != 6 || n > 3 { // one of them, and what is done behind them
		t.Errorf("%d of 6 were let through, and Redis was asked %.0f times in vain", allowed, n)
	}
	server.Thaw()
	testkit.Eventually(t, "Redis is noticed", func() bool { return !l.down.Load() })
}

func TestCallersAreBounded(t *testing.T) {
	l := New(Options{Rate: 1, Burst: 1})
	now := time.Now()
	for i := range maxCallers + 100 {
		l.Allow(t.Context(), fmt.Sprint(i), now)
	}
	if n := l.callers.Len(); n != maxCallers {
		t.Errorf("%d are kept", n)
	}
}

// TestRates: fractions, and rates that nobody reaches.
func TestRates(t *testing.T) {
	for _, rate := range []float64{0.5, 1, 1e5, 1e9} {
		l, _ := instance(t, servertest.RedisURL(t), rate, max(1, int(2*rate)))
		caller, now := name(t), time.Now()
		for i := range int(math.Min(2*rate, 50)) {
			if _, ok := l.Allow(t.Context(), caller, now); !ok {
				t.Errorf("%v/s: number %d is refused", rate, i)
			}
		}
		if rate > 1 {
			continue
		}
		testkit.Eventually(t, "the debt is settled", func() bool { return l.Redis.Exists(t.Context(), key(caller)).Val() == 1 })
		wait, ok := l.Allow(t.Context(), caller, now)
		if want := time.Duration(float64(time.Second) / rate); ok || wait > want+2*slack || wait < want/2 {
			t.Errorf("%v/s: %s, %v, want at most %s", rate, wait, ok, want)
		}
	}
}

// TestRefusalsCostNothing: who is refused until then is refused without asking again.
func TestRefusalsCostNothing(t *testing.T) {
	url := servertest.StartRedis(t).URL()
	l, _ := instance(t, url, 0.1, 8)
	now := time.Now()
	for ok := true; ok; {
		_, ok = l.Allow(t.Context(), "drv_1", now)
	}
	before := scripts(t, l.Redis)
	for range 100 {
		if _, ok := l.Allow(t.Context(), "drv_1", now); ok {
			t.Fatal("let through")
		}
	}
	if n := scripts(t, l.Redis) - before; n != 0 {
		t.Errorf("%d scripts for 100 refusals", n)
	}
}
