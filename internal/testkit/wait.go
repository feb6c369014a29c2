package testkit

import (
	"context"
	"sync"
	"testing"
	"time"
)

// Patience bounds every wait: a state that has not come by then never will. No test asserts it.
const Patience = 40 * time.Second

// Eventually polls until ok, and fails the test after Patience.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Within(t, Patience, what, ok)
}

// Within is Eventually with a patience of the test's own.
func Within(t testing.TB, patience time.Duration, what string, ok func() bool) {
	t.Helper()
	if !Poll(patience, ok) {
		t.Fatalf("never: %s", what)
	}
}

// Retry calls check until it returns nil. After Patience it fails the test with the last error.
func Retry(t testing.TB, check func() error) {
	t.Helper()
	var err error
	if !Poll(Patience, func() bool { err = check(); return err == nil }) {
		t.Fatal(err)
	}
}

// Poll polls until ok, and reports whether it was within patience. Any goroutine may call it. What takes longer is asked less often: a
// question is often a request or a statement, and costs what is waited for.
func Poll(patience time.Duration, ok func() bool) bool {
	end := time.After(patience)
	for pause := 5 * time.Millisecond; !ok(); pause = min(pause+pause/8, 50*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-end:
			return false
		}
	}
	return true
}

// Await returns what c delivers, or the zero value once c is closed. It fails the test after Patience.
func Await[T any](t testing.TB, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(Patience):
		t.Fatalf("never: %s", what)
	}
	return v
}

// Together calls do(0) to do(n-1) at the same time: each in a goroutine, released when all have started. It returns
// when all calls have.
func Together(n int, do func(k int)) {
	var started, running sync.WaitGroup
	gate := make(chan struct{})
	started.Add(n)
	for k := range n {
		running.Go(func() {
			started.Done()
			<-gate
			do(k)
		})
	}
	started.Wait()
	close(gate)
	running.Wait()
}

// Run calls run in a goroutine. It ends run's context, and waits until run has returned, when stop is called and when
// the test ends.
func Run(t testing.TB, run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}
