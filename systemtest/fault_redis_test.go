package systemtest

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// redisAt is a client that waits for the server's answer and repeats no command: the second answer would be about the first command's
// effect.
func redisAt(t *testing.T, url string) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = testkit.Patience, testkit.Patience, testkit.Patience
	opts.MaxRetries = -1
	c := redis.NewClient(opts)
	t.Cleanup(func() { c.Close() })
	return c
}

// everyKeyEnds fails the test if a key has no TTL.
func everyKeyEnds(t *testing.T, c *redis.Client) {
	t.Helper()
	keys, err := c.Keys(t.Context(), "dispatch:lock:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if ttl := c.PTTL(t.Context(), k).Val(); ttl == -1 { // -2: it has just expired
			t.Errorf("%s has no end", k)
		}
	}
}

// Redis fails in the middle of races, in each possible way. That costs speed, never a second winner or an error. No
// other test runs beside these races.
func TestRedisFailsMidRace(t *testing.T) {
	faults := map[string]func(r *servertest.Redis, c *redis.Client) (undo func()){
		"frozen": func(r *servertest.Redis, _ *redis.Client) func() { r.Freeze(); return r.Thaw },
		"killed": func(r *servertest.Redis, _ *redis.Client) func() { r.Kill(); return r.Start },
		"flushed": func(_ *servertest.Redis, c *redis.Client) func() {
			c.FlushAll(context.Background())
			return func() {}
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			server := servertest.StartRedis(t)
			c := redisAt(t, server.URL())
			instances, db := startTwo(t, mariaDB(t), "FIRSTTAP_REDIS_URL="+server.URL(), QuickRedis)
			drivers := MakeDrivers(t, instances[0], 30)
			for range testkit.Scale(2, 15) {
				id := MakeDispatch(t, instances[0])
				var undo func()
				var broken sync.WaitGroup
				answers := Together(len(drivers), func(k int) Response {
					if k == 5 { // the fault comes between the requests
						broken.Add(1)
						defer broken.Done()
						undo = fault(server, c)
					}
					return Accept(instances[k%2], id, drivers[k], 1)
				})
				broken.Wait()
				oneWinner(t, db, id, drivers, answers)
				// Redis stays away: every claim is decided by the database.
				raceRound(t, db, instances, drivers)
				if name != "flushed" {
					testkit.Eventually(t, "readyz is 200 and degraded", func() bool {
						a := instances[0].readyz()
						return a.status == 200 && a.Status == "degraded"
					})
				}
				undo()
				testkit.Eventually(t, "readyz is ok again", func() bool {
					return instances[0].readyz().Status == "ok" && instances[1].readyz().Status == "ok"
				})
			}
			everyKeyEnds(t, c)
		})
	}
}
