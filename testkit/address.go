package testkit

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// FreeAddress is where an instance may listen for operators: on no port that the system hands out by itself.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(10000+rand.N(22000))))
		if err == nil {
			l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}
