package locktest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"firsttap/lock"
)

const (
	// patience bounds what must happen. It is well below long, so that what ends by its TTL does not pass for what was
	// given up.
	patience = 30 * time.Second
	long     = 2 * time.Minute
	// glance is how long a test looks at what must not happen.
	glance = 100 * time.Millisecond
)

// steady is a TTL that a busy machine does not miss the renewals of.
func (s *suite) steady() time.Duration { return max(time.Second, 2*s.Brief) }

// name is one that nobody else uses.
func name() string { return "locktest-" + rand.Text() }

// owner is one that nobody else is.
func owner() string { return "tester/" + rand.Text() }

// open returns a strategy of its own, straight to the shared server.
func (s *suite) open(t testing.TB) lock.Strategy {
	t.Helper()
	return s.Open(t, s.URL, long)
}

// locker returns a Locker of its own, straight to the shared server.
func (s *suite) locker(t testing.TB) *lock.Locker {
	t.Helper()
	return s.lockerAt(t, s.URL, long)
}

func (s *suite) lockerAt(t testing.TB, url string, longest time.Duration) *lock.Locker {
	t.Helper()
	l := lock.New(s.Open(t, url, longest), lock.Options{Who: "tester"})
	t.Cleanup(l.Close)
	return l
}

// take acquires what must be free.
func take(t testing.TB, strategy lock.Strategy, name string, ttl time.Duration) lock.Grant {
	t.Helper()
	g, err := strategy.Acquire(t.Context(), name, owner(), ttl)
	if err != nil {
		t.Fatalf("acquire %s: %v", name, err)
	}
	return g
}

// acquire acquires what must be free, and releases it with the test at the latest.
func acquire(t testing.TB, l *lock.Locker, name string, hold lock.Hold) *lock.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), name, hold)
	if err != nil {
		t.Fatalf("acquire %s: %v", name, err)
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	return lease
}

// mustBeHeld fails the test unless strategy is refused.
func mustBeHeld(t testing.TB, strategy lock.Strategy, name string) {
	t.Helper()
	if g, err := strategy.Acquire(t.Context(), name, owner(), long); !errors.Is(err, lock.ErrHeld) {
		if err == nil {
			_ = g.Release(t.Context(), 0)
		}
		t.Errorf("%s: got %v, want %v", name, err, lock.ErrHeld)
	}
}

// mustBeFree fails the test unless strategy gets name at once, and gives it back.
func mustBeFree(t testing.TB, strategy lock.Strategy, name string) {
	t.Helper()
	if err := take(t, strategy, name, long).Release(t.Context(), 0); err != nil {
		t.Errorf("release %s: %v", name, err)
	}
}

// takeOver asks for name until it gets it, and returns when that was. What a failed attempt may have left is removed.
func takeOver(t testing.TB, strategy lock.Strategy, name string, ttl time.Duration) (lock.Grant, time.Time) {
	t.Helper()
	g, at, err := keepAsking(t.Context(), strategy, name, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return g, at
}

// keepAsking is takeOver for goroutines, which may not end the test.
func keepAsking(ctx context.Context, strategy lock.Strategy, name string, ttl time.Duration) (lock.Grant, time.Time, error) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	last, end := error(nil), time.After(patience)
	for {
		select {
		case <-tick.C:
		case <-end:
			return nil, time.Time{}, fmt.Errorf("%s was not to be had: %w", name, last)
		}
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		g, err := strategy.Acquire(bounded, name, owner(), ttl)
		cancel()
		if err == nil {
			return g, time.Now(), nil
		}
		if g != nil {
			_ = g.Release(ctx, 0)
		}
		last = err
		tick.Reset(pause(err))
	}
}

// pause is how long to wait before asking again: not long before the end that a refusal tells.
func pause(err error) time.Duration {
	const least, most = 2 * time.Millisecond, 30 * time.Millisecond
	var held *lock.HeldError
	if !errors.As(err, &held) || held.Left == 0 {
		return 10 * time.Millisecond
	}
	return min(max(held.Left/2, least), most)
}

// pass waits for d, where that much time must pass for something to become wrong.
func pass(d time.Duration) { <-time.After(d) }

// during fails the test if what happens within d.
func during[T any](t testing.TB, d time.Duration, what string, happens <-chan T) {
	t.Helper()
	select {
	case <-happens:
		t.Errorf("%s", what)
	case <-time.After(d):
	}
}

// mustEnd waits for a lease that has to be lost, and returns why.
func mustEnd(t testing.TB, lease *lock.Lease) error {
	t.Helper()
	wait(t, "the end of the lease", lease.Context().Done())
	return context.Cause(lease.Context())
}

// endOf tells when a lease's context ended, by the clock of this process.
func endOf(lease *lock.Lease) <-chan time.Time {
	ended := make(chan time.Time, 1)
	context.AfterFunc(lease.Context(), func() { ended <- time.Now() })
	return ended
}

// wait fails the test unless c is closed or has a value.
func wait[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: never", what)
		panic("not reached")
	}
}

// is fails the test unless err is want. Held, unavailable, lost and invalid are different answers: an error that is wanted
// to be one of them must be no other.
func is(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
	kinds := []error{lock.ErrHeld, lock.ErrUnavailable, lock.ErrLost, lock.ErrInvalid}
	of := func(kind error) bool { return errors.Is(want, kind) }
	if !slices.ContainsFunc(kinds, of) {
		return
	}
	for _, kind := range kinds {
		if errors.Is(err, kind) && !of(kind) {
			t.Errorf("%s: %v is %v, and also %v", what, err, want, kind)
		}
	}
}

// alive fails the test if the lease's context has ended.
func alive(t testing.TB, lease *lock.Lease) {
	t.Helper()
	if lease.Context().Err() != nil {
		t.Errorf("the lease ended: %v", context.Cause(lease.Context()))
	}
}

// released fails the test unless the lease is released in good order.
func released(t testing.TB, lease *lock.Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
}

// eventually asks until check finds nothing wrong.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s: never, but %v", what, err)
		}
	}
}
