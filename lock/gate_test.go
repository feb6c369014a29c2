package lock

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/redisclient"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // they mostly wait, and each runs several at once
		panic(err)
	}
	os.Exit(servertest.Main(m))
}

// timeout is longer than a busy machine delays a reply, so that no delay counts as an outage.
const timeout = testkit.Patience

// newGate returns a gate on the server at url. Its Run is not called: a probe waits for a second, and on a busy machine one that is late
// would begin an outage.
func newGate(t *testing.T, url string) (*Gate, redis.UniversalClient) {
	t.Helper()
	client, err := redisclient.Dial(url, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return NewGate(client, timeout, slog.New(slog.DiscardHandler), nil), client
}

// probing returns what runs the gate's probes.
func probing(g *Gate) func(context.Context) {
	return func(ctx context.Context) { g.Run(ctx, "probes:") }
}

func mustObtain(t *testing.T, r *Gate, name, owner string) *GateLease {
	t.Helper()
	l, err := r.Obtain(t.Context(), name, owner, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestOneOwner(t *testing.T) {
	r, client := newGate(t, servertest.StartRedis(t).URL())
	l := mustObtain(t, r, "a", "me")
	mustObtain(t, r, "b", "you")
	var held *HeldError
	if _, err := r.Obtain(t.Context(), "a", "you", time.Minute); !errors.As(err, &held) || held.Owner != "me" || !errors.Is(err, ErrHeld) {
		t.Fatalf("a second owner: %v", err)
	}
	if owner, err := r.Owner(t.Context(), "a"); owner != "me" || err != nil {
		t.Error(owner, err)
	}
	if ttl := client.PTTL(t.Context(), "a").Val(); ttl <= 0 || ttl > time.Minute {
		t.Errorf("held for %s", ttl)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if owner, err := r.Owner(t.Context(), "a"); owner != "" || err != nil {
		t.Error(owner, err)
	}
	mustObtain(t, r, "a", "you")
}

// A lease that has expired must not change another owner's key.
func TestOnlyTheOwnerReleasesAndReplaces(t *testing.T) {
	r, client := newGate(t, servertest.StartRedis(t).URL())
	l := mustObtain(t, r, "a", "me")
	client.Set(t.Context(), "a", "rival", time.Minute)
	for what, err := range map[string]error{"release": l.Release(t.Context()), "replace": l.Replace(t.Context(), "mark", time.Minute)} {
		if !errors.Is(err, ErrLost) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if owner := client.Get(t.Context(), "a").Val(); owner != "rival" {
		t.Errorf("the rival's lease became %q", owner)
	}
	client.Del(t.Context(), "a")
	if err := l.Replace(t.Context(), "mark", time.Minute); !errors.Is(err, ErrLost) || client.Exists(t.Context(), "a").Val() != 0 {
		t.Errorf("an ended lease was replaced: %v", err)
	}
}

func TestReplace(t *testing.T) {
	r, client := newGate(t, servertest.StartRedis(t).URL())
	if err := mustObtain(t, r, "a", "me").Replace(t.Context(), "mark", time.Hour); err != nil {
		t.Fatal(err)
	}
	if owner, ttl := client.Get(t.Context(), "a").Val(), client.PTTL(t.Context(), "a").Val(); owner != "mark" || ttl <= time.Minute {
		t.Errorf("%q for %s", owner, ttl)
	}
}

func TestReleaseAfterItsContextEnded(t *testing.T) {
	r, client := newGate(t, servertest.StartRedis(t).URL())
	l := mustObtain(t, r, "a", "me")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Release(ctx); err != nil || client.Exists(t.Context(), "a").Val() != 0 {
		t.Errorf("still held: %v", err)
	}
	if _, err := r.Obtain(ctx, "b", "me", time.Minute); !errors.Is(err, ErrUnavailable) || r.Degraded() {
		t.Errorf("a canceled caller: error %v, or it counts as an outage", err)
	}
}

// After a lost reply the outcome is unknown, and the lease that Obtain returns with the error cleans up.
func TestReplyIsLost(t *testing.T) {
	server := servertest.StartRedis(t)
	proxy := servertest.StartProxy(t, server.Addr())
	r, _ := newGate(t, proxy.URL(server.URL()))
	_, direct := newGate(t, server.URL())
	cut := proxy.CutReply("SET")
	l, err := r.Obtain(t.Context(), "a", "me", time.Minute)
	<-cut.Done()
	if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrHeld) || l == nil {
		t.Fatalf("%v, %v", l, err)
	}
	if direct.Get(t.Context(), "a").Val() != "me" {
		t.Fatal("the test lost the command, not its reply")
	}
	stop := testkit.Run(t, probing(r))
	testkit.Eventually(t, "Redis is used again", func() bool { return !r.Degraded() })
	stop()
	if err := l.Release(t.Context()); err != nil || direct.Exists(t.Context(), "a").Val() != 0 {
		t.Errorf("the key remains: %v", err)
	}
}

// In each kind of outage the first call fails in time, later calls fail at once, and the gate recovers afterwards. The
// client alone would wait for longer than the test.
func TestRedisGoesAway(t *testing.T) {
	for name, fault := range map[string]struct {
		begin, end func(*servertest.Redis, *servertest.Proxy)
	}{
		"frozen": {
			func(server *servertest.Redis, _ *servertest.Proxy) { server.Freeze() },
			func(server *servertest.Redis, _ *servertest.Proxy) { server.Thaw() },
		},
		"killed": {
			func(server *servertest.Redis, _ *servertest.Proxy) { server.Kill() },
			func(server *servertest.Redis, _ *servertest.Proxy) { server.Start() },
		},
		"swallowed": {
			func(_ *servertest.Redis, proxy *servertest.Proxy) { proxy.Blackhole(true) },
			func(_ *servertest.Redis, proxy *servertest.Proxy) { proxy.Blackhole(false) },
		},
		"refused": {
			func(_ *servertest.Redis, proxy *servertest.Proxy) { proxy.Refuse(true) },
			func(_ *servertest.Redis, proxy *servertest.Proxy) { proxy.Refuse(false) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.StartRedis(t)
			proxy := servertest.StartProxy(t, server.Addr())
			client, err := redisclient.Dial(proxy.URL(server.URL()), time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { client.Close() })
			g := NewGate(client, 500*time.Millisecond, slog.New(slog.DiscardHandler), nil)
			stop := testkit.Run(t, probing(g))
			obtained := func() bool {
				_, err := g.Obtain(t.Context(), name, "me", time.Minute)
				return err == nil
			}
			testkit.Eventually(t, "Redis is used", obtained)
			stop() // no probe notices the outage before the call
			fault.begin(server, proxy)
			if _, err := g.Obtain(t.Context(), name, "you", time.Minute); !errors.Is(err, ErrUnavailable) {
				t.Fatalf("got %v", err)
			}
			if !g.Degraded() {
				t.Error("the outage was not noticed")
			}
			testkit.Run(t, probing(g))
			fault.end(server, proxy)
			testkit.Eventually(t, "Redis is used again", obtained)
		})
	}
}

// DegradedFor grows during an outage, is constant outside of outages, and never decreases.
func TestDegradedFor(t *testing.T) {
	server := servertest.StartRedis(t)
	g, _ := newGate(t, server.URL())
	testkit.Run(t, probing(g))
	var past time.Duration
	for range 2 {
		if g.DegradedFor() != past {
			t.Errorf("it grew outside of an outage: %s after %s", g.DegradedFor(), past)
		}
		server.Kill()
		testkit.Eventually(t, "it grows", func() bool { return g.DegradedFor() > past+50*time.Millisecond })
		server.Start()
		testkit.Eventually(t, "Redis is used again", func() bool { return !g.Degraded() })
		if g.DegradedFor() < past+50*time.Millisecond {
			t.Errorf("it decreased to %s", g.DegradedFor())
		}
		past = g.DegradedFor()
	}
}

// A Redis that answers, and refuses what a caller needs, is as good as away: the first refused call begins the outage, a probe notices it
// without any call, the line names the answer, and the gate recovers by itself.
func TestRedisAnswersAndRefuses(t *testing.T) {
	type command = []any
	user := func(rules ...any) command { return append(command{"ACL", "SETUSER", "limited"}, rules...) }
	for name, fault := range map[string]struct {
		begin, end []command
		answer     string
	}{
		"SET is not allowed": {[]command{user("-set")}, []command{user("+set")}, "NOPERM"},
		"scripts are not":    {[]command{user("-evalsha")}, []command{user("+evalsha")}, "NOPERM"},
		"DEL is not":         {[]command{user("-del")}, []command{user("+del")}, "can't run this command"},
		"the keys are not":   {[]command{user("resetkeys", "~other")}, []command{user("resetkeys", "~*")}, "NOPERM"},
		"the password changes": {
			[]command{user("resetpass", ">new"), {"CLIENT", "KILL", "USER", "limited"}}, []command{user("resetpass", ">password")}, "WRONGPASS",
		},
		"a replica": {[]command{{"REPLICAOF", "127.0.0.1", "1"}}, []command{{"REPLICAOF", "NO", "ONE"}}, "READONLY"},
		"a replica without data": {
			[]command{{"CONFIG", "SET", "replica-serve-stale-data", "no"}, {"REPLICAOF", "127.0.0.1", "1"}}, []command{{"REPLICAOF", "NO", "ONE"}}, "",
		},
		"full": {[]command{{"CONFIG", "SET", "maxmemory", "1"}}, []command{{"CONFIG", "SET", "maxmemory", "0"}}, "OOM"},
		"replicas are missing": {
			[]command{{"CONFIG", "SET", "min-replicas-to-write", "1"}}, []command{{"CONFIG", "SET", "min-replicas-to-write", "0"}}, "NOREPLICAS",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.StartRedis(t)
			admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { admin.Close() })
			do := func(commands ...command) {
				t.Helper()
				for _, c := range commands {
					if err := admin.Do(t.Context(), c...).Err(); err != nil {
						t.Fatal(c, err)
					}
				}
			}
			do(user("on", ">password", "+@all", "~*", "&*"))
			client, err := redisclient.Dial("redis://limited:password@"+server.Addr(), timeout)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { client.Close() })
			log := &testkit.LogBuffer{}
			called, idle := NewGate(client, timeout, slog.New(slog.NewTextHandler(log, nil)), nil), NewGate(client, timeout, slog.New(slog.DiscardHandler), nil)
			mustObtain(t, called, "a", "me").Release(t.Context())
			do(fault.begin...)
			testkit.Eventually(t, "a refused call begins the outage", func() bool {
				if l, err := called.Obtain(t.Context(), "b", "me", time.Minute); err == nil {
					_ = l.Release(t.Context())
				}
				return called.Degraded()
			})
			if text := log.String(); strings.Count(text, "does not grant locks") != 1 || !strings.Contains(text, fault.answer) {
				t.Errorf("the line does not name %s: %s", fault.answer, text)
			}
			testkit.Run(t, probing(idle))
			testkit.Eventually(t, "a probe notices the outage", idle.Degraded)
			do(fault.end...)
			testkit.Run(t, probing(called))
			testkit.Eventually(t, "both are in use again", func() bool { return !called.Degraded() && !idle.Degraded() })
		})
	}
}
