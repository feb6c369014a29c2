package lock

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// stat returns a number of the server's INFO.
func stat(t *testing.T, direct redis.UniversalClient, section, name string) int {
	t.Helper()
	info, err := direct.InfoMap(t.Context(), section).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, values := range info {
		if value, ok := values[name]; ok {
			number, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}

// reads returns how many requests the server has read before this one. A pipeline is one request.
func reads(t *testing.T, direct redis.UniversalClient) int {
	t.Helper()
	return stat(t, direct, "stats", "total_reads_processed")
}

// requests returns how many requests and script calls f makes.
func requests(t *testing.T, direct redis.UniversalClient, f func()) (requests, commands int) {
	t.Helper()
	calls := func() int {
		return stat(t, direct, "commandstats", "cmdstat_evalsha") + stat(t, direct, "commandstats", "cmdstat_eval")
	}
	commands, requests = calls(), reads(t, direct)
	f()
	requests = reads(t, direct) - requests - 1 // without the first INFO
	return requests, calls() - commands
}

// An acquisition, a refusal and a release cost one command each.
func TestRedisCommands(t *testing.T) {
	server := servertest.StartRedis(t)
	direct, strategy := client(t, server.URL()), NewRedis(client(t, server.URL()), TaggedKeys("lock"))
	wantErr(t, "release", mustAcquire(t, strategy, "warm", "up", time.Minute).Release(t.Context(), 0), nil)
	var g Grant
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"acquire", func() { g = mustAcquire(t, strategy, "a", "me", time.Minute) }},
		{"lose", func() { wantErr(t, "lose", acquireErr(t, strategy, "a", "you", time.Minute), ErrHeld) }},
		{"release", func() { wantErr(t, "release", g.Release(t.Context(), 0), nil) }},
	} {
		if requests, commands := requests(t, direct, step.do); requests != 1 || commands != 1 {
			t.Errorf("%s: %d requests, %d commands; want one", step.what, requests, commands)
		}
	}
}

// Many leases are renewed by a few requests, also after the server has lost its scripts.
func TestRedisRenewsTogether(t *testing.T) {
	t.Parallel()
	const rounds = 2
	leases := testkit.Scale(300, 1000)
	hold := Hold{TTL: time.Minute, RenewEvery: 500 * time.Millisecond, AtMost: time.Hour}
	server := servertest.StartRedis(t)
	direct, strategy := client(t, server.URL()), NewRedis(client(t, server.URL()), TaggedKeys("lock"))
	wantErr(t, "extend", mustAcquire(t, strategy, "warm", "up", time.Minute).Extend(t.Context(), time.Minute), nil)
	l, all := newLocker(t, strategy), make([]*Lease, leases)
	for i := range all {
		lease, err := l.Acquire(t.Context(), fmt.Sprint("lease", i), hold)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = lease
	}
	renewed := func(what string) {
		looks := 1
		made, renewals := requests(t, direct, func() {
			begin := stat(t, direct, "commandstats", "cmdstat_evalsha")
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for made := 0; made < rounds*leases; looks++ {
				<-tick.C
				made = stat(t, direct, "commandstats", "cmdstat_evalsha") - begin
			}
		})
		per := (made - looks) * leases / renewals
		if t.Logf("%s: %d requests for each round of %d leases", what, per, leases); per >= leases/3 {
			t.Errorf("%s: %d renewals took %d requests, %d for each round of %d leases", what, renewals, made-looks, per, leases)
		}
	}
	renewed("at first")
	if err := direct.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	renewed("without scripts")
	for _, lease := range all {
		if lease.Context().Err() != nil {
			t.Fatalf("lost: %v", lease.Context().Err())
		}
	}
	testkit.Together(leases, func(i int) { wantErr(t, "release", all[i].Release(t.Context()), nil) })
}

// A server whose clock is an hour ahead fails, and a replica with the right clock takes over. The fences grow, however
// long ago the name was held.
func TestRedisFenceOutlastsAFailover(t *testing.T) {
	ahead, replica := servertest.StartRedisSkewed(t, time.Hour), servertest.StartRedis(t)
	keys := TaggedKeys("lock")
	first := NewRedis(client(t, ahead.URL()), keys)
	g := mustAcquire(t, first, "a", "me", time.Minute)
	wantErr(t, "release", g.Release(t.Context(), 0), nil)
	before, direct := client(t, ahead.URL()), client(t, replica.URL())
	before.ConfigSet(t.Context(), "repl-diskless-sync-delay", "0") // or the replica would wait for others, for 5 s
	testkit.Eventually(t, "the fence is remembered for long, or is gone", func() bool {
		left := before.TTL(t.Context(), keys.fenceKey("a")).Val()
		return left > fenceTTLSeconds*time.Second/2 || left < 0
	})
	host, port, err := net.SplitHostPort(ahead.Addr())
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(direct.Do(t.Context(), "REPLICAOF", host, port).Err())
	testkit.Eventually(t, "the replica has the server's keys", func() bool {
		replication, err := direct.InfoMap(t.Context(), "replication").Result()
		return err == nil && replication["Replication"]["master_link_status"] == "up"
	})
	ahead.Kill()
	must(direct.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	second := NewRedis(direct, keys)
	last := g.Fence()
	for range 3 {
		g := mustAcquire(t, second, "a", "you", time.Minute)
		if g.Fence() <= last {
			t.Errorf("fence %d after %d", g.Fence(), last)
		}
		last = g.Fence()
		wantErr(t, "release", g.Release(t.Context(), 0), nil)
	}
	if left := direct.TTL(t.Context(), keys.fenceKey("a")).Val(); left < fenceTTLSeconds*time.Second || left > (fenceTTLSeconds+7200)*time.Second {
		t.Errorf("the key of a fence that is an hour ahead expires in %s", left)
	}
}
