package locks

import (
	"context"
	"crypto/rand"
	"log/slog"
	"testing"
	"time"

	"firsttap/lock"
)

// newOwner is an identity for one acquisition, for ways that need one.
func newOwner() string { return rand.Text() }

// heldBy uses a strategy as intended: through a Locker, renewed, with the work bound to the lease.
func heldBy(t *testing.T, strategy lock.Strategy) user {
	locker := lock.New(strategy, lock.Options{})
	t.Cleanup(locker.Close)
	return func(ctx context.Context, name string) (*held, error) {
		lease, err := locker.Acquire(ctx, name, lock.Renewed(ttl, time.Hour))
		if err != nil {
			return nil, err
		}
		return &held{work: lease.Context(), release: lease.Release}, nil
	}
}

func redisStrategy(t *testing.T, addr string) *lock.Redis {
	return lock.NewRedis(strictClient(t, addr), lock.TaggedKeys("lock"))
}

func openRedis(t *testing.T, s site) user { return heldBy(t, redisStrategy(t, s.redis[0])) }

func openQuorum(t *testing.T, s site) user {
	var nodes []*lock.Redis
	for _, addr := range s.redis {
		nodes = append(nodes, redisStrategy(t, addr))
	}
	quorum, err := lock.NewQuorum(nodes...)
	if err != nil {
		t.Fatal(err)
	}
	return heldBy(t, quorum)
}

func openTable(t *testing.T, s site) user { return heldBy(t, lock.NewTable(s.open(t), lock.MySQL)) }

func openNamed(t *testing.T, s site) user { return heldBy(t, sessions(t, s).Named()) }

func openRows(t *testing.T, s site) user { return heldBy(t, sessions(t, s).Rows()) }

func sessions(t *testing.T, s site) *lock.Sessions {
	const names = 4
	sessions, err := lock.OpenSessions(s.mysql, ttl, names)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sessions.Close() })
	return sessions
}

func openStrategy(t *testing.T, s site) user {
	strategy := redisStrategy(t, s.redis[0])
	return func(ctx context.Context, name string) (*held, error) {
		grant, err := strategy.Acquire(ctx, name, newOwner(), ttl)
		if err != nil {
			return nil, err
		}
		return &held{release: func(ctx context.Context) error { return grant.Release(ctx, 0) }}, nil
	}
}

func openGate(t *testing.T, s site) user {
	gate := lock.NewGate(strictClient(t, s.redis[0]), time.Second, slog.New(slog.DiscardHandler), nil)
	return func(ctx context.Context, name string) (*held, error) {
		pass, err := gate.Obtain(ctx, "lock:"+name, newOwner(), ttl)
		if err != nil {
			return nil, err
		}
		return &held{release: pass.Release}, nil
	}
}
