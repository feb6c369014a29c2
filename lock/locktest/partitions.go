package locktest

import (
	"context"
	"sync"
	"testing"
	"time"

	"firsttap/lock"
)

// partitions are what becomes of leases when nothing arrives any more, and nobody is told.
var partitions = []test{
	{name: "NoOverlap", needs: "Partition", run: (*suite).noOverlap},
	{name: "NoOverlapWithoutRenewal", needs: "Partition", run: (*suite).noOverlapOfFixed},
	{name: "NoOverlapAfterSlowAnswers", needs: "Partition Delay", run: (*suite).noOverlapOfSlow},
	{name: "ShortPartition", needs: "Partition TTL", run: (*suite).shortPartition},
	{name: "AcquireInAPartition", needs: "Partition", run: (*suite).acquirePartitioned},
	{name: "ReleaseInAPartition", needs: "Partition", run: (*suite).releasePartitioned},
}

const (
	overlapTTL = 3 * time.Second
	pairs      = 20
)

// The holder's work is canceled before the rival gets in, 20 of 20, whenever between two renewals the partition begins.
func (s *suite) noOverlap(t *testing.T) {
	hold := lock.Renewed(overlapTTL, long)
	var all []*pair
	for i := range pairs {
		link := s.Link(t)
		l := s.lockerAt(t, link.URL, overlapTTL)
		all = append(all, &pair{name(), l, link, s.open(t), hold, hold.Every * time.Duration(i) / pairs, s.cutOff()})
	}
	compete(t, all)
}

// A holder without renewal need not notice the partition.
func (s *suite) noOverlapOfFixed(t *testing.T) {
	link := s.Link(t)
	compete(t, []*pair{{name(), s.lockerAt(t, link.URL, overlapTTL), link, s.open(t), lock.Fixed(overlapTTL), 0, lock.ErrExpired}})
}

// A lease began when it was asked for, or renewed when that was: not when the answer came.
func (s *suite) noOverlapOfSlow(t *testing.T) {
	const late = 400 * time.Millisecond // more than the margin, and twice that less than the Locker's timeout
	fixed := &pair{hold: lock.Fixed(overlapTTL), cause: lock.ErrExpired}
	renewed := &pair{hold: lock.Renewed(overlapTTL, long), cause: s.cutOff()}
	renewed.after = renewed.hold.Every + 2*late // one renewal has been answered, and no more
	for _, p := range []*pair{fixed, renewed} {
		p.name, p.rival = name(), s.open(t)
		mustBeFree(t, p.rival, p.name) // the first to have a name may need more answers
		p.holder, p.link = s.linkedFor(t, overlapTTL)
		p.link.Delay(late)
	}
	compete(t, []*pair{fixed, renewed})
}

// pair is a holder whose link breaks after a while, and a rival whose doesn't.
type pair struct {
	name   string
	holder *lock.Locker
	link   Link
	rival  lock.Strategy
	hold   lock.Hold
	after  time.Duration
	cause  error // that the holder is to be told
}

func compete(t *testing.T, pairs []*pair) {
	var running sync.WaitGroup
	for _, p := range pairs {
		running.Go(func() { p.compete(t) })
	}
	running.Wait()
}

func (p *pair) compete(t *testing.T) {
	working, ended, done := make(chan bool), make(chan time.Time, 1), make(chan error, 1)
	go func() {
		done <- p.holder.Do(t.Context(), p.name, p.hold, func(ctx context.Context) error {
			close(working)
			<-ctx.Done()
			ended <- time.Now()
			return context.Cause(ctx)
		})
	}()
	select {
	case <-working:
	case err := <-done:
		t.Errorf("not acquired: %v", err)
		return
	}
	pass(p.after)
	p.link.Partition(true)
	defer p.link.Partition(false)
	_, got, err := keepAsking(t.Context(), p.rival, p.name, long)
	if err != nil {
		t.Error(err)
		return
	}
	select {
	case canceled := <-ended:
		if !canceled.Before(got) {
			t.Errorf("the rival got in %s before the holder's work was canceled", canceled.Sub(got))
		}
	case <-time.After(patience):
		t.Error("the rival got in, and the holder's work was never canceled")
		return
	}
	is(t, "Do", <-done, p.cause)
}

// A partition that ends before the lease does is no reason to stop.
func (s *suite) shortPartition(t *testing.T) {
	l, link := s.linked(t)
	hold := lock.Hold{TTL: overlapTTL, Every: 400 * time.Millisecond, AtMost: long}
	lease := acquire(t, l, name(), hold)
	link.Partition(true)
	during(t, 2*hold.Every, "the lease ended", lease.Context().Done()) // at least one renewal is swallowed
	link.Partition(false)
	during(t, overlapTTL, "the lease ended", lease.Context().Done())
	mustBeHeld(t, s.open(t), lease.Name())
	released(t, lease)
}

// Nobody can tell, and nobody is told that somebody else has it; nor does the caller wait for long.
func (s *suite) acquirePartitioned(t *testing.T) {
	n := name()
	l, link := s.linked(t)
	link.Partition(true)
	for what, hold := range map[string]lock.Hold{"at once": lock.Fixed(long), "waiting": waiting(lock.Fixed(long), time.Second)} {
		_, err := l.Acquire(t.Context(), n, hold)
		is(t, what, err, lock.ErrUnavailable)
	}
	got := inBackground(t.Context(), l, n, waiting(lock.Fixed(long), patience))
	during(t, glance, "an answer", got)
	link.Partition(false)
	next := wait(t, "the lease", got)
	if next.err != nil {
		t.Fatal(next.err)
	}
	released(t, next.lease)
	takeOver(t, s.open(t), n, long)
}

// What could not be released is, as soon as the server can be reached again.
func (s *suite) releasePartitioned(t *testing.T) {
	n := name()
	l, link := s.linked(t)
	lease := acquire(t, l, n, lock.Fixed(long))
	link.Partition(true)
	is(t, "release", lease.Release(t.Context()), lock.ErrUnavailable)
	mustBeHeld(t, s.open(t), n)
	link.Partition(false)
	takeOver(t, s.open(t), n, long)
}
