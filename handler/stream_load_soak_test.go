//go:build soak

package handler

import (
	"testing"
	"time"
)

// maxOfAStream is how many bytes of heap and stacks an idle stream may take. An instance needs half as much again: docs/scaling.md. What
// net/http keeps for a request, its buffers and the stacks of its goroutines, is twice as much by itself.
const maxOfAStream = 10_500

// TestSoakTenThousandStreams opens that many on one instance, over real connections, and prints the memory of each, and what it takes to
// send one event to all.
func TestSoakTenThousandStreams(t *testing.T) {
	const n = 10_000
	c := openMany(t, n, maxOfAStream)
	t.Logf("%d streams opened in %v", n, c.opening.Round(time.Millisecond))
	t.Logf("memory of each: %d bytes of heap, %d of stacks, %d resident", c.each.heap, c.each.stack, c.each.resident)
	t.Logf("one event had reached all of them after %v, with %v of CPU time for each", c.heard.Round(time.Millisecond), c.cpu.Round(time.Microsecond))
}
