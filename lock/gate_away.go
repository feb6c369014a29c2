package lock

import (
	"sync"
	"sync/atomic"
	"time"
)

// outages is for how long Redis has been away, all in all.
type outages struct {
	mu    sync.Mutex
	since time.Time // of the one that goes on
	past  time.Duration
}

// begin sets down. It reports false where that was so.
func (o *outages) begin(down *atomic.Bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if down.Swap(true) {
		return false
	}
	o.since = time.Now()
	return true
}

// end clears down. It reports false where that was so.
func (o *outages) end(down *atomic.Bool) bool {
	if !down.Load() {
		return false // which it mostly is
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !down.Swap(false) {
		return false
	}
	o.past += time.Since(o.since)
	return true
}

// DegradedFor is for how long Redis has been taken to be away since the gate was made. It never goes back.
func (g *Gate) DegradedFor() time.Duration {
	g.away.mu.Lock()
	defer g.away.mu.Unlock()
	if g.down.Load() {
		return g.away.past + time.Since(g.away.since)
	}
	return g.away.past
}
