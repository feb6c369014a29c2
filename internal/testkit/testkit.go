// Package testkit has the helpers that tests of several packages share: waiting for a state, concurrent calls, settings, logs.
package testkit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// LogBuffer keeps the output of a logger. It is safe for concurrent use.
type LogBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (b *LogBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// Count is how often s was written.
func (b *LogBuffer) Count(s string) int { return strings.Count(b.String(), s) }

func (b *LogBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Drain returns what was written since the last Drain, and forgets it.
func (b *LogBuffer) Drain() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

// Settings looks up an environment that holds these variables and nothing else: name, value, name, value.
func Settings(pairs ...string) func(string) (string, bool) {
	all := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return func(name string) (string, bool) {
		v, set := all[name]
		return v, set
	}
}

// FreeAddress is where an instance may listen: a port of 127.0.0.1 that is the test's until it ends.
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, free, err := ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(free)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// ReservePort finds a TCP port of 127.0.0.1 that nothing listens on, and reserves it until free is called or the process ends: no other
// call, in whatever process, returns it, so that a killed server can be started again on its port. The reservation is a UDP socket of
// the same number. The range is not the one from which the kernel picks (32768 and up on Linux).
func ReservePort() (port int, free func(), err error) {
	for range 100 {
		port = 10000 + rand.N(22000)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		var reservation net.PacketConn
		if reservation, err = net.ListenPacket("udp", addr); err != nil {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			return port, func() { reservation.Close() }, l.Close()
		}
		reservation.Close()
	}
	return 0, nil, fmt.Errorf("no free port: %w", err)
}

// MustHoldFiles fails the test when the folder holds other files.
func MustHoldFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the folder holds %v, want %v", got, want)
	}
}
