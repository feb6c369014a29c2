package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/lock"
)

// newLocker returns a Locker that ends with the test.
func newLocker(t *testing.T, s lock.Strategy) *lock.Locker {
	l := lock.New(s, lock.Options{})
	t.Cleanup(l.Close)
	return l
}

// newLeaders returns two leaders of the same jobs, as of two processes, and what they hold by.
func newLeaders(t *testing.T) (a, b *lock.Leader, memory *lock.Memory) {
	memory = lock.NewMemory()
	for _, l := range []**lock.Leader{&a, &b} {
		*l = newLocker(t, memory).Leader("jobs", time.Second, 3*time.Second)
		t.Cleanup(func() { _ = (*l).Resign(context.Background()) })
	}
	return a, b, memory
}

// A crowd of jobs that follow is told within the wait: whoever is told late would run a slot that others have run.
func TestACrowdWaitsNoLongerThanOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := newLeaders(t)
		const jobs = 6
		for range jobs {
			if err := a.IsLeader(t.Context()); err != nil {
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
			go func() { err := b.IsLeader(t.Context()); answers <- answer{err, time.Since(began)} }()
		}
		for range jobs {
			if got := <-answers; got.err == nil || got.took > 1100*time.Millisecond {
				t.Errorf("after %s: %v", got.took, got.err)
			}
		}
	})
}

// The time of the last slot is over just when the next slot comes: the lead is kept for another lease.
func TestALeadIsKeptAsPromised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, memory := newLeaders(t)
		rival := newLocker(t, memory)
		broken := 0
		if err := a.IsLeader(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2000 {
			<-time.After(3 * time.Second)
			if err := a.IsLeader(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // no time passes
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

// The time of a lead that was broken ends while the next one is taken.
func TestALeadTakenAgainIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, memory := newLeaders(t)
		rival := newLocker(t, memory)
		if err := a.IsLeader(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Somebody breaks the lead and has it for a while; a asks at 2.5 s, waits, and its idle timer fires at 3 s.
		if _, err := memory.Break(t.Context(), "jobs"); err != nil {
			t.Fatal(err)
		}
		held, err := rival.Acquire(t.Context(), "jobs", lock.Fixed(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(2500 * time.Millisecond)
		got := make(chan error, 1)
		go func() { got <- a.IsLeader(t.Context()) }()
		<-time.After(700 * time.Millisecond)
		_ = held.Release(t.Context())
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if l, err := rival.Acquire(t.Context(), "jobs", lock.Fixed(time.Second)); err == nil {
			t.Error("IsLeader promised a lease from now, and the lead is free")
			_ = l.Release(t.Context())
		}
	})
}

// A campaign that is called off does not give up the lead that another job of the process was promised a moment ago.
func TestACampaignThatEndsKeepsWhatWasPromised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := newLeaders(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- a.Campaign(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
		}()
		synctest.Wait()
		if err := a.IsLeader(t.Context()); err != nil { // the other job's slot, which a runs
			t.Fatal(err)
		}
		cancel() // the campaign's job is removed
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		<-time.After(100 * time.Millisecond)
		if err := b.IsLeader(t.Context()); err == nil {
			t.Error("the other job's slot is run again by a clock that is 100 ms late")
		}
	})
}

// Work that winds down after a Resign may not be alone: Campaign says so.
func TestResignUnderACampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := newLeaders(t)
		done := make(chan error, 1)
		go func() {
			done <- a.Campaign(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				<-time.After(time.Second) // winds down
				return nil
			})
		}()
		synctest.Wait()
		if err := a.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		rivalLeads := b.IsLeader(t.Context()) == nil
		if err := <-done; rivalLeads && !errors.Is(err, lock.ErrLost) {
			t.Errorf("the rival led beside it, and Campaign returns %v", err)
		}
	})
}

// A context that is bound to a lease that was lost has ended.
func TestBindToALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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

// A lead that no strategy can keep is refused as such, and not as an outage.
func TestALeadThatCannotBe(t *testing.T) {
	for _, lease := range []time.Duration{0, -time.Second, time.Millisecond} {
		leader := newLocker(t, lock.NewMemory()).Leader("jobs", 10*time.Millisecond, lease)
		if err := leader.IsLeader(t.Context()); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("a lease of %s: %v", lease, err)
		}
		_ = leader.Resign(t.Context())
	}
}
