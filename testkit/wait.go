package testkit

import (
	"testing"
	"time"
)

// Patience is how long nothing in a test may take: what has not happened by then never will.
const Patience = 20 * time.Second

// Eventually polls until ok, for patience at most.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Within(t, Patience, what, ok)
}

// Within polls until ok, for most at most.
func Within(t testing.TB, most time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(most)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("never: %s", what)
		}
	}
}

// Await fails the test when c is not closed in time.
func Await(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(Patience):
		t.Fatalf("never: %s", what)
	}
}
