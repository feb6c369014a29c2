package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"firsttap/lock"
)

// holds are the ways to hold a name.
var holds = []test{
	{name: "Fixed", run: (*suite).fixed},
	{name: "Renewed", run: (*suite).renewed},
	{name: "Expected", run: (*suite).expected},
	{name: "Between", run: (*suite).between},
	{name: "AtMost", run: (*suite).atMost},
	{name: "AtMostOfFixed", run: (*suite).atMostOfFixed},
	{name: "Beat", run: (*suite).beat},
	{name: "WaitForARelease", run: (*suite).waitForARelease},
	{name: "WaitForTheEnd", run: (*suite).waitForTheEnd},
	{name: "WaitInVain", run: (*suite).waitInVain},
	{name: "GiveUpWaiting", run: (*suite).giveUpWaiting},
	{name: "Stolen", needs: "Registry", run: (*suite).wasStolen},
	{name: "ReleaseTwice", run: (*suite).releaseTwice},
}

// renewedOften is for leases that are to learn soon what became of them, and never end by their TTL.
func (s *suite) renewedOften() lock.Hold {
	return lock.Hold{TTL: long, Every: 50 * time.Millisecond, AtMost: time.Hour}
}

// The holder stops before anybody else gets in.
func (s *suite) fixed(t *testing.T) {
	n := name()
	rival := s.open(t)
	lease := acquire(t, s.locker(t), n, lock.Fixed(max(300*time.Millisecond, s.Brief)))
	end := endOf(lease)
	_, at := takeOver(t, rival, n, long)
	if ended := wait(t, "the end of the lease", end); !ended.Before(at) {
		t.Errorf("the rival got in %s before the holder was told", ended.Sub(at))
	}
	is(t, "why the lease ended", mustEnd(t, lease), lock.ErrExpired)
	is(t, "release", lease.Release(t.Context()), lock.ErrExpired)
	mustBeHeld(t, rival, n)
}

// Renewal holds on for longer than the TTL, and no longer than the holder wants.
func (s *suite) renewed(t *testing.T) {
	n, ttl := name(), s.steady()
	lease := acquire(t, s.locker(t), n, lock.Renewed(ttl, long))
	rival := s.open(t)
	during(t, 2*ttl, "the lease ended", lease.Context().Done())
	mustBeHeld(t, rival, n)
	fence := lease.Fence()
	released(t, lease)
	is(t, "the released lease's context", lease.Context().Err(), context.Canceled)
	if errors.Is(context.Cause(lease.Context()), lock.ErrLost) {
		t.Error("a released lease was not lost")
	}
	if g := take(t, rival, n, long); g.Fence() <= fence {
		t.Errorf("the next holder's fence is %d, want more than %d", g.Fence(), fence)
	}
}

func (s *suite) expected(t *testing.T) {
	n, d := name(), 2*max(s.Brief, 300*time.Millisecond)
	lease := acquire(t, s.locker(t), n, lock.Expected(d))
	during(t, 2*d, "the lease ended", lease.Context().Done())
	mustBeHeld(t, s.open(t), n)
	released(t, lease)
}

// A short job's name stays taken for a while.
func (s *suite) between(t *testing.T) {
	n, atLeast := name(), 2*s.Brief
	began := time.Now()
	lease := acquire(t, s.locker(t), n, lock.Between(atLeast, long))
	rival := s.open(t)
	released(t, lease)
	_, at := takeOver(t, rival, n, long)
	s.notBefore(t, at, began.Add(atLeast))

	lease = acquire(t, s.locker(t), name(), lock.Between(s.Brief, long))
	during(t, s.Brief, "the lease ended", lease.Context().Done())
	released(t, lease)
	mustBeFree(t, rival, lease.Name()) // a long job's is free at once
}

// A work that hangs does not hold for ever, although it hears nothing.
func (s *suite) atMost(t *testing.T) {
	n, ttl := name(), s.steady()
	began := time.Now()
	lease := acquire(t, s.locker(t), n, lock.Renewed(ttl, ttl+ttl/2))
	end := endOf(lease)
	_, at := takeOver(t, s.open(t), n, long)
	ended := wait(t, "the end of the lease", end)
	is(t, "why the lease ended", mustEnd(t, lease), lock.ErrMaxHold)
	s.notBefore(t, ended, began.Add(ttl+ttl/2))
	if !ended.Before(at) {
		t.Errorf("the rival got in %s before the holder was told", ended.Sub(at))
	}
	is(t, "release", lease.Release(t.Context()), lock.ErrMaxHold)
}

func (s *suite) atMostOfFixed(t *testing.T) {
	lease := acquire(t, s.locker(t), name(), lock.Hold{TTL: long, AtMost: s.Brief})
	why := mustEnd(t, lease)
	is(t, "why the lease ended", why, lock.ErrMaxHold)
	is(t, "release", lease.Release(t.Context()), lock.ErrMaxHold)
	mustBeFree(t, s.open(t), lease.Name())
}

