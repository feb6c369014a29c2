package locks

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	leases = 1000
	watch  = 2 * ttl
)

// TestCostOfRenewals keeps a thousand names in each way on Redis that renews, and prints the server's load.
func TestCostOfRenewals(t *testing.T) {
	out := newTable(fmt.Sprintf("%d leases of one process kept on one Redis, TTL %s: what it costs to renew each of them once, measured over %s. "+
		"Reads are the server's read events.", leases, ttl, watch), "way", "reads", "commands", "server CPU ms", "how")
	ways := slices.Concat(lockers[:1], libraries)
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) { renewals(t, out, w) })
	}
	out.print()
}

func renewals(t *testing.T, out *table, w way) {
	s := startSite(t)
	admin := strictClient(t, s.redis[0])
	through, commands := tapped(t, s)
	u := w.open(t, through)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	kept := make([]*held, leases)
	work := make([]context.Context, leases)
	for i := range kept {
		var err error
		if kept[i], err = u(ctx, fmt.Sprintf("renewal-%d", i)); err != nil {
			t.Fatal(err)
		}
		work[i] = kept[i].keep(ctx)
	}
	<-time.After(ttl) // each is renewed once
	before, counted := usage(t, admin), commands.Load()
	<-time.After(watch)
	after, sent := usage(t, admin), commands.Load()-counted
	for i := range kept {
		if work[i].Err() != nil {
			t.Fatalf("%s: lease %d was lost: %v", w.name, i, context.Cause(work[i]))
		}
	}
	cancel()
	every := ttl / 3
	if strings.Contains(w.note, "TTL/2") {
		every = ttl / 2
	}
	times := float64(watch / every)
	out.row(w.name, fmt.Sprintf("%.0f", (after.reads-before.reads-1)/times), fmt.Sprintf("%.0f", float64(sent)/times),
		fmt.Sprintf("%.1f", (after.cpu-before.cpu)*1000/times), w.note)
	for _, h := range kept {
		_ = h.release(context.WithoutCancel(ctx)) // the server ends with the test
	}
}

// use is a server's own statistics.
type use struct{ reads, cpu float64 }

func usage(t *testing.T, c redis.UniversalClient) use {
	t.Helper()
	info, err := c.InfoMap(t.Context(), "stats", "cpu").Result()
	if err != nil {
		t.Fatal(err)
	}
	number := func(section, field string) float64 {
		n, err := strconv.ParseFloat(info[section][field], 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return use{number("Stats", "total_reads_processed"), number("CPU", "used_cpu_user") + number("CPU", "used_cpu_sys")}
}
