package handler

import (
	"log/slog"
	"sync"
	"time"
)

// failuresEnd is for how long no request must have failed for an outage to be over: longer than a request takes to fail, and than the
// pauses between two.
const failuresEnd = time.Minute

// failures are the requests that fail in an outage, of which thousands may in seconds.
type failures struct {
	mu          sync.Mutex
	n           int // 0 outside of an outage
	first, last time.Time
}

// add counts a request. It reports whether that is the first of an outage, whose end is logged.
func (f *failures) add(log *slog.Logger) (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	f.last = time.Now()
	if f.n > 1 {
		return false
	}
	f.first = f.last
	time.AfterFunc(failuresEnd, func() { f.end(log) })
	return true
}

// end ends the outage, or looks again later.
func (f *failures) end(log *slog.Logger) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if quiet := time.Since(f.last); quiet < failuresEnd {
		time.AfterFunc(failuresEnd-quiet, func() { f.end(log) })
		return
	}
	log.Warn("no request has failed for a while", "failed", f.n, "outage", f.last.Sub(f.first))
	f.n = 0
}
