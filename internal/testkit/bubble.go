package testkit

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Bubble is [synctest.Test]. While a bubble runs with the race detector, the program has one processor: the detector crashes when two
// threads look at the timers of a bubble at once, https://go.dev/issue/78156.
func Bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	if raced {
		oneProcessor.begin()
		defer oneProcessor.end()
	}
	synctest.Test(t, test)
}

// oneProcessor counts the bubbles that run, because parallel tests have one each.
var oneProcessor processors

type processors struct {
	mu      sync.Mutex
	bubbles int
	before  int // the processors that the program has without a bubble
}

func (p *processors) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bubbles++; p.bubbles == 1 {
		p.before = runtime.GOMAXPROCS(1)
	}
}

func (p *processors) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bubbles--; p.bubbles == 0 {
		runtime.GOMAXPROCS(p.before)
	}
}
