package systemtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// TestAPIMetrics: every claim is counted once by result and once by layer, every request by route. The database and Redis
// are timed. Made-up paths and methods make no series.
func TestAPIMetrics(t *testing.T) {
	t.Parallel()
	redis, ops := servertest.StartRedis(t), testkit.FreeAddress(t)
	url := mariaDB(t)
	i := Start(t, "FIRSTTAP_DATABASE_URL="+url, "FIRSTTAP_REDIS_URL="+redis.URL(), "FIRSTTAP_OPS_ADDR="+ops)
	drivers := MakeDrivers(t, i, 10)
	const rounds = 5
	for range rounds {
		id := MakeDispatch(t, i)
		Together(len(drivers), func(k int) Response { return Accept(i, id, drivers[k], 1) })
		Accept(i, id, drivers[0], 1)
	}
	const taps = rounds * 11
	db := OpenDatabase(t, url)
	testkit.Eventually(t, "the taps are in the ledger", func() bool { return db.taps("%") == taps })
	acceptRoute := `route="/v1/dispatches/:id/accept"`
	var seen map[string]float64
	// A request is counted after its answer, and the database is asked once a second.
	testkit.Eventually(t, "the taps are counted, and the database is up", func() bool {
		seen = scrape(t, ops)
		return sum(seen, "firsttap_http_requests_total", acceptRoute) >= taps && sum(seen, "firsttap_http_request_duration_seconds_count", acceptRoute) >= taps &&
			seen["firsttap_database_up"] == 1
	})
	for what, n := range map[string]float64{
		"claims":    sum(seen, "firsttap_claims_total"),
		"decisions": sum(seen, "firsttap_gate_decisions_total"),
		"requests":  sum(seen, "firsttap_http_requests_total", acceptRoute, `method="POST"`),
		"durations": sum(seen, "firsttap_http_request_duration_seconds_count", acceptRoute),
	} {
		if n != taps {
			t.Errorf("%g %s of %d taps", n, what, taps)
		}
	}
	won := sum(seen, "firsttap_claims_total", `result="SUCCESS"`)
	if won != rounds || sum(seen, "firsttap_gate_decisions_total", `layer="database"`, `decision="won"`) != rounds ||
		sum(seen, "firsttap_database_duration_seconds_count", `operation="call"`, `pool="decide"`) != rounds {
		t.Errorf("%g won in %d rounds", won, rounds)
	}
	if n := sum(seen, "firsttap_redis_duration_seconds_count", `command="set"`); n < rounds {
		t.Errorf("Redis was timed %g times", n)
	}
	if sum(seen, "go_sql_open_connections", `db_name="decide"`) < 1 || sum(seen, "firsttap_redis_pool_open", `pool="gate"`) < 1 {
		t.Errorf("%v", seen)
	}
	if sum(seen, "firsttap_lock_acquired_total", `strategy="gate"`) < rounds || sum(seen, "firsttap_lock_attempts_total", `strategy="redis"`) < 1 {
		t.Error("the gate's or the jobs' locks are not counted")
	}
	if degraded := seen["firsttap_redis_degraded_seconds_total"] != 0; degraded != (i.log.Count(redisUnavailable) > 0) {
		t.Errorf("an outage of Redis is counted: %t; the log says:\n%s", degraded, i.log)
	}
	if a := send("GET", i.URL+"/metrics", "", ""); a.status != 404 {
		t.Errorf("the API serves metrics: %s", a)
	}

	redis.Kill()
	testkit.Eventually(t, "the outage is counted", func() bool { return scrape(t, ops)["firsttap_redis_degraded_seconds_total"] > 0.1 })
	redis.Start()
	counted := sum(scrape(t, ops), "firsttap_http_requests_total")
	made := makeUp(i, 0)
	var series map[string]float64
	testkit.Eventually(t, "the made-up requests are counted", func() bool {
		series = scrape(t, ops)
		return sum(series, "firsttap_http_requests_total") >= counted+float64(made)
	})
	before := slices.Collect(maps.Keys(series))
	for k := range 50 {
		makeUp(i, k)
	}
	for series := range scrape(t, ops) {
		if strings.HasPrefix(series, "firsttap_http_") && !slices.Contains(before, series) {
			t.Errorf("a caller has made a series: %s", series)
		}
	}
}

// redisUnavailable is how the log of an instance reports the begin of an outage of Redis.
const redisUnavailable = "redis does not grant locks"

// makeUp sends requests with made-up paths and methods, and returns how many.
func makeUp(i *Instance, k int) (sent int) {
	for _, path := range []string{"/%d", "/v1/%d", "/v1/dispatches/dsp_%d", "/v1/dispatches/%d/nothing", "/v1/me/%%2e%%2e/%d", "/v1/admin/stream/%d"} {
		for _, method := range []string{"GET", "DELETE", fmt.Sprintf("M%d", k)} {
			send(method, i.URL+fmt.Sprintf(path, k), "x", "")
			sent++
		}
	}
	return sent
}
