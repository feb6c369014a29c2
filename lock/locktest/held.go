package locktest

import (
	"context"
	"testing"
	"time"

	"firsttap/lock"
)

// Held returns a context that holds the names until the test ends, for tests of work that calls [lock.AssertHeld].
func Held(t testing.TB, names ...string) context.Context {
	t.Helper()
	l := lock.New(lock.NewMemory(), lock.Options{})
	t.Cleanup(l.Close) // after all releases
	ctx := t.Context()
	for _, name := range names {
		lease, err := l.Acquire(ctx, name, lock.Fixed(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		bound, cancel := lease.Bind(ctx)
		t.Cleanup(func() {
			cancel()
			_ = lease.Release(context.Background()) // of this process's memory
		})
		ctx = bound
	}
	return ctx
}
