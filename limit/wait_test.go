package limit

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/servertest"
	"firsttap/testkit"
)

// TestNobodyWaitsTwice: of many requests at once one asks Redis for all that wait, and nobody waits for it many times.
func TestNobodyWaitsTwice(t *testing.T) {
	server := servertest.StartRedis(t)
	proxy := servertest.StartProxy(t, server.Addr())
	c := dial(t, proxy.URL(server.URL()), 5*time.Second)
	l := New(Options{Rate: 20, Burst: 40, Redis: c, Timeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler)})
	for range 6 { // the first chunk is on credit, the next asked for: the script is known
		l.Allow(t.Context(), "another", time.Now())
	}
	before := scripts(t, c)
	hold := proxy.Hold("drv_1")
	var come atomic.Int64
	var all sync.WaitGroup
	for range 36 {
		all.Go(func() {
			came := time.Now()
			come.Add(1)
			l.Allow(t.Context(), "drv_1", came)
		})
	}
	testkit.Eventually(t, "all have come", func() bool { return come.Load() == 36 })
	<-hold.Reached()
	hold.Release()
	all.Wait()
	if n := scripts(t, c) - before; n > 3 { // one, and one for who came a moment later
		t.Errorf("%d scripts for 36 taps at once", n)
	}
}
