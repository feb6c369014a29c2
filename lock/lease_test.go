package lock_test

import (
	"context"
	"testing"
	"time"

	"firsttap/lock"
)

// ctxAwareMemory is a Memory whose grants fail after the end of the context, like those of a database.
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

// Release works after the caller's context has ended.
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
