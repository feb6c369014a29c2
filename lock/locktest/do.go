package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"firsttap/lock"
)

// doTests test Locker.Do.
var doTests = []test{
	{name: "Do", run: (*suite).do},
	{name: "DoWithin", run: (*suite).doWithin},
	{name: "DoLosesItsLease", run: (*suite).doLosesItsLease},
	{name: "DoPanics", run: (*suite).doPanics},
	{name: "DoIsRefused", run: (*suite).doIsRefused},
	{name: "Shutdown", run: (*suite).shutdown},
	{name: "AcquireOutlivesItsContext", run: (*suite).acquireOutlivesContext},
	{name: "AfterClose", run: (*suite).afterClose},
}

var errOfWork = errors.New("the work's own")

func (s *suite) do(t *testing.T) {
	n, l, rival := newName(), s.locker(t), s.open(t)
	type key struct{}
	for _, want := range []error{nil, errOfWork} {
		var inside context.Context
		got := l.Do(context.WithValue(t.Context(), key{}, "a value"), n, lock.Fixed(long), func(ctx context.Context) error {
			mustBeHeld(t, rival, n)
			lease := lock.FromContext(ctx)
			if lease == nil || lease.Name() != n || lease.Fence() == 0 || lease.Owner() == "" {
				t.Errorf("the work's lease is %v", lease)
			}
			if ctx.Value(key{}) != "a value" {
				t.Error("the caller's values are missing")
			}
			inside = ctx
			return want
		})
		if got != want { //nolint:errorlint // not wrapped
			t.Errorf("got %v, want %v", got, want)
		}
		if inside.Err() == nil {
			t.Error("the work's context lasts longer than the lease")
		}
		mustBeFree(t, rival, n)
	}
	if lock.FromContext(t.Context()) != nil {
		t.Error("a context without a lease has one")
	}
}

// Work that calls what runs under the same name runs it at once, under its own lease.
func (s *suite) doWithin(t *testing.T) {
	n, other, l, rival := newName(), newName(), s.locker(t), s.locker(t)
	runs := 0
	count := func(ctx context.Context) error {
		runs++
		return errors.Join(lock.AssertHeld(ctx, n), lock.AssertHeld(ctx, other))
	}
	var inside context.Context
	err := l.Do(t.Context(), n, lock.Fixed(long), func(ctx context.Context) error {
		inside = ctx
		wantErr(t, "a name that is not held", lock.AssertHeld(ctx, other), lock.ErrNotHeld)
		wantErr(t, "the same name at another Locker", rival.Do(ctx, n, lock.Fixed(long), count), lock.ErrHeld)
		return l.Do(ctx, other, lock.Fixed(long), func(ctx context.Context) error {
			return errors.Join(l.Do(ctx, n, lock.Fixed(long), count), l.Do(ctx, other, lock.Fixed(long), count))
		})
	})
	if err != nil || runs != 2 {
		t.Errorf("%d of 2 runs, %v", runs, err)
	}
	wantErr(t, "the end of the work", lock.AssertHeld(inside, n), lock.ErrNotHeld)
	wantErr(t, "without a lease", lock.AssertHeld(t.Context(), n), lock.ErrNotHeld)
	mustBeFree(t, s.open(t), n)
}

// The work's context and the caller get the reason why the lease was lost, whatever the work returns.
func (s *suite) doLosesItsLease(t *testing.T) {
	for _, of := range []error{nil, errOfWork} {
		err := s.locker(t).Do(t.Context(), newName(), lock.Hold{TTL: long, AtMost: s.MinTTL}, func(ctx context.Context) error {
			receive(t, "the work's end", ctx.Done())
			wantErr(t, "the work's cause", context.Cause(ctx), lock.ErrMaxHold)
			return of
		})
		wantErr(t, "Do", err, lock.ErrMaxHold)
		if of != nil {
			wantErr(t, "Do", err, of)
		}
	}
}

func (s *suite) doPanics(t *testing.T) {
	n := newName()
	func() {
		defer func() {
			if recover() != "the work's own" {
				t.Error("no panic")
			}
		}()
		_ = s.locker(t).Do(t.Context(), n, lock.Renewed(long, long), func(context.Context) error { panic("the work's own") })
	}()
	mustBeFree(t, s.open(t), n)
}

func (s *suite) doIsRefused(t *testing.T) {
	n := newName()
	mustAcquire(t, s.open(t), n, long)
	wantErr(t, "Do", s.locker(t).Do(t.Context(), n, lock.Fixed(long), func(context.Context) error {
		t.Error("the work ran")
		return nil
	}), lock.ErrHeld)
}

// On shutdown, Do cancels the work and holds the name until the work has returned. Then the next waiter acquires it at
// once.
func (s *suite) shutdown(t *testing.T) {
	n, ttl, errShutdown := newName(), s.keepableTTL(), errors.New("shutdown")
	ctx, stop := context.WithCancelCause(t.Context())
	working, cause, finish, done := make(chan bool), make(chan error, 1), make(chan bool), make(chan error, 1)
	l := s.locker(t)
	go func() {
		done <- l.Do(ctx, n, lock.Renewed(ttl, long), func(ctx context.Context) error {
			close(working)
			<-ctx.Done()
			cause <- context.Cause(ctx)
			<-finish
			return ctx.Err()
		})
	}()
	receive(t, "the work", working)
	next := acquireAsync(t.Context(), s.locker(t), n, withWait(lock.Fixed(long), timeout))
	stop(errShutdown)
	wantErr(t, "the work's cause", receive(t, "the shutdown", cause), errShutdown)
	mustNotHappen(t, ttl+time.Second, "the waiter acquired the name while the work was stopping", next)
	close(finish)
	wantErr(t, "Do", receive(t, "the end of Do", done), context.Canceled)
	got := receiveLease(t, next)
	mustRelease(t, got)
}

// A lease does not end with the context of its acquisition.
func (s *suite) acquireOutlivesContext(t *testing.T) {
	n, ttl := newName(), s.keepableTTL()
	ctx, cancel := context.WithCancel(t.Context())
	lease, err := s.locker(t).Acquire(ctx, n, lock.Renewed(ttl, long))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	mustNotHappen(t, ttl+quiet, "the lease ended with the context that it was acquired with", lease.Context().Done())
	mustBeHeld(t, s.open(t), n)
	mustRelease(t, lease)
}

// Close stops the background work of a Locker, and leaves its leases alone.
func (s *suite) afterClose(t *testing.T) {
	n, ttl, l := newName(), s.keepableTTL(), s.locker(t)
	lease := mustLease(t, l, n, lock.Renewed(ttl, long))
	l.Close()
	l.Close()
	mustNotHappen(t, ttl+quiet, "the lease ended", lease.Context().Done())
	mustBeHeld(t, s.open(t), n)
	mustRelease(t, lease)
	mustRelease(t, mustLease(t, l, n, lock.Fixed(long)))
}
