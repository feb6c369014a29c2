package schedule_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/lock"
	"firsttap/redisclient"
	"firsttap/schedule"
	"firsttap/servertest"
	"firsttap/testkit"
)

// holders are servers on which all locks that a Scheduler of two jobs knows are held. It does not run.
type holders struct {
	*schedule.Scheduler
	servers []*servertest.Redis
	clients []redisclient.Client
}

// newHolders starts so many servers.
func newHolders(t *testing.T, n int) *holders {
	t.Helper()
	h := &holders{}
	nodes := make([]*lock.Redis, n)
	for i := range nodes {
		server := servertest.StartRedis(t)
		client, err := redisclient.Dial(server.URL(), testkit.Patience)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		nodes[i], h.servers, h.clients = redisLocks(t, server.URL()), append(h.servers, server), append(h.clients, client)
	}
	locks := schedule.Strategy(nodes[0])
	var err error
	if n > 1 {
		if locks, err = lock.NewQuorum(nodes...); err != nil {
			t.Fatal(err)
		}
	}
	h.Scheduler, err = schedule.New(schedule.Options{Locks: locks, OtherLocks: []string{"relay"}, Jobs: []schedule.Job{
		{Name: "own", When: eachSecond, Hold: usual, Work: done},
		{Name: "led", When: eachSecond, Hold: usual, OnLeader: true, Work: done},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"relay", "own", "jobs", "unknown"} {
		if _, err := locks.Acquire(t.Context(), name, "host:1/"+name, time.Hour); err != nil {
			t.Fatal(err)
		}
		for _, node := range nodes { // for the last of which a quorum does not wait
			testkit.Eventually(t, name+" is held", func() bool {
				held, err := node.Show(t.Context(), name)
				return err == nil && held.Owner != ""
			})
		}
	}
	return h
}

// mustHold fails the test unless the locks that s knows of are held.
func mustHold(t *testing.T, s *schedule.Scheduler) {
	t.Helper()
	held, err := s.HeldLocks(t.Context())
	mustBeHeld(t, held, err)
}

// mustBeHeld fails the test unless HeldLocks has returned the locks that are held.
func mustBeHeld(t *testing.T, held []cronjob.HeldLock, err error) {
	t.Helper()
	want := []string{"jobs", "own", "relay"}
	if err != nil || len(held) != len(want) {
		t.Errorf("%d are held, want %v: %v", len(held), want, err)
		return
	}
	for i, l := range held {
		if l.Name != want[i] || l.Owner != "host:1/"+l.Name || l.Remaining <= 0 || l.Remaining > time.Hour || l.Fence <= 0 {
			t.Errorf("%+v", l)
		}
	}
}

// redisCommands counts the commands to a server, without those that open a connection and the test's.
func redisCommands(t *testing.T, client redisclient.Client) (n int) {
	t.Helper()
	info, err := client.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for name, stat := range info["Commandstats"] {
		name, _, _ = strings.Cut(strings.TrimPrefix(name, "cmdstat_"), "|")
		if slices.Contains([]string{"hello", "client", "ping", "info", "quit"}, name) {
			continue
		}
		var calls int
		if _, err := fmt.Sscanf(stat, "calls=%d", &calls); err != nil {
			t.Fatal(err)
		}
		n += calls
	}
	return n
}

// The cost of HeldLocks depends on the number of locks, and not on the number of keys in Redis.
func TestHeldCostsTheSame(t *testing.T) {
	t.Parallel()
	for name, nodes := range map[string]int{"redis": 1, "quorum": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHolders(t, nodes)
			mustCost := func(what string) {
				t.Helper()
				var all []int
				var held []cronjob.HeldLock
				var err error
				testkit.Eventually(t, "the servers answer within a second", func() bool { // HeldLocks waits no longer
					all = nil
					for _, c := range h.clients {
						all = append(all, -redisCommands(t, c))
					}
					held, err = h.HeldLocks(t.Context())
					for i, c := range h.clients {
						all[i] += redisCommands(t, c)
					}
					return !errors.Is(err, dispatch.ErrUnavailable)
				})
				mustBeHeld(t, held, err)
				// GET and PTTL of own, led, jobs and relay; fewer on the server for which a quorum did not wait.
				const names, each = 4, 2
				if slices.Max(all) > names*each {
					t.Errorf("%s: it took %v commands for %d names", what, all, names)
				}
			}
			mustCost("with few keys")
			for _, c := range h.clients {
				var keys []any
				for k := range 20_000 {
					keys = append(keys, fmt.Sprintf("dispatch:%d", k), "x", fmt.Sprintf("job-lock:test:%d", k), "host:1/x 7")
				}
				if err := c.MSet(t.Context(), keys...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			mustCost("with many keys")
		})
	}
}

// HeldLocks works for several callers at once while one of the servers does not answer.
func TestHeldByAMajority(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	h := newHolders(t, 3)
	h.servers[1].Freeze()
	defer h.servers[1].Thaw()
	const callers = 8 // which need more connections than a pool has
	var held [callers][]cronjob.HeldLock
	testkit.Retry(t, func() error { // a busy machine may keep the other two servers from answering within HeldLocks' second
		var errs [callers]error
		testkit.Together(callers, func(i int) { held[i], errs[i] = h.HeldLocks(t.Context()) })
		return errors.Join(errs[:]...)
	})
	for _, held := range held {
		mustBeHeld(t, held, nil)
	}
	h.servers[2].Kill()
	if held, err := h.HeldLocks(t.Context()); !errors.Is(err, dispatch.ErrUnavailable) {
		t.Errorf("without a majority: %+v, %v", held, err)
	}
}

// HeldLocks asks for all names at once: servers that are slow, or do not answer, delay it as if there were one name.
func TestHeldLocksAreAskedForAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		i := p.create("a", schedule.Options{Locks: p.locks, OtherLocks: []string{"relay", "more", "and", "others"}, Jobs: []schedule.Job{{Name: "own"}}})
		for _, name := range []string{"relay", "own", "jobs"} {
			if _, err := p.locks.Acquire(t.Context(), name, "host:1/"+name, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		i.locks.slow(300*time.Millisecond, 300*time.Millisecond)
		mustHold(t, i.Scheduler)
		if took := time.Since(began); took != 600*time.Millisecond {
			t.Errorf("with a slow server it takes %s", took)
		}
		began = time.Now()
		i.locks.cut(cutRequests)
		if held, err := i.HeldLocks(t.Context()); !errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("without a server: %+v, %v", held, err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("without a server it takes %s", took)
		}
	})
}
