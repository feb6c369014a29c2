package main

import (
	"testing"
	"time"
)

// patience is how long nothing in a test may take: what has not happened by then never will.
const patience = 20 * time.Second

// eventually polls until ok, for patience at most.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	within(t, patience, what, ok)
}

// within polls until ok, for most at most.
func within(t testing.TB, most time.Duration, what string, ok func() bool) {
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

// await fails the test when c is not closed in time.
func await(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("never: %s", what)
	}
}
