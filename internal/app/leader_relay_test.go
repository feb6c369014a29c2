//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package app

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/internal/testkit"
	"firsttap/lock"
)

// cutLocks are locks that some instances can't reach.
type cutLocks struct {
	lock.Strategy
	away atomic.Bool
}

func (c *cutLocks) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (lock.Grant, error) {
	if c.away.Load() {
		return nil, lock.ErrUnavailable
	}
	g, err := c.Strategy.Acquire(ctx, name, owner, ttl)
	if err != nil {
		return nil, err
	}
	return &cutGrant{g, c}, nil
}

type cutGrant struct {
	lock.Grant
	locks *cutLocks
}

func (g *cutGrant) Extend(ctx context.Context, ttl time.Duration) error {
	if g.locks.away.Load() {
		return lock.ErrUnavailable
	}
	return g.Grant.Extend(ctx, ttl)
}

func (g *cutGrant) Release(ctx context.Context, keep time.Duration) error {
	if g.locks.away.Load() {
		return lock.ErrUnavailable
	}
	return g.Grant.Release(ctx, keep)
}

// relaying is an instance that may send.
type relaying struct {
	locks   cutLocks
	down    atomic.Bool // it does not reach its database
	sending atomic.Bool
	begun   atomic.Int32 // how often it has begun to send
	stop    func()
}

func startRelaying(t *testing.T, locks lock.Strategy) *relaying {
	i := &relaying{locks: cutLocks{Strategy: locks}}
	quiet := slog.New(slog.DiscardHandler)
	locker := lock.New(&i.locks, lock.Options{Log: quiet})
	r := &leaderRelay{
		leader: locker.Leader(relayName, relayWait, relayLease), up: func() bool { return !i.down.Load() }, log: quiet,
		send: func(ctx context.Context) {
			i.begun.Add(1)
			i.sending.Store(true)
			<-ctx.Done()
			i.sending.Store(false)
			time.Sleep(relayLease) // for attempts under way
		},
	}
	i.stop = testkit.Run(t, func(ctx context.Context) {
		defer locker.Close()
		r.run(ctx)
	})
	return i
}

// leadAndFollow starts two instances, of which the first leads.
func leadAndFollow(t *testing.T) (leader, follower *relaying) {
	locks := lock.NewMemory()
	leader = startRelaying(t, locks)
	synctest.Wait()
	follower = startRelaying(t, locks)
	after(t, 5*time.Second, leader, follower, true, false)
	return leader, follower
}

// after fails the test unless the two instances send as they should after d.
func after(t *testing.T, d time.Duration, a, b *relaying, aSends, bSends bool) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if a.sending.Load() != aSends || b.sending.Load() != bSends {
		t.Fatalf("sending: %v and %v, want %v and %v", a.sending.Load(), b.sending.Load(), aSends, bSends)
	}
}

// An instance that alone loses its database hands the lead over. When the database is back, it waits for the lead.
func TestLeaderWithoutItsDatabase(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		leader, other := leadAndFollow(t)
		leader.down.Store(true)
		after(t, relayPatience-2*time.Second, leader, other, true, false) // a short outage changes nothing
		leader.down.Store(false)
		after(t, relayPatience, leader, other, true, false)
		leader.down.Store(true)
		after(t, relayPatience+2*time.Second+relayWait, leader, other, false, true)
		after(t, time.Minute, leader, other, false, true)
		leader.down.Store(false)
		after(t, time.Minute, leader, other, false, true)
		other.down.Store(true)
		after(t, relayPatience+2*time.Second+relayWait, leader, other, true, false)
	})
}

// While the lock does not answer, both instances send all the time. When it answers again, only one of them sends.
func TestRelaysWithoutLocks(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		leader, other := leadAndFollow(t)
		began := leader.begun.Load()
		leader.locks.away.Store(true)
		other.locks.away.Store(true)
		time.Sleep(2 * time.Second)
		for range 600 {
			after(t, 100*time.Millisecond, leader, other, true, true)
		}
		if n := leader.begun.Load(); n != began {
			t.Errorf("the leader has stopped sending %d times", n-began)
		}
		leader.down.Store(true)
		after(t, relayPatience-time.Second, leader, other, true, true) // a short outage of its database changes nothing
		leader.down.Store(false)
		after(t, relayPatience, leader, other, true, true)
		if n := leader.begun.Load(); n != began {
			t.Errorf("the leader has stopped sending %d times in a short outage of its database", n-began)
		}
		leader.down.Store(true)
		after(t, relayPatience+time.Second, leader, other, false, true)
		leader.down.Store(false)
		after(t, relayLease+2*time.Second, leader, other, true, true)
		leader.locks.away.Store(false)
		after(t, 2*relayWait, leader, other, true, true)
		other.locks.away.Store(false)
		after(t, 3*relayWait, leader, other, true, false)
	})
}

// A leader that stops hands over at once, also soon after it has lost the lead and won it again.
func TestStoppedLeaderHandsOver(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		leader, other := leadAndFollow(t)
		other.stop()
		leader.locks.away.Store(true)
		time.Sleep(relayLease)
		leader.locks.away.Store(false)
		time.Sleep(2 * relayWait)
		other = startRelaying(t, leader.locks.Strategy)
		after(t, 2*relayWait, leader, other, true, false)
		go leader.stop() // attempts under way take longer
		after(t, relayWait, leader, other, false, true)
	})
}
