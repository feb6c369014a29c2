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
	// timeout bounds each wait for a state. It is well below long, so that a lease that expires does not pass for one that
	// was released.
	timeout = 30 * time.Second
	long    = 2 * time.Minute
	// answerTimeout is how long a Locker waits for an answer: longer than a busy machine delays one.
	answerTimeout = 5 * time.Second
	// shortTimeout is the same for tests that wait until a Locker gives up an answer which never comes.
	shortTimeout = 2 * time.Second
	// quiet is how long a test watches that an event does not occur.
	quiet = 100 * time.Millisecond
	// clockUnit is more than the unit of a server's clock.
	clockUnit = 2 * time.Millisecond
	// pollLate is more than the shortest pause of somebody who polls.
	pollLate = 5 * time.Millisecond
)

// renewableTTL is for a lease that a test lets expire after renewals.
func (s *suite) renewableTTL() time.Duration { return max(6*time.Second, 2*s.MinTTL) }

// keepableTTL is for a lease that must last longer than its TTL, by renewals. Its holder loses it if it stands still for two thirds of
// the TTL, 12 s. A longer TTL would leave too little of the 30 s that a test waits for a state.
func (s *suite) keepableTTL() time.Duration { return max(18*time.Second, 2*s.MinTTL) }

// newName returns a name that no other test uses.
func newName() string { return "locktest-" + rand.Text() }

func newOwner() string { return "tester/" + rand.Text() }

// open returns a strategy with a client of its own, directly to the shared server.
func (s *suite) open(t testing.TB) lock.Strategy {
	t.Helper()
	return s.Open(t, s.URL, long)
}

// locker returns a Locker with a client of its own, directly to the shared server.
func (s *suite) locker(t testing.TB) *lock.Locker {
	t.Helper()
	return s.lockerAt(t, s.URL, long, answerTimeout)
}

func (s *suite) lockerAt(t testing.TB, url string, longest, timeout time.Duration) *lock.Locker {
	t.Helper()
	l := lock.New(s.Open(t, url, longest), lock.Options{Instance: "tester", Timeout: timeout})
	t.Cleanup(l.Close)
	return l
}

// mustAcquire acquires a name that must be free.
func mustAcquire(t testing.TB, strategy lock.Strategy, name string, ttl time.Duration) lock.Grant {
	t.Helper()
	g, err := strategy.Acquire(t.Context(), name, newOwner(), ttl)
	if err != nil {
		t.Fatalf("acquire %s: %v", name, err)
	}
	return g
}

// mustLease acquires a name that must be free, and releases it at the latest when the test ends.
func mustLease(t testing.TB, l *lock.Locker, name string, hold lock.Hold) *lock.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), name, hold)
	if err != nil {
		t.Fatalf("acquire %s: %v", name, err)
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	return lease
}

// mustBeHeld fails the test if strategy can acquire name.
func mustBeHeld(t testing.TB, strategy lock.Strategy, name string) {
	t.Helper()
	g, err := strategy.Acquire(t.Context(), name, newOwner(), long)
	if !errors.Is(err, lock.ErrHeld) {
		if err == nil {
			_ = g.Release(t.Context(), 0)
		}
		t.Errorf("%s: got %v, want %v", name, err, lock.ErrHeld)
	}
}

// mustBeFree fails the test if strategy can't acquire name at once.
func mustBeFree(t testing.TB, strategy lock.Strategy, name string) {
	t.Helper()
	if err := mustAcquire(t, strategy, name, long).Release(t.Context(), 0); err != nil {
		t.Errorf("release %s: %v", name, err)
	}
}

// acquireEventually polls until it acquires name, and returns when that was. It releases what a failed attempt may have
// left.
func acquireEventually(t testing.TB, strategy lock.Strategy, name string, ttl time.Duration) (lock.Grant, time.Time) {
	t.Helper()
	g, at, err := pollAcquire(t.Context(), strategy, name, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return g, at
}

// pollAcquire is acquireEventually for goroutines, which must not call t.Fatal.
func pollAcquire(ctx context.Context, strategy lock.Strategy, name string, ttl time.Duration) (lock.Grant, time.Time, error) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	last, end := error(nil), time.After(timeout)
	for {
		select {
		case <-tick.C:
		case <-end:
			return nil, time.Time{}, fmt.Errorf("%s was not acquired: %w", name, last)
		}
		bounded, cancel := context.WithTimeout(ctx, answerTimeout)
		g, err := strategy.Acquire(bounded, name, newOwner(), ttl)
		cancel()
		if err == nil {
			return g, time.Now(), nil
		}
		if g != nil {
			_ = g.Release(ctx, 0)
		}
		last = err
		tick.Reset(pollPause(err))
	}
}

// pollPause is the pause after a refusal: shorter than the remaining time of the holder.
func pollPause(err error) time.Duration {
	const least, most = 2 * time.Millisecond, 200 * time.Millisecond
	var held *lock.HeldError
	if !errors.As(err, &held) || held.Remaining == 0 {
		return 10 * time.Millisecond
	}
	return min(max(held.Remaining/2, least), most)
}

// mustNotHappen fails the test if c is closed or receives a value within d.
func mustNotHappen[T any](t testing.TB, d time.Duration, what string, c <-chan T) {
	t.Helper()
	select {
	case <-c:
		t.Errorf("%s", what)
	case <-time.After(d):
	}
}

// mustStayHeld fails the test if strategy can acquire name after d.
func mustStayHeld(t testing.TB, strategy lock.Strategy, name string, d time.Duration) {
	t.Helper()
	<-time.After(d)
	mustBeHeld(t, strategy, name)
}

// waitLost waits until the lease is lost, and returns why.
func waitLost(t testing.TB, lease *lock.Lease) error {
	t.Helper()
	receive(t, "the end of the lease", lease.Context().Done())
	return context.Cause(lease.Context())
}

// endOf returns a channel that receives the time at which the lease's context ended.
func endOf(lease *lock.Lease) <-chan time.Time {
	ended := make(chan time.Time, 1)
	context.AfterFunc(lease.Context(), func() { ended <- time.Now() })
	return ended
}

// mustEndInTime waits until the lease's context ends by itself. It fails the test unless that had to be before rivalAt,
// when a rival acquired the name.
func (s *suite) mustEndInTime(t testing.TB, lease *lock.Lease, ended <-chan time.Time, rivalAt time.Time) {
	t.Helper()
	at, trusted := receive(t, "the end of the lease", ended), lease.TrustedUntil()
	s.happenedAt(t, "the end of the lease", at, trusted)
	if !trusted.Before(rivalAt) {
		t.Errorf("the rival acquired the name %s before the holder's lease ended", trusted.Sub(rivalAt))
	}
}

// receive fails the test if c is neither closed nor receives a value.
func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(timeout):
		t.Fatalf("%s: never", what)
		panic("not reached")
	}
}

// wantErr fails the test unless err is want. Held, unavailable, lost and invalid exclude each other: an error that
// should be one of them must not be another.
func wantErr(t testing.TB, what string, err, want error) {
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

// mustBeAlive fails the test if the lease's context has ended.
func mustBeAlive(t testing.TB, lease *lock.Lease) {
	t.Helper()
	if lease.Context().Err() != nil {
		t.Errorf("the lease ended: %v", context.Cause(lease.Context()))
	}
}

// mustRelease fails the test if the release fails.
func mustRelease(t testing.TB, lease *lock.Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
}

// eventually polls until check returns nil.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(timeout)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s: never; the last check: %v", what, err)
		}
	}
}
