package scale

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/servertest"
	"firsttap/systemtest"
)

// tapsOfRace is how many drivers tap in a race.
const tapsOfRace = 30

// What FIRSTTAP_RACES races of 30 drivers at two instances cost a Redis, and each of the three masters of a Redis Cluster: processor time
// and commands, without what the instances ask for when nobody taps. The reciprocal of the busiest master's time for each race is how many
// races a second its thread carries.
func BenchmarkShards(b *testing.B) {
	races := int(number(b, "FIRSTTAP_RACES", "100"))
	b.Run("one", func(b *testing.B) {
		r := servertest.StartRedis(b)
		measureShards(b, races, r.URL(), r)
	})
	b.Run("cluster", func(b *testing.B) {
		c := servertest.StartRedisCluster(b)
		measureShards(b, races, c.URL(), c.Nodes[:]...)
	})
}

func measureShards(b *testing.B, races int, url string, masters ...*servertest.Redis) {
	database := servertest.StartMariaDB(b).URL(b)
	var instances []*systemtest.Instance
	for range 2 {
		instances = append(instances, systemtest.Start(b, "FIRSTTAP_DATABASE_URL="+database, "FIRSTTAP_REDIS_URL="+url))
	}
	drivers := systemtest.MakeDrivers(b, instances[0], 20*tapsOfRace)
	clients := make([]*redis.Client, len(masters))
	for k, m := range masters {
		clients[k] = redis.NewClient(&redis.Options{Addr: m.Addr()})
		b.Cleanup(func() { clients[k].Close() })
	}
	race := func(n int) {
		id := systemtest.MakeDispatch(b, instances[n%2])
		first := n * tapsOfRace % len(drivers)
		won := 0
		for _, a := range systemtest.Together(tapsOfRace, func(k int) systemtest.Response {
			return systemtest.Accept(instances[k%2], id, drivers[first+k], 1)
		}) {
			if a.Won() {
				won++
			}
		}
		if won != 1 {
			b.Fatalf("%d drivers have won", won)
		}
	}
	race(0)
	quiet := time.NewTimer(5 * time.Second)
	idle := loadsOf(b, clients, func() { <-quiet.C })
	busy := loadsOf(b, clients, func() {
		for n := range races {
			race(n)
		}
	})
	var micros, commands []float64
	for k := range busy {
		longer := busy[k].seconds / idle[k].seconds
		micros = append(micros, (busy[k].micros-longer*idle[k].micros)/float64(races))
		commands = append(commands, (busy[k].commands-longer*idle[k].commands)/float64(races))
	}
	b.Logf("for each race: us of each master %.1f, commands %.1f", micros, commands)
	b.ReportMetric(slices.Max(micros), "us/race")
	b.ReportMetric(1e6/slices.Max(micros), "races/s")
	b.ReportMetric(0, "ns/op")
}

// redisLoad is what a Redis has spent, in microseconds of its processor time and in commands, for so many seconds.
type redisLoad struct{ seconds, micros, commands float64 }

// loadsOf returns what each Redis spends while work is done.
func loadsOf(b *testing.B, clients []*redis.Client, work func()) []redisLoad {
	b.Helper()
	read := func() (loads []redisLoad) {
		for _, c := range clients {
			info, err := c.InfoMap(b.Context(), "cpu", "stats").Result()
			if err != nil {
				b.Fatal(err)
			}
			figure := func(section, name string) float64 {
				f, err := strconv.ParseFloat(info[section][name], 64)
				if err != nil {
					b.Fatalf("Redis says of %s %q: %v", name, info[section][name], err)
				}
				return f
			}
			loads = append(loads, redisLoad{
				micros:   1e6 * (figure("CPU", "used_cpu_user") + figure("CPU", "used_cpu_sys")),
				commands: figure("Stats", "total_commands_processed"),
			})
		}
		return loads
	}
	before, began := read(), time.Now()
	work()
	took := time.Since(began).Seconds()
	after := read()
	for k := range after {
		after[k] = redisLoad{took, after[k].micros - before[k].micros, after[k].commands - before[k].commands}
	}
	return after
}