// Work that makes progress goes on, and work that does not is ended.
func (s *suite) beat(t *testing.T) {
	hold := lock.Hold{TTL: 2 * s.steady(), Every: s.steady() / 4, Beat: s.steady() / 2}
	lease := acquire(t, s.locker(t), name(), hold)
	tick := time.NewTicker(hold.Beat / 10)
	defer tick.Stop()
	var last time.Time
	for range 30 {
		<-tick.C
		last = time.Now()
		lease.Beat()
	}
	alive(t, lease)
	why := mustEnd(t, lease)
	ended := time.Now()
	is(t, "why the lease ended", why, lock.ErrStalled)
	s.notBefore(t, ended, last.Add(hold.Beat))
	is(t, "release", lease.Release(t.Context()), lock.ErrStalled)
	mustBeFree(t, s.open(t), lease.Name())
}

type acquired struct {
	lease *lock.Lease
	err   error
}

// inBackground acquires while the test goes on.
func inBackground(ctx context.Context, l *lock.Locker, name string, hold lock.Hold) <-chan acquired {
	got := make(chan acquired, 1)
	go func() {
		lease, err := l.Acquire(ctx, name, hold)
		got <- acquired{lease, err}
	}()
	return got
}

func waiting(hold lock.Hold, wait time.Duration) lock.Hold {
	hold.Wait = wait
	return hold
}

// Whoever waits gets in one after another, those of one Locker too.
func (s *suite) waitForARelease(t *testing.T) {
	n, l := name(), s.locker(t)
	lease := acquire(t, s.locker(t), n, lock.Fixed(long))
	got := make(chan acquired, 3)
	for _, waiter := range []*lock.Locker{l, l, s.locker(t)} {
		go func() { got <- <-inBackground(t.Context(), waiter, n, waiting(lock.Fixed(long), patience)) }()
	}
	during(t, glance, "got in beside the holder", got)
	released(t, lease)
	for range 3 {
		next := wait(t, "a lease", got)
		if next.err != nil {
			t.Fatal(next.err)
		}
		during(t, glance, "two got in", got)
		released(t, next.lease)
	}
}

// Whoever holds without renewal is gone at the end, and who waits need not be told so.
func (s *suite) waitForTheEnd(t *testing.T) {
	n := name()
	take(t, s.open(t), n, 2*s.Brief)
	began := time.Now()
	released(t, acquire(t, s.locker(t), n, waiting(lock.Fixed(long), patience)))
	if took := time.Since(began); took >= patience {
		t.Errorf("took %s", took)
	}
}

// Who waits in vain is told who has the name.
func (s *suite) waitInVain(t *testing.T) {
	n, patience := name(), 300*time.Millisecond
	lease := acquire(t, s.locker(t), n, lock.Fixed(long))
	began := time.Now()
	_, err := s.locker(t).Acquire(t.Context(), n, waiting(lock.Fixed(long), patience))
	var held *lock.HeldError
	if !errors.As(err, &held) || !s.Anonymous && held.Owner != lease.Owner() {
		t.Errorf("got %v, want that %s has it", err, lease.Owner())
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("got %v: the server was there, and the caller's context has not ended", err)
	}
	if took := time.Since(began); took < patience {
		t.Errorf("gave up after %s", took)
	}
	alive(t, lease)
	released(t, lease)
	mustBeFree(t, s.open(t), n)
}

// Who gives up is told why: by the context's cause, too.
func (s *suite) giveUpWaiting(t *testing.T) {
	n, gaveUp := name(), errors.New("gave up")
	lease := acquire(t, s.locker(t), n, lock.Fixed(long))
	ctx, cancel := context.WithCancelCause(t.Context())
	l := s.locker(t)
	first := inBackground(ctx, l, n, waiting(lock.Fixed(long), patience))
	second := inBackground(ctx, l, n, waiting(lock.Fixed(long), patience))
	during(t, glance, "got in beside the holder", first)
	cancel(gaveUp)
	for _, waiter := range []<-chan acquired{first, second} {
		got := wait(t, "the end of the wait", waiter)
		is(t, "acquire", got.err, gaveUp)
		is(t, "acquire", got.err, lock.ErrHeld)
	}
	released(t, lease)
	mustBeFree(t, s.open(t), n)
}

// Who lost the name to a rival is told so by the next renewal.
func (s *suite) wasStolen(t *testing.T) {
	n, operator := name(), s.open(t).(lock.Registry)
	hold := s.renewedOften()
	hold.Every = 2 * time.Second // not before the rival is there
	lease := acquire(t, s.locker(t), n, hold)
	rival := s.open(t)
	if _, err := operator.Break(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	g := take(t, rival, n, long)
	why := mustEnd(t, lease)
	is(t, "why the lease ended", why, s.stolen())
	is(t, "release", lease.Release(t.Context()), s.stolen())
	if err := g.Release(t.Context(), 0); err != nil {
		t.Errorf("the rival's lease: %v", err)
	}
}

func (s *suite) releaseTwice(t *testing.T) {
	n := name()
	lease := acquire(t, s.locker(t), n, lock.Fixed(long))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lease.Release(ctx); err != nil { // although its context has ended
		t.Fatal(err)
	}
	rival := take(t, s.open(t), n, long)
	released(t, lease) // says the same again, and does nothing
	if err := rival.Release(t.Context(), 0); err != nil {
		t.Errorf("the rival's lease: %v", err)
	}
}
