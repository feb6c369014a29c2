package lock_test

import (
	"context"
	"testing"
	"time"

	"firsttap/lock"
)

// heedful is a Memory whose grants do nothing for a context that has ended, as a database's.
type heedful struct{ *lock.Memory }

type heedfulGrant struct{ lock.Grant }

func (h heedful) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (lock.Grant, error) {
	g, err := h.Memory.Acquire(ctx, name, owner, ttl)
	if err != nil {
		return nil, err
	}
	return heedfulGrant{g}, nil
}

func (g heedfulGrant) Release(ctx context.Context, keep time.Duration) error {
	if ctx.Err() != nil {
		return lock.ErrUnavailable
	}
	return g.Grant.Release(ctx, keep)
}

// A caller who was called off releases what he has, and is told that he has.
func TestReleaseAfterItsContextEnded(t *testing.T) {
	l := lockerOn(t, heedful{lock.NewMemory()})
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
