package systemtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

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
			return redisKind{[]string{"FIRSTTAP_REDIS_URL=" + s.URL()}, askingWith(t, redisAt(t, s.Master.URL()))}
		},
		"cluster": func(t *testing.T) redisKind {
			c := servertest.StartRedisCluster(t)
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
			instances, db := startTwo(t, mariaDB(t), append(kind.settings, "FIRSTTAP_RELAY=leader", lasting)...)
			drivers := MakeDrivers(t, instances[0], 30)
			raceLeavesMarker(t, db, instances, drivers, kind)
			for range 6 { // of a cluster, keys on each of its servers
				markerRefuses(t, db, instances, drivers, kind)
			}
			eventsPass(t, instances, drivers[0])
			for _, i := range instances {
				testkit.Eventually(t, "the relay's lock is shown", func() bool {
					return strings.Contains(send("GET", i.URL+"/v1/admin/locks", AdminKey, "").body, `"name":"relay"`)
				})
			}
			if r := runNow(t, instances[1], "remind"); r.Status != "SUCCEEDED" {
				t.Errorf("a job: %+v", r)
			}
		})
	}
}

func keyOf(id string) string { return "dispatch:lock:{" + id + "}" }

// raceLeavesMarker lets the drivers race, and checks that the dispatch's key says who has taken it, for a while.
func raceLeavesMarker(t *testing.T, db *Database, instances []*Instance, drivers []Driver, kind redisKind) {
	t.Helper()
	id, winner := raceRound(t, db, instances, drivers)
	if got, want := kind.ask("GET", keyOf(id)), "taken:"+winner.ID+":1"; got != want {
		t.Errorf("the key is %q, want %q", got, want)
	}
	if ms, err := strconv.Atoi(kind.ask("PTTL", keyOf(id))); err != nil || ms <= 0 {
		t.Errorf("the key ends after %d ms, %v", ms, err)
	}
}

// markerRefuses checks that both instances believe another one's marker: they refuse a dispatch that is open in the database.
func markerRefuses(t *testing.T, db *Database, instances []*Instance, drivers []Driver, kind redisKind) {
	t.Helper()
	for k, i := range instances {
		// Each tap has a marker of its own: an instance asks the database about a marker a second after it has believed it.
		id := MakeDispatch(t, instances[0])
		kind.ask("SET", keyOf(id), "taken:drv_another:1", "PX", "600000")
		mustBeTaken(t, i, id, drivers[k])
		if n := db.Count("dispatches WHERE id=? AND status='PENDING'", id); n != 1 {
			t.Error("the database says that it is taken")
		}
	}
}

// eventsPass makes claims at one instance until the other's stream has told of one.
func eventsPass(t *testing.T, instances []*Instance, d Driver) {
	t.Helper()
	stream := openStream(t, instances[1], AdminKey, "")
	testkit.Eventually(t, "an event passes from one instance to the other", func() bool {
		mustWin(t, instances[0], MakeDispatch(t, instances[0]), d, 1)
		for {
			select {
			case line, open := <-stream.lines:
				if !open {
					t.Fatal("the stream has ended")
				}
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
	instances, db := startTwo(t, mariaDB(t), "FIRSTTAP_REDIS_URL="+r.URL(), "SSL_CERT_FILE="+servertest.NewAuthority(t).File)
	raceRound(t, db, instances, MakeDrivers(t, instances[0], 30))
	for _, i := range instances {
		testkit.Eventually(t, "the log says why", func() bool {
			return regexp.MustCompile(`"msg":"[^"]*Redis[^"]*","error":"[^"]*certificate signed by unknown authority`).MatchString(i.log.String())
		})
		testkit.Retry(t, func() error { // a database that does not answer for a second makes it unready
			if a := i.readyz(); a.status != 200 || a.Status != "degraded" {
				return fmt.Errorf("readyz: %s", a)
			}
			return nil
		})
		for line := range strings.Lines(i.log.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("a line of the log is not JSON: %s", line)
			}
		}
	}
	if n := r.Ask(t, "DBSIZE"); n != "0" {
		t.Errorf("Redis has %s keys", n)
	}
}
