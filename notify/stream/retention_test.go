package stream

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// TestBusForgets: Redis keeps an entry as long as the retention, also when nothing happens after it. No client gets a resync, and one that
// has got nothing since then can resume at an instance that starts.
func TestBusForgets(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	const retention = 8 * time.Second
	short := func(o *Options) { o.Retention, o.Heartbeat = retention, 50*time.Millisecond }
	a, b := instance(t, server.URL(), short), instance(t, server.URL(), short)
	here, there := adminStream(t, a, ""), adminStream(t, b, "")
	direct := dial(t, server.URL())
	e := opens(a, here, there)
	at := here.lastID()
	published, _, _ := splitID(at)
	testkit.Eventually(t, "the event is forgotten", func() bool {
		// The newest mark is read last, so that it is no older than when the event was still there.
		kept := direct.XRange(t.Context(), testStream, at, at).Val()
		newest := direct.XRevRangeN(t.Context(), testStream, "+", "-", 1).Val()
		if ms, _, _ := splitID(newest[0].ID); len(kept) == 0 && ms < published+uint64(retention.Milliseconds()) {
			t.Fatalf("forgotten after %d ms", ms-published)
		}
		return len(kept) == 0
	})
	testkit.Eventually(t, "the client's id is younger than the event", func() bool { return before(at, here.lastID()) })
	starts := instance(t, server.URL(), short)
	moved := adminStream(t, starts, here.hangUp())
	opens(b, there, moved)
	for _, c := range []*client{here, there, moved} {
		testkit.Equal(t, "resyncs", 0, c.count("resync"))
	}
	testkit.Equal(t, "outages", 0, testutil.ToFloat64(a.metrics.outages)+testutil.ToFloat64(b.metrics.outages))
	if late := adminStream(t, starts, at); true { // longer away than Redis remembers
		testkit.Eventually(t, "to read again", func() bool { return late.count("resync") == 1 })
	}
	if there.count(string(e.Type)) != 2 {
		t.Errorf("the events are %q", there.names())
	}
}

// TestBurstDoesNotFillRedis: within the retention, the number of entries is bounded too.
func TestBurstDoesNotFillRedis(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	client := dial(t, server.URL())
	b := &bus{client: client, key: testStream, origin: "a test", timeout: patient}
	const batch = 1000
	entries := make([]*entry, batch)
	for k := range entries {
		entries[k] = &entry{kind: kindMark}
	}
	for range 2 * busLength / batch {
		if err := b.append(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
	}
	const node = 100 // entries that Redis removes at once
	if n := client.XLen(t.Context(), testStream).Val(); n < busLength || n > busLength+node {
		t.Errorf("Redis keeps %d entries of %d, want %d", n, 2*busLength, busLength)
	}
}

// TestInstanceWithAWrongClock: what Redis keeps depends on its own clock alone.
func TestInstanceWithAWrongClock(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	client := dial(t, server.URL())
	wrong := instance(t, server.URL(), func(o *Options) {
		o.Retention = 6 * time.Second
		o.Now = func() time.Time { return time.Now().Add(24 * time.Hour) }
	})
	e := opens(wrong, adminStream(t, wrong, ""))
	marks := func() (n int) {
		for _, m := range client.XRange(t.Context(), testStream, "-", "+").Val() {
			if m.Values["kind"] == kindMark {
				n++
			}
		}
		return n
	}
	first := marks()
	testkit.Eventually(t, "the instance has trimmed", func() bool { return marks() > first })
	found := client.XRange(t.Context(), testStream, "-", "+").Val()
	has := func(m redis.XMessage) bool {
		s, _ := m.Values["body"].(string)
		return strings.Contains(s, string(e.ID))
	}
	for _, m := range found {
		if has(m) {
			return
		}
	}
	t.Errorf("a young event is gone from %d entries", len(found))
}
