//go:build soak

package handler

import (
	"math"
	"net/http"
	"testing"
	"time"
)

// maxOfAStream is how many bytes of heap and stacks an idle stream may take. An instance needs half as much again: docs/scaling.md.
const maxOfAStream = 10_500

// TestSoakTenThousandStreams opens that many on one instance, over real connections, and prints the memory of each, and what it takes to
// send one event to all: of streams on their connections, and of streams that stay in their requests, with the buffers and stacks that
// net/http keeps for these.
func TestSoakTenThousandStreams(t *testing.T) {
	for _, way := range []struct {
		name  string
		most  int64
		serve func(*http.Server)
	}{
		{"on_connections", maxOfAStream, func(*http.Server) {}},
		{"in_requests", math.MaxInt64, func(s *http.Server) { s.Handler = withoutHijack{s.Handler} }},
	} {
		t.Run(way.name, func(t *testing.T) {
			const n = 10_000
			c := openMany(t, n, way.most, way.serve)
			t.Logf("%d streams opened in %v", n, c.opening.Round(time.Millisecond))
			t.Logf("memory of each: %d bytes of heap, %d of stacks, %d resident", c.each.heap, c.each.stack, c.each.resident)
			t.Logf("one event had reached all of them after %v, with %v of CPU time for each",
				c.heard.Round(time.Millisecond), c.cpu.Round(time.Microsecond))
		})
	}
}

// withoutHijack gives up no connection, as with HTTP/2.
type withoutHijack struct{ http.Handler }

// ServeHTTP implements http.Handler.
func (h withoutHijack) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.Handler.ServeHTTP(keptConnection{w}, r)
}

type keptConnection struct{ http.ResponseWriter }

// FlushError implements what [http.ResponseController] asks for.
func (k keptConnection) FlushError() error {
	return http.NewResponseController(k.ResponseWriter).Flush()
}

// SetWriteDeadline implements what [http.ResponseController] asks for.
func (k keptConnection) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(k.ResponseWriter).SetWriteDeadline(t)
}
