//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package stream

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

// TestHeartbeats: an idle stream gets a heartbeat every 15 s at least, and ends after an hour.
func TestHeartbeats(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h, stop := startHub(t, Options{})
		defer stop()
		s, err := openDriver(t, h, kim(), "")
		began := time.Now()
		c := listen(t, s, err)
		<-c.ended
		if c.err != nil {
			t.Errorf("ended with %v", c.err)
		}
		if lasted := time.Since(began); lasted < 50*time.Minute || lasted > 70*time.Minute {
			t.Errorf("it lasted %v", lasted)
		}
		last := began
		for _, at := range append(c.arrived, time.Now()) {
			if at.Sub(last) > 15*time.Second {
				t.Fatalf("silent for %v", at.Sub(last))
			}
			last = at
		}
		if n := len(c.arrived); n > 400 {
			t.Errorf("%d writes in an hour", n)
		}
		testkit.Equal(t, "events out of nothing", 0, len(c.all()))
	})
}

// TestHeartbeatsTellWhereItIs: heartbeats carry ids, so a driver who gets few of many events can still resume.
func TestHeartbeatsTellWhereItIs(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h, stop := startHub(t, Options{RingSize: 8})
		defer stop()
		v := kim()
		s, err := openDriver(t, h, v, "")
		c := listen(t, s, err)
		synctest.Wait()
		before := c.lastID()
		for range 100 {
			happens(h, job(), dispatch.EventStarted, "drv_another")
		}
		time.Sleep(15 * time.Second) // of the bubble's
		at := c.hangUp()
		if at == before {
			t.Fatal("the heartbeats say nothing")
		}
		s, err = openDriver(t, h, v, at)
		c = listen(t, s, err)
		opens(h)
		synctest.Wait()
		testkit.Equal(t, "events", []string{"dispatch.opened"}, c.names())
		c.hangUp()
	})
}

func TestLimits(t *testing.T) {
	h := runHub(t, Options{MaxStreams: 5, MaxPerDriver: 2, MaxPerKey: 1})
	v := kim()
	first, second := driverStream(t, h, v, ""), driverStream(t, h, v, "")
	third := driverStream(t, h, v, "")
	<-first.ended
	if !errors.Is(first.err, ErrReplaced) {
		t.Errorf("the oldest ended with %v", first.err)
	}
	if said := first.said(); !slices.Contains(said, "retry: 60000") || !slices.Contains(first.names(), "replaced") {
		t.Errorf("the oldest was told %q and %q: its client comes back at once, and ends another one", said, first.names())
	}
	a, b := adminStream(t, h, ""), adminStream(t, h, "")
	<-a.ended
	driverStream(t, h, kim(), "")
	driverStream(t, h, kim(), "")
	if _, err := h.OpenDriver(t.Context(), "drv_x", "", nil); !errors.Is(err, ErrFull) {
		t.Errorf("one too many: %v", err)
	}
	testkit.Equal(t, "drivers' streams", 4, testutil.ToFloat64(h.metrics.drivers))
	// A driver with the maximum of streams replaces only an own one.
	driverStream(t, h, v, "")
	<-second.ended
	third.hangUp()
	testkit.Eventually(t, "room", func() bool { return testutil.ToFloat64(h.metrics.drivers) == 3 })
	last := driverStream(t, h, kim(), "")
	e := opens(h, last, b)
	if first.has(e.ID) || third.has(e.ID) {
		t.Error("an event after the end")
	}
}

func TestNoDriverNoStream(t *testing.T) {
	h := runHub(t, Options{MaxStreams: 1})
	for range 3 {
		if _, err := h.OpenDriver(t.Context(), "drv_x", "", func(context.Context) (dispatch.Driver, error) {
			return dispatch.Driver{}, dispatch.ErrDriverNotFound
		}); !errors.Is(err, dispatch.ErrDriverNotFound) {
			t.Fatal(err)
		}
	}
	driverStream(t, h, kim(), "")
}

