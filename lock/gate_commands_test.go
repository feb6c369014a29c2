package lock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/servertest"
)

// commandStats returns how often the server has run each command, without those of the probe and the test.
func commandStats(t *testing.T, client redis.UniversalClient) map[string]string {
	t.Helper()
	info, err := client.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]string{}
	for name, stat := range info["Commandstats"] {
		name = strings.TrimPrefix(name, "cmdstat_")
		if slices.Contains([]string{"ping", "hello", "quit", "info"}, name) || strings.HasPrefix(name, "c") {
			continue // c: client|setinfo, config|resetstat
		}
		calls[name], _, _ = strings.Cut(strings.TrimPrefix(stat, "calls="), ",")
	}
	return calls
}

func TestOneCommandWonOrLost(t *testing.T) {
	server := servertest.StartRedis(t)
	r, direct := newGate(t, server.URL())
	mustObtain(t, r, "a", "me")
	const losers = 30
	for i := range losers {
		if _, err := r.Obtain(t.Context(), "a", fmt.Sprint(i), time.Minute); !errors.Is(err, ErrHeld) {
			t.Fatal(err)
		}
	}
	want := map[string]string{"set": fmt.Sprint(losers + 1)}
	if got := commandStats(t, direct); !maps.Equal(got, want) {
		t.Errorf("the server ran %v, want %v", got, want)
	}
}

func TestNoCommandWhileRedisIsAway(t *testing.T) {
	server := servertest.StartRedis(t)
	proxy := servertest.StartProxy(t, server.Addr())
	r, _ := newGate(t, proxy.URL(server.URL()))
	lease := mustObtain(t, r, "a", "me")
	proxy.Refuse(true)
	if _, err := r.Owner(t.Context(), "a"); !errors.Is(err, ErrUnavailable) || !r.Degraded() {
		t.Fatalf("got %v, degraded %v", err, r.Degraded())
	}
	proxy.Refuse(false) // Redis would answer, but no probe has run
	_, direct := newGate(t, server.URL())
	direct.ConfigResetStat(t.Context())
	calls := map[string]func() error{
		"Obtain":  func() error { _, err := r.Obtain(t.Context(), "a", "you", time.Minute); return err },
		"Owner":   func() error { _, err := r.Owner(t.Context(), "a"); return err },
		"Release": func() error { return lease.Release(t.Context()) },
		"Replace": func() error { return lease.Replace(t.Context(), "mark", time.Minute) },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: got %v, want %v", name, err, ErrUnavailable)
		}
	}
	if got := commandStats(t, direct); len(got) > 0 {
		t.Errorf("the server ran %v", got)
	}
}

func TestCallersDeadlineIsNoFailureOfRedis(t *testing.T) {
	r, _ := newGate(t, servertest.StartRedis(t).URL())
	mustObtain(t, r, "a", "me")
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if _, err := r.Obtain(ctx, "b", "me", time.Minute); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want %v", err, ErrUnavailable)
	}
	if r.Degraded() {
		t.Error("a caller's deadline counts as an outage")
	}
}

// A key of another type makes its own name unavailable, and no other name.
func TestKeyOfAnotherType(t *testing.T) {
	server := servertest.StartRedis(t)
	r, direct := newGate(t, server.URL())
	direct.RPush(t.Context(), "list", "x")
	if _, err := r.Obtain(t.Context(), "list", "me", time.Minute); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want %v", err, ErrUnavailable)
	}
	if _, err := r.Obtain(t.Context(), "other", "me", time.Minute); err != nil {
		t.Errorf("another name: %v", err)
	}
}

func TestTheOwnersOwnNameIsTheirsAgain(t *testing.T) {
	r, _ := newGate(t, servertest.StartRedis(t).URL())
	mustObtain(t, r, "a", "me")
	if err := mustObtain(t, r, "a", "me").Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// After the server has lost its scripts, the next replacement and release work.
func TestReleaseAfterTheScriptsAreGone(t *testing.T) {
	r, direct := newGate(t, servertest.StartRedis(t).URL())
	for range 2 {
		lease := mustObtain(t, r, "a", "me")
		direct.ScriptFlush(t.Context())
		if err := lease.Replace(t.Context(), "mark", time.Minute); err != nil {
			t.Error(err)
		}
		if err := r.Release(t.Context(), "a", "mark"); err != nil {
			t.Error(err)
		}
	}
	if n := direct.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys remain", n)
	}
}
