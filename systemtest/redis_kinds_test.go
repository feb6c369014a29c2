package systemtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"firsttap/repository/repositorytest"
	"firsttap/servertest"
	"firsttap/testkit"
)

// redisKind is a Redis that two instances share.
type redisKind struct {
	settings []string
	// ask sends one command to the server that has the key.
	ask func(words ...string) string
}

func askingWith(t *testing.T, c redis.UniversalClient) func(words ...string) string {
	return func(words ...string) string {
		t.Helper()
		args := make([]any, len(words))
		for i, w := range words {
			args[i] = w
		}
		answer, err := c.Do(t.Context(), args...).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatalf("%v: %v", words, err)
		}
		return fmt.Sprint(answer)
	}
}

// TestEveryKindOfRedis works: behind sentinels, as a cluster, and over TLS. Of 30 drivers one wins, the dispatch's key is where
// the contract says, and instances share claims, live streams and job locks through it.
func TestEveryKindOfRedis(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) redisKind{
		"sentinel": func(t *testing.T) redisKind {
			s := servertest.StartRedisSentinel(t)
			for _, sentinel := range s.Sentinels { // a busy machine is no failover
				askingWith(t, redisAt(t, sentinel.URL()))("SENTINEL", "SET", "mymaster", "down-after-milliseconds", "600000")
			}
			return redisKind{[]string{"FIRSTTAP_REDIS_URL=" + s.URL()}, askingWith(t, redisAt(t, s.Master.URL()))}
		},
		"cluster": func(t *testing.T) redisKind {
			c := servertest.StartRedisCluster(t)
			for _, node := range c.Nodes {
				askingWith(t, redisAt(t, node.URL()))("CONFIG", "SET", "cluster-node-timeout", "600000")
			}
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{c.Nodes[0].Addr()}})
			t.Cleanup(func() { client.Close() })
			return redisKind{[]string{"FIRSTTAP_REDIS_URL=" + c.URL()}, askingWith(t, client)}
		},
		"TLS": func(t *testing.T) redisKind {
			authority := servertest.NewAuthority(t)
			r := servertest.StartRedisTLS(t, authority)
			return redisKind{
				[]string{"FIRSTTAP_REDIS_URL=" + r.URL(), "SSL_CERT_FILE=" + authority.File},
				func(words ...string) string { return r.Ask(t, words...) },
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := start(t)
			f := startRedisFleet(t, append(kind.settings, "FIRSTTAP_RELAY=leader")...)
			f.undisturbed("of 30 drivers one wins, and its marker is in Redis", func() error { return f.raceLeavesMarker(kind) })
			for range 6 { // of a cluster, keys on each of its servers
				f.undisturbed("a marker in Redis refuses", func() error { return f.markerRefuses(kind) })
			}
			f.eventsPass()
			for _, i := range f.instances {
				testkit.Eventually(t, "the relay's lock is shown", func() bool {
					return strings.Contains(send("GET", i.URL+"/v1/admin/locks", AdminKey, "").body, `"name":"relay"`)
				})
			}
			if r := runNow(t, f.instances[1], "remind"); r.Status != "SUCCEEDED" {
				t.Errorf("a job: %+v", r)
			}
		})
	}
}

// redisFleet is two instances with one database and 30 drivers.
type redisFleet struct {
	t         *testing.T
	instances []*Instance
	ops       []string
	db        *Database
	drivers   []Driver
}

func startRedisFleet(t *testing.T, settings ...string) *redisFleet {
	t.Helper()
	url := repositorytest.URL(t, servertest.MariaDB)
	f := &redisFleet{t: t}
	for range 2 {
		ops := testkit.FreeAddress(t)
		f.ops = append(f.ops, ops)
		f.instances = append(f.instances, Start(t, append(settings, "FIRSTTAP_DATABASE_URL="+url, "FIRSTTAP_OPS_ADDR="+ops)...))
	}
	f.db, f.drivers = OpenDatabase(t, url), MakeDrivers(t, f.instances[0], 30)
	return f
}

// withoutRedis is how long the instances have gone without Redis in all.
func (f *redisFleet) withoutRedis() (seconds float64) {
	f.t.Helper()
	for _, ops := range f.ops {
		seconds += Metric(f.t, ops, "firsttap_redis_degraded_seconds_total")
	}
	return seconds
}

