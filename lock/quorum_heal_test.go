package lock

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"firsttap/servertest"
	"firsttap/testkit"
)

// A server that has lost its data gets the lease again, so that another server may fail.
func TestQuorumHeals(t *testing.T) {
	e := newElectorate(t)
	lease, err := newLocker(t, e.quorum).Acquire(t.Context(), "a", frequentlyRenewed())
	if err != nil {
		t.Fatal(err)
	}
	for i := range e.servers { // one after another
		e.awaitAllVotes(t, lease)
		e.servers[i].Kill()
		e.servers[i].Start()
		testkit.Eventually(t, fmt.Sprintf("server %d has the lease again", i), func() bool {
			return e.owners(t, "a")[i] == lease.Owner()
		})
		wantErr(t, "a rival", acquireErr(t, e.newQuorum(t), "a", "rival", time.Minute), ErrHeld)
	}
	e.servers[0].Kill()
	mustBeRenewed(t, lease)
	wantErr(t, "release", lease.Release(t.Context()), nil)
	g := acquireEventually(t, e.newQuorum(t), "a")
	if g.Fence() <= lease.Fence() {
		t.Errorf("fence %d after %d", g.Fence(), lease.Fence())
	}
}

// If one server does not answer and another does not know the lease, an extension is unavailable and the lease is not
// lost. The lease is restored on the second server.
func TestQuorumHealsWithoutOne(t *testing.T) {
	e := newElectorate(t)
	lease, err := newLocker(t, e.quorum).Acquire(t.Context(), "a", frequentlyRenewed())
	if err != nil {
		t.Fatal(err)
	}
	e.awaitAllVotes(t, lease)
	e.links[2].Refuse(true)
	e.clients[1].FlushAll(t.Context())
	testkit.Eventually(t, "the empty server has the lease again", func() bool {
		return e.owners(t, "a")[1] == lease.Owner() || lease.Context().Err() != nil
	})
	mustBeRenewed(t, lease)
	wantErr(t, "release", lease.Release(t.Context()), nil)
}

// mustBeRenewed waits for a renewal that begins from now on: the second, as the first may be under way. It fails the test if the lease is
// lost.
func mustBeRenewed(t *testing.T, lease *Lease) {
	t.Helper()
	for range 2 {
		before := lease.TrustedUntil()
		testkit.Eventually(t, "a renewal", func() bool { return lease.TrustedUntil().After(before) || lease.Context().Err() != nil })
	}
	if lease.Context().Err() != nil {
		t.Errorf("lost: %v", context.Cause(lease.Context()))
	}
}

// A server whose clock is ahead determines the fence of a lease. Servers on which the lease was restored know that fence
// too.
func TestQuorumHealsTheFence(t *testing.T) {
	e := &quorumFixture{}
	e.add(t, servertest.StartRedisSkewed(t, 10*time.Second))
	e.add(t, servertest.StartRedis(t))
	e.add(t, servertest.StartRedis(t))
	e.quorum = quorumOf(t, e.nodes...)
	e.servers[2].Kill() // so that the server with the fast clock votes
	lease, err := newLocker(t, e.quorum).Acquire(t.Context(), "a", frequentlyRenewed())
	if err != nil {
		t.Fatal(err)
	}
	e.servers[2].Start()
	for _, i := range []int{2, 1} {
		if i == 1 {
			e.clients[i].FlushAll(t.Context())
		}
		testkit.Eventually(t, fmt.Sprintf("server %d has the lease again", i), func() bool {
			return e.owners(t, "a")[i] == lease.Owner()
		})
	}
	wantErr(t, "release", lease.Release(t.Context()), nil)
	e.servers[0].Kill()
	if g := acquireEventually(t, e.newQuorum(t), "a"); g.Fence() <= lease.Fence() {
		t.Errorf("fence %d after %d", g.Fence(), lease.Fence())
	}
}

// A server that got the name back, and not the fence, gets the fence at the next renewal.
func TestQuorumHealsTheFenceLater(t *testing.T) {
	e := &quorumFixture{}
	e.add(t, servertest.StartRedisSkewed(t, 10*time.Second)) // its clock determines the fence
	e.add(t, servertest.StartRedis(t))
	e.add(t, servertest.StartRedis(t))
	e.quorum = quorumOf(t, e.nodes...)
	e.servers[2].Kill()
	held := mustAcquire(t, e.quorum, "a", "me", time.Minute)
	e.servers[2].Start()
	renew := func() {
		wantErr(t, "a renewal", held.Extend(t.Context(), time.Minute), nil)
	}
	shown := func() Holder {
		h, err := NewRedis(e.clients[2], TaggedKeys("lock")).Show(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	raise := e.links[2].Hold(fmt.Sprint(held.Fence()))
	testkit.Eventually(t, "the name is restored", func() bool {
		renew()
		select {
		case <-raise.Reached():
			return true
		default:
			return false
		}
	})
	e.links[2].CutAll() // the request that raises the fence is lost
	if h := shown(); h.Owner != "me" || h.Fence >= held.Fence() {
		t.Fatalf("the server has %+v, and the fence is %d", h, held.Fence())
	}
	testkit.Eventually(t, "the fence is raised", func() bool {
		renew()
		return shown().Fence == held.Fence()
	})
}

// Whichever two of three servers answer, and whatever their clocks say, the fences grow.
func TestQuorumFencesGrow(t *testing.T) {
	e := &quorumFixture{}
	for _, offset := range []time.Duration{0, 10 * time.Second, -10 * time.Second} {
		server := servertest.StartRedis(t)
		if offset != 0 {
			server = servertest.StartRedisSkewed(t, offset)
		}
		e.add(t, server)
	}
	e.quorum = quorumOf(t, e.nodes...)
	var last int64
	for _, away := range []int{0, 1, 2, 1, 0, 2, 0} {
		e.links[away].Refuse(true)
		var g Grant
		testkit.Eventually(t, "a is free", func() bool {
			var err error
			g, err = e.quorum.Acquire(t.Context(), "a", rand.Text(), 5*time.Second)
			return err == nil
		})
		if g.Fence() <= last {
			t.Errorf("without server %d: fence %d after %d", away, g.Fence(), last)
		}
		last = g.Fence()
		wantErr(t, "release", g.Release(t.Context(), 0), nil)
		e.links[away].Refuse(false)
	}
}
