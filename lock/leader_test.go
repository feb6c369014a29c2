//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/internal/testkit"
	"firsttap/lock"
)

// newLocker returns a Locker that is closed with the test.
func newLocker(t *testing.T, s lock.Strategy) *lock.Locker {
	l := lock.New(s, lock.Options{})
	t.Cleanup(l.Close)
	return l
}

func doNothing(context.Context) error { return nil }

// newLeaders returns two candidates for the same name, as in two processes, and their strategy.
func newLeaders(t *testing.T) (a, b *lock.Leader, memory *lock.Memory) {
	memory = lock.NewMemory()
	for _, l := range []**lock.Leader{&a, &b} {
		*l = newLocker(t, memory).Leader("jobs", time.Second, 3*time.Second)
		t.Cleanup(func() { _ = (*l).Resign(context.Background()) })
	}
	return a, b, memory
}

// Concurrent campaigns begin or fail within the wait: a late answer would let a job run a slot that another instance has run.
func TestACrowdWaitsNoLongerThanOne(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		a, b, _ := newLeaders(t)
		const jobs = 6
		for range jobs {
			if err := a.Campaign(t.Context(), doNothing); err != nil {
				t.Fatal(err)
			}
		}
		type answer struct {
			err  error
			took time.Duration
		}
		answers := make(chan answer, jobs)
		began := time.Now()
		for range jobs {
			go func() { err := b.Campaign(t.Context(), doNothing); answers <- answer{err, time.Since(began)} }()
		}
		for range jobs {
			if got := <-answers; got.err == nil || got.took > 1100*time.Millisecond {
				t.Errorf("after %s: %v", got.took, got.err)
			}
		}
	})
}

// The time for which the lead is kept ends just when the next slot begins: the lead is kept for another lease.
func TestALeadIsKeptAsPromised(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		a, _, memory := newLeaders(t)
		rival := newLocker(t, memory)
		broken := 0
		if err := a.Campaign(t.Context(), doNothing); err != nil {
			t.Fatal(err)
		}
		for range 2000 {
			<-time.After(3 * time.Second)
			if err := a.Campaign(t.Context(), doNothing); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // without advancing the clock
			if l, err := rival.Acquire(t.Context(), "jobs", lock.Fixed(time.Second)); err == nil {
				broken++
				_ = l.Release(t.Context())
			}
		}
		if broken > 0 {
			t.Errorf("%d of 2000 leads were given up as soon as they were promised", broken)
		}
	})
}

// The time for which a broken lead was kept ends while the next lead is acquired.
func TestALeadTakenAgainIsKept(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		a, _, memory := newLeaders(t)
		rival := newLocker(t, memory)
		if err := a.Campaign(t.Context(), doNothing); err != nil {
			t.Fatal(err)
		}
		// A rival holds the lead for a while. a asks at 2.5 s and waits, and its idle timer fires at 3 s.
		if _, err := memory.Break(t.Context(), "jobs"); err != nil {
			t.Fatal(err)
		}
		held, err := rival.Acquire(t.Context(), "jobs", lock.Fixed(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(2500 * time.Millisecond)
		got := make(chan error, 1)
		go func() { got <- a.Campaign(t.Context(), doNothing) }()
		<-time.After(700 * time.Millisecond)
		_ = held.Release(t.Context())
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if l, err := rival.Acquire(t.Context(), "jobs", lock.Fixed(time.Second)); err == nil {
			t.Error("the lead is free, and not kept for a lease after the campaign")
			_ = l.Release(t.Context())
		}
	})
}

// A campaign that is canceled does not release a lead that another job of the process has just had.
func TestCanceledCampaignKeepsAGrantedLead(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		a, b, _ := newLeaders(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- a.Campaign(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
		}()
		synctest.Wait()
		if err := a.Campaign(t.Context(), doNothing); err != nil { // for the slot of the other job
			t.Fatal(err)
		}
		cancel() // the campaign's job is removed
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		<-time.After(100 * time.Millisecond)
		if err := b.Campaign(t.Context(), doNothing); err == nil {
			t.Error("the other job's slot is run again by a clock that is 100 ms late")
		}
	})
}

// If Resign frees the lead while a campaign's work is still stopping, Campaign returns ErrLost.
func TestResignUnderACampaign(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		a, b, _ := newLeaders(t)
		done := make(chan error, 1)
		go func() {
			done <- a.Campaign(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				<-time.After(time.Second) // the work takes a while to stop
				return nil
			})
		}()
		synctest.Wait()
		if err := a.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		rivalLeads := b.Campaign(t.Context(), doNothing) == nil
		if err := <-done; rivalLeads && !errors.Is(err, lock.ErrLost) {
			t.Errorf("the rival led beside it, and Campaign returns %v", err)
		}
	})
}

// Bind to a lost lease returns a context that has ended.
func TestBindToALostLease(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l, err := newLocker(t, lock.NewMemory()).Acquire(t.Context(), "x", lock.Fixed(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Second)
		ctx, cancel := l.Bind(t.Context())
		defer cancel()
		if ctx.Err() == nil {
			t.Error("the context has not ended")
		}
		_ = l.Release(t.Context())
	})
}

// A lease that is too short is invalid, not unavailable.
func TestALeadThatCannotBe(t *testing.T) {
	for _, lease := range []time.Duration{0, -time.Second, time.Millisecond} {
		leader := newLocker(t, lock.NewMemory()).Leader("jobs", 10*time.Millisecond, lease)
		if err := leader.Campaign(t.Context(), doNothing); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("a lease of %s: %v", lease, err)
		}
		_ = leader.Resign(t.Context())
	}
}

// ctxAwareMemory is a Memory whose grants fail after the end of the context, like those of a database.
type ctxAwareMemory struct{ *lock.Memory }

type ctxAwareGrant struct{ lock.Grant }

func (h ctxAwareMemory) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (lock.Grant, error) {
	g, err := h.Memory.Acquire(ctx, name, owner, ttl)
	if err != nil {
		return nil, err
	}
	return ctxAwareGrant{g}, nil
}

func (g ctxAwareGrant) Release(ctx context.Context, keep time.Duration) error {
	if ctx.Err() != nil {
		return lock.ErrUnavailable
	}
	return g.Grant.Release(ctx, keep)
}

// Release works after the caller's context has ended.
func TestReleaseAfterItsContextEnded(t *testing.T) {
	l := newLocker(t, ctxAwareMemory{lock.NewMemory()})
	ctx, cancel := context.WithCancel(t.Context())
	lease, err := l.Acquire(ctx, "a", lock.Fixed(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := lease.Release(ctx); err != nil {
		t.Errorf("release: %v", err)
	}
}