// undisturbed fails the test if check does. A check during which an instance believed Redis to be away says nothing and is made
// again: on a busy machine a command may take longer than an accept waits for it.
func (f *redisFleet) undisturbed(what string, check func() error) {
	f.t.Helper()
	testkit.Eventually(f.t, what, func() bool {
		before := f.withoutRedis()
		err := check()
		if f.withoutRedis() != before {
			return false
		}
		if err != nil {
			f.t.Errorf("%s: %v", what, err)
		}
		return true
	})
}

func keyOf(id string) string { return "dispatch:lock:{" + id + "}" }

// raceLeavesMarker lets the drivers race, and checks that the dispatch's key says who has taken it, for a while.
func (f *redisFleet) raceLeavesMarker(kind redisKind) error {
	f.t.Helper()
	id := MakeDispatch(f.t, f.instances[0])
	answers := Together(len(f.drivers), func(k int) Response { return Accept(f.instances[k%2], id, f.drivers[k], 1) })
	if k := slices.IndexFunc(answers, func(a Response) bool { return a.status == 503 }); k >= 0 {
		return fmt.Errorf("answered with %s", answers[k])
	}
	oneWinner(f.t, f.db, id, 1, f.drivers, answers)
	for k, a := range answers {
		if want := "taken:" + f.drivers[k].ID + ":1"; a.Won() && kind.ask("GET", keyOf(id)) != want {
			return fmt.Errorf("the key is %q, want %q", kind.ask("GET", keyOf(id)), want)
		}
	}
	if ms, err := strconv.Atoi(kind.ask("PTTL", keyOf(id))); err != nil || ms <= 0 {
		return fmt.Errorf("the key ends after %d ms, %w", ms, err)
	}
	return nil
}

// markerRefuses checks that both instances believe another one's marker: they refuse a dispatch that is open in the database.
func (f *redisFleet) markerRefuses(kind redisKind) error {
	f.t.Helper()
	id := MakeDispatch(f.t, f.instances[0])
	kind.ask("SET", keyOf(id), "taken:drv_another:1", "PX", "600000")
	for k, i := range f.instances {
		if a := Accept(i, id, f.drivers[k], 1); a.status != 409 || a.Code != "ALREADY_TAKEN" || a.Final == nil || !*a.Final {
			return fmt.Errorf("answered with %s", a)
		}
	}
	if n := f.db.Count("dispatches WHERE id=? AND status='PENDING'", id); n != 1 {
		return errors.New("the database says that it is taken")
	}
	return nil
}

// eventsPass makes claims at one instance until the other's stream has told of one.
func (f *redisFleet) eventsPass() {
	f.t.Helper()
	stream := openStream(f.t, f.instances[1], AdminKey, "")
	testkit.Eventually(f.t, "an event passes from one instance to the other", func() bool {
		if a := Accept(f.instances[0], MakeDispatch(f.t, f.instances[0]), f.drivers[0], 1); !a.Won() {
			f.t.Fatal(a)
		}
		for {
			select {
			case line := <-stream.lines:
				if line == "event: dispatch.accepted" {
					return true
				}
			default:
				return false
			}
		}
	})
}

// TestRedisOfAnotherAuthority: an instance does not talk to a Redis whose certificate it can't verify, and says why. It goes on
// without Redis.
func TestRedisOfAnotherAuthority(t *testing.T) {
	t.Parallel()
	r := servertest.StartRedisTLS(t, servertest.NewAuthority(t))
	f := startRedisFleet(t, "FIRSTTAP_REDIS_URL="+r.URL(), "SSL_CERT_FILE="+servertest.NewAuthority(t).File)
	raceRound(t, f.db, f.instances, f.drivers)
	for _, i := range f.instances {
		testkit.Eventually(t, "the log says why", func() bool {
			return regexp.MustCompile(`"msg":"[^"]*Redis[^"]*","error":"[^"]*certificate signed by unknown authority`).MatchString(i.log.String())
		})
		if a := send("GET", i.URL+"/readyz", "", ""); a.status != 200 || a.Status != "degraded" {
			t.Errorf("readyz: %s", a)
		}
		for line := range strings.Lines(i.log.String()) {
			if !json.Valid([]byte(line)) && !strings.Contains(line, " listens on ") {
				t.Errorf("a line of the log is not JSON: %s", line)
			}
		}
	}
	if n := r.Ask(t, "DBSIZE"); n != "0" {
		t.Errorf("Redis has %s keys", n)
	}
}