func TestClose(t *testing.T) {
	h := runHub(t, Options{})
	c := driverStream(t, h, kim(), "")
	opens(h, c)
	h.Close()
	h.Close()
	<-c.ended
	if !errors.Is(c.err, ErrClosed) {
		t.Errorf("ended with %v", c.err)
	}
	if c.count("reconnect") != 1 || !slices.Contains(c.said(), ": "+ErrClosed.Error()) {
		t.Errorf("its last words are %q, and %v", c.said(), c.names())
	}
	if said := c.said(); !strings.HasPrefix(said[len(said)-1], "retry: ") {
		t.Errorf("the stream has no retry delay: %q", said)
	}
	if _, err := h.OpenAdmin(t.Context(), "key_1", ""); !errors.Is(err, ErrClosed) {
		t.Errorf("a new one: %v", err)
	}
	opens(h) // causes no panic
}

// TestWake: many wakes cause few calls of OnWakeRelay.
func TestWake(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var woken atomic.Int32
		h, stop := startHub(t, Options{OnWakeRelay: func() { woken.Add(1) }})
		for range 1000 {
			h.WakeRelays()
		}
		time.Sleep(time.Second) // of the bubble's
		if n := woken.Load(); n < 1 || n > 2 {
			t.Errorf("woken %d times", n)
		}
		stop()
	})
}

// TestManyAtOnce opens, closes and publishes concurrently, for the race detector; a client that stays misses nothing.
func TestManyAtOnce(t *testing.T) {
	h := runHub(t, Options{})
	stays := adminStream(t, h, "")
	testkit.Together(16, func(i int) {
		v := kim(func(v *dispatch.Driver) { v.Version = i })
		for range 20 {
			c := driverStream(t, h, v, "")
			opens(h)
			h.DriverChanged(v)
			h.WakeRelays()
			c.hangUp()
		}
	})
	testkit.Eventually(t, "everything", func() bool { return len(stays.all()) == 320 })
	h.mu.RLock()
	defer h.mu.RUnlock()
	if len(h.streams) != 1 || len(h.byOwner) != 1 {
		t.Errorf("%d streams of %d owners are left", len(h.streams), len(h.byOwner))
	}
}

// TestIDs: local ids have the form of Redis's, rise, and differ from another process's.
func TestIDs(t *testing.T) {
	now := time.Now()
	a, b := NewHub(Options{}), NewHub(Options{})
	last := a.ids.next(now)
	for i := range 1000 {
		if i == 500 {
			now = now.Add(-time.Hour)
		}
		id := a.ids.next(now)
		if !before(last, id) {
			t.Fatalf("%s after %s", id, last)
		}
		last = id
	}
	if x, y := a.ids.next(now), b.ids.next(now); x == y {
		t.Error("two processes make the same")
	}
}

// TestReconnectsAreSpread: each stream asks its client to wait from 1 to 5 s before it connects again, at its start and when the
// instance shuts down. The waits differ, so that the clients of an instance do not all come at the same time.
func TestReconnectsAreSpread(t *testing.T) {
	const streams = 200
	h := runHub(t, Options{})
	clients := make([]*client, streams)
	for k := range clients {
		s, err := openDriver(t, h, kim(), "")
		clients[k] = listen(t, s, err)
	}
	for _, c := range clients {
		c.greeted()
	}
	h.Close()
	first, last := map[int]int{}, map[int]int{}
	for _, c := range clients {
		testkit.Await(t, "the stream ends", c.ended)
		said := c.said()
		first[retryOf(t, said[0])]++
		last[retryOf(t, said[len(said)-1])]++
	}
	for when, waits := range map[string]map[int]int{"at the start": first, "at the end": last} {
		early, late := 0, 0
		for ms, n := range waits {
			switch {
			case ms < 1000 || ms > 5000:
				t.Errorf("%s %d streams have %d ms, want 1000 to 5000", when, n, ms)
			case ms < 3000:
				early += n
			default:
				late += n
			}
		}
		if len(waits) < streams/2 || early < streams/4 || late < streams/4 {
			t.Errorf("%s %d streams have %d different waits, %d of them below 3 s and %d above", when, streams, len(waits), early, late)
		}
	}
}

// retryOf returns the milliseconds of a line retry: 1234.
func retryOf(t *testing.T, line string) int {
	t.Helper()
	digits := regexp.MustCompile(`^retry: (\d+)$`).FindStringSubmatch(line)
	if digits == nil {
		t.Fatalf("%q is no retry", line)
	}
	ms, err := strconv.Atoi(digits[1])
	if err != nil {
		t.Fatal(err)
	}
	return ms
}
