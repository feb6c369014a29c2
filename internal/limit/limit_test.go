package limit

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"firsttap/internal/redisclient"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// dial returns a client like the service's.
func dial(t *testing.T, url string, timeout time.Duration) redis.UniversalClient {
	t.Helper()
	client, err := redisclient.Dial(url, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// newLimiter returns a limiter whose Run is not called, and its log. Its timeout is longer than a busy machine delays a reply, so
// that no delay counts as an outage.
func newLimiter(t *testing.T, url string, rate float64, burst int) (*Limiter, *testkit.LogBuffer) {
	t.Helper()
	log := &testkit.LogBuffer{}
	return New(Options{
		Rate: rate, Burst: burst, Redis: dial(t, url, testkit.Patience), Timeout: testkit.Patience, Log: slog.New(slog.NewTextHandler(log, nil)),
	}), log
}

// instances returns limiters of n instances, which run until the test ends, and their logs.
func instances(t *testing.T, n int, url string, rate float64, burst int) (all []*Limiter, logs []*testkit.LogBuffer) {
	t.Helper()
	for range n {
		l, log := newLimiter(t, url, rate, burst)
		testkit.Run(t, l.Run)
		all, logs = append(all, l), append(logs, log)
	}
	return all, logs
}

func instance(t *testing.T, url string, rate float64, burst int) *Limiter {
	t.Helper()
	all, _ := instances(t, 1, url, rate, burst)
	return all[0]
}

// allowed is how many of n requests at this time are allowed.
func (l *Limiter) allowed(t *testing.T, n int, caller string, now time.Time) (allowed int) {
	for range n {
		if _, ok := l.Allow(t.Context(), caller, now); ok {
			allowed++
		}
	}
	return allowed
}

// failures returns how many requests to Redis failed.
func failures(l *Limiter) float64 { return testutil.ToFloat64(l.Metrics.failures) }

func name(t *testing.T) string { return fmt.Sprintf("%s-%d", t.Name(), time.Now().UnixNano()) }

// hammer makes requests on all instances at once, as fast as it can, for d, and at least as many as a burst on each. It returns how many
// were allowed.
func hammer(limiters []*Limiter, caller string, d time.Duration) (allowed int, took time.Duration) {
	var all sync.WaitGroup
	var n atomic.Int64
	began := time.Now()
	for _, l := range limiters {
		for range 2 {
			all.Go(func() {
				for k := 0; k < l.Burst || time.Since(began) < d; k++ {
					if _, ok := l.Allow(context.Background(), caller, time.Now()); ok {
						n.Add(1)
					}
				}
			})
		}
	}
	all.Wait()
	return int(n.Load()), time.Since(began)
}

// checkSharedLimit checks that a caller that hammers three instances gets one share, not three.
func checkSharedLimit(t *testing.T, url string) {
	t.Helper()
	const rate, burst = 100.0, 80
	limiters, _ := instances(t, 3, url, rate, burst)
	allowed, took := hammer(limiters, name(t), time.Second)
	share := float64(burst) + rate*took.Seconds()
	overshoot := float64(len(limiters) * limiters[0].chunk)
	if float64(allowed) > share+overshoot || allowed < burst {
		t.Errorf("%d allowed in %s on three instances, want %.0f and at most %.0f more", allowed, took, share, overshoot)
	}
	t.Logf("%d allowed in %s on three instances; one share is %.0f", allowed, took, share)
}

// TestThreeInstances: one share for a caller on three instances, on Redis, Sentinel and Cluster.
func TestThreeInstances(t *testing.T) { checkSharedLimit(t, servertest.RedisURL(t)) }

func TestCluster(t *testing.T) {
	t.Parallel()
	checkSharedLimit(t, servertest.StartRedisCluster(t).URL())
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	checkSharedLimit(t, servertest.StartRedisSentinel(t).URL())
}

// A caller that pauses on each instance just long enough to get its next chunk on credit still gets no more than the rate.
func TestSlyCaller(t *testing.T) {
	const rate, burst = 40.0, 8 // a chunk is 1, and 200 ms of rest are enough
	url, caller := servertest.RedisURL(t), name(t)
	var limiters []*Limiter
	for range 30 {
		l, _ := newLimiter(t, url, rate, burst) // Run is not called: the test charges the debts, before the caller comes again
		limiters = append(limiters, l)
	}
	began, allowed := time.Now(), 0
	tick := time.NewTicker(limiters[0].refill + 5*time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(began.Add(time.Second)) {
		for _, l := range limiters {
			allowed += l.allowed(t, 1, caller, time.Now())
			l.chargeDebts(t.Context())
		}
		<-tick.C
	}
	most := burst + rate*time.Since(began).Seconds() + float64(len(limiters))
	if float64(allowed) > most || float64(allowed) < rate/2 {
		t.Errorf("%d allowed, want between %.0f and %.0f", allowed, rate/2, most)
	}
	t.Logf("%d allowed of at most %.0f", allowed, most)
}

func TestParseRate(t *testing.T) {
	for s, want := range map[string]Rate{"20/s": 20, "0.5/s": 0.5, "1e3/s": 1000} {
		if got, err := ParseRate(s); err != nil || got != want || got.Options().Burst != int(2*want) {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "/s", "20", "0/s", "-1/s", "NaN/s", "Inf/s", "2e9/s", "1/m", "1/s/s"} {
		if got, err := ParseRate(s); err == nil {
			t.Errorf("%q is %v", s, got)
		}
	}
}
