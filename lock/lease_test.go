package lock_test

import (
	"context"
	"testing"
	"time"

	"firsttap/lock"
)

// ctxAwareMemory is a Memory whose grants do nothing for a context that has ended, as a database's.
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

// A caller who was called off releases what he has, and is told that he has.
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
