package locktest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"firsttap/lock"
)

// partitions test leases while all data is dropped without an error.
var partitions = []test{
	{name: "NoOverlap", scope: Faults, needs: "Partition", run: (*suite).noOverlap},
	{name: "NoOverlapWithoutRenewal", scope: Faults, needs: "Partition", run: (*suite).noOverlapOfFixed},
	{name: "NoOverlapAfterSlowAnswers", needs: "Partition Delay", run: (*suite).noOverlapOfSlow},
	{name: "ShortPartition", needs: "Partition TTL", run: (*suite).shortPartition},
	{name: "AcquireInAPartition", needs: "Partition", run: (*suite).acquirePartitioned},
	{name: "ReleaseInAPartition", needs: "Partition", run: (*suite).releasePartitioned},
}

const (
	partitionTTL = 3 * time.Second
	pairs        = 6
)

// The holder's lease ends before the rival acquires the name, at whatever time between two renewals the partition begins.
func (s *suite) noOverlap(t *testing.T) {
	hold := lock.Renewed(partitionTTL, long)
	var all []*pair
	for i := range pairs {
		link := s.Link(t)
		l := s.lockerAt(t, link.URL, partitionTTL, shortTimeout)
		all = append(all, &pair{newName(), l, link, s.open(t), hold, hold.RenewEvery * time.Duration(i) / pairs, s.unreachableErr()})
	}
	runPairs(t, all)
}

// A holder without renewal does not have to notice the partition.
func (s *suite) noOverlapOfFixed(t *testing.T) {
	link := s.Link(t)
	l := s.lockerAt(t, link.URL, partitionTTL, shortTimeout)
	runPairs(t, []*pair{{newName(), l, link, s.open(t), lock.Fixed(partitionTTL), 0, lock.ErrExpired}})
}

// A lease counts from when its request was sent, not from when the answer came.
func (s *suite) noOverlapOfSlow(t *testing.T) {
	// More than the safety margin, and so little that an attempt succeeds within the TTL even if it dials: that takes eight answers.
	const late = 320 * time.Millisecond
	fixed := &pair{hold: lock.Fixed(partitionTTL), wantErr: lock.ErrExpired}
	renewed := &pair{hold: lock.Renewed(partitionTTL, long), wantErr: s.unreachableErr()}
	renewed.partitionAfter = renewed.hold.RenewEvery + 2*late // exactly one renewal has been answered
	for _, p := range []*pair{fixed, renewed} {
		p.name, p.rival = newName(), s.open(t)
		mustBeFree(t, p.rival, p.name) // the first use of a name may need more answers
		p.holder, p.link = s.lockerWithLinkFor(t, partitionTTL, answerTimeout)
		p.link.Delay(late)
	}
	runPairs(t, []*pair{fixed, renewed})
}

// pair is a holder whose link breaks after a while, and a rival whose link does not.
type pair struct {
	name           string
	holder         *lock.Locker
	link           Link
	rival          lock.Strategy
	hold           lock.Hold
	partitionAfter time.Duration
	wantErr        error // why the holder's lease is lost
}

func runPairs(t *testing.T, pairs []*pair) {
	var running sync.WaitGroup
	for _, p := range pairs {
		running.Go(func() { p.compete(t) })
	}
	running.Wait()
}

func (p *pair) compete(t *testing.T) {
	working, ended, done := make(chan *lock.Lease), make(chan bool), make(chan error, 1)
	go func() {
		done <- p.holder.Do(t.Context(), p.name, withWait(p.hold, timeout), func(ctx context.Context) error {
			working <- lock.FromContext(ctx)
			<-ctx.Done()
			close(ended)
			return context.Cause(ctx)
		})
	}()
	var lease *lock.Lease
	select {
	case lease = <-working:
	case err := <-done:
		t.Errorf("not acquired: %v", err)
		return
	}
	select { // a busy machine may lose the lease before the partition
	case <-ended:
	case <-time.After(p.partitionAfter):
	}
	p.link.Partition(true)
	defer p.link.Partition(false)
	_, got, err := pollAcquire(t.Context(), p.rival, p.name, long)
	if err != nil {
		t.Error(err)
		return
	}
	if trusted := lease.TrustedUntil(); !trusted.Before(got) {
		t.Errorf("the rival acquired the name %s before the holder's lease ended", trusted.Sub(got))
	}
	select {
	case <-ended:
	case <-time.After(timeout):
		t.Error("the rival acquired the name, and the holder's work was never canceled")
		return
	}
	wantErr(t, "Do", <-done, p.wantErr)
}

// A lease survives a partition that is shorter than its TTL.
func (s *suite) shortPartition(t *testing.T) {
	l, link := s.lockerWithLinkFor(t, long, shortTimeout)
	hold := s.frequentlyRenewed()
	if s.simulated { // a busy machine does not delay renewals in a bubble
		hold.TTL = partitionTTL
	}
	lease := mustLease(t, l, newName(), withWait(hold, timeout))
	link.Partition(true)
	mustNotHappen(t, 4*hold.RenewEvery, "the lease ended", lease.Context().Done()) // at least one renewal is dropped
	trusted := lease.TrustedUntil()
	link.Partition(false)
	eventually(t, "the lease is renewed", func() error {
		if !lease.TrustedUntil().After(trusted) {
			return fmt.Errorf("it is trusted until %s", trusted)
		}
		return nil
	})
	if s.simulated {
		mustNotHappen(t, partitionTTL, "the lease ended", lease.Context().Done())
	}
	mustBeAlive(t, lease)
	mustBeHeld(t, s.open(t), lease.Name())
	mustRelease(t, lease)
}

// An attempt in a partition returns soon, as unavailable and not as held.
func (s *suite) acquirePartitioned(t *testing.T) {
	n := newName()
	l, link := s.lockerWithLinkFor(t, long, shortTimeout)
	link.Partition(true)
	for what, hold := range map[string]lock.Hold{"at once": lock.Fixed(long), "waiting": withWait(lock.Fixed(long), time.Second)} {
		_, err := l.Acquire(t.Context(), n, hold)
		wantErr(t, what, err, lock.ErrUnavailable)
	}
	got := acquireAsync(t.Context(), l, n, withWait(lock.Fixed(long), timeout))
	mustNotHappen(t, quiet, "an answer", got)
	link.Partition(false)
	next := receiveLease(t, got)
	mustRelease(t, next)
	acquireEventually(t, s.open(t), n, long)
}

// A release that failed in a partition succeeds when the server can be reached again.
func (s *suite) releasePartitioned(t *testing.T) {
	n := newName()
	l, link := s.lockerWithLinkFor(t, long, shortTimeout)
	lease := mustLease(t, l, n, withWait(lock.Fixed(long), timeout))
	link.Partition(true)
	wantErr(t, "release", lease.Release(t.Context()), lock.ErrUnavailable)
	mustBeHeld(t, s.open(t), n)
	link.Partition(false)
	acquireEventually(t, s.open(t), n, long)
}
