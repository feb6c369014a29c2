package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
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

// A server that has not answered an acquisition may have granted it. Its answer to an extension is unknown, not "expired": the lease is
// not lost when another server loses its data.
func TestQuorumAcquisitionWithoutAnAnswer(t *testing.T) {
	acquisition := acquireScript.Hash()
	for what, begin := range map[string]func(*testing.T, *quorumFixture) Grant{
		"the first is under way": func(t *testing.T, e *quorumFixture) Grant {
			first := e.links[2].Hold(acquisition)
			held := mustAcquire(t, e.quorum, "a", "me", time.Minute)
			testkit.Await(t, "the acquisition is held back", first.Reached())
			return held
		},
		"the second has failed": func(t *testing.T, e *quorumFixture) Grant {
			held := mustAcquire(t, e.quorum, "a", "me", time.Minute)
			testkit.Eventually(t, "all have voted", func() bool { return e.owners(t, "a") == [3]string{"me", "me", "me"} })
			e.clients[2].FlushAll(t.Context())
			second := e.links[2].Hold(acquisition)
			testkit.Eventually(t, "the name is being restored", func() bool {
				wantErr(t, "a renewal", held.Extend(t.Context(), time.Minute), nil)
				select {
				case <-second.Reached():
					return true
				default:
					return false
				}
			})
			e.links[2].Refuse(true)
			testkit.Eventually(t, "the restoration has failed", func() bool {
				why := held.(*quorumGrant).missing[2].Load()
				return why != nil && errors.Is(*why, ErrUnavailable)
			})
			return held
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			e := newElectorate(t)
			held := begin(t, e)
			e.clients[1].FlushAll(t.Context())
			if err := held.Extend(t.Context(), time.Minute); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrLost) {
				t.Fatalf("an extension: got %v, want %v", err, ErrUnavailable)
			}
			e.links[2].Refuse(false)
			testkit.Eventually(t, "a renewal succeeds", func() bool { return held.Extend(t.Context(), time.Minute) == nil })
		})
	}
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
			g, err = e.quorum.Acquire(t.Context(), "a", rand.Text(), 20*time.Second)
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
