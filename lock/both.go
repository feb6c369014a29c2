package lock

import (
	"context"
	"errors"
	"time"
)

// Both is a Strategy that holds a name by two at once, for a rolling migration from one to the other: instances that know
// only the first, both, or only the second exclude each other, as long as those with both stand between. It is there if
// both are, and free if both are free.
type Both struct{ first, second Strategy }

// NewBoth returns the strategy of instances between those that use first and those that use second. All that use both
// must have them in the same order.
func NewBoth(first, second Strategy) *Both { return &Both{first, second} }

type bothGrant struct{ first, second Grant } // nil where nothing was acquired

// Acquire implements Strategy.
func (b *Both) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Grant, error) {
	first, err := b.first.Acquire(ctx, name, owner, ttl)
	if err != nil {
		return asGrant(first, nil), err
	}
	second, err := b.second.Acquire(ctx, name, owner, ttl)
	if err == nil {
		return bothGrant{first, second}, nil
	}
	// Held by the second only: the first must not stay behind, although ctx may be at its end.
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), ttl)
	defer cancel()
	if released := first.Release(detached, 0); released != nil && !errors.Is(released, ErrLost) {
		return bothGrant{first, second}, unavailable(ctx, released)
	}
	return asGrant(nil, second), err
}

// asGrant is nil where neither is a grant.
func asGrant(first, second Grant) Grant {
	if first == nil && second == nil {
		return nil
	}
	return bothGrant{first, second}
}

// Fence implements Grant. It is the larger of the two. Each is of its server's clock, so that the next holder's is larger
// even if it knows only one of the strategies, unless the clocks differ by more than lies between the two acquisitions.
func (g bothGrant) Fence() int64 { return max(g.first.Fence(), g.second.Fence()) }

// Extend implements Grant.
func (g bothGrant) Extend(ctx context.Context, ttl time.Duration) error {
	first := make(chan error, 1)
	go func() { first <- g.first.Extend(ctx, ttl) }()
	second := g.second.Extend(ctx, ttl)
	return firstOf(ErrLost, second, <-first)
}

// Release implements Grant.
func (g bothGrant) Release(ctx context.Context, keep time.Duration) error {
	var first, second error
	if g.second != nil {
		second = g.second.Release(ctx, keep)
	}
	if g.first != nil {
		first = g.first.Release(ctx, keep)
	}
	return firstOf(ErrUnavailable, first, second)
}

// firstOf is what two answers come to: whichever is kind, or else whichever is an error.
func firstOf(kind, a, b error) error {
	if a == nil || errors.Is(b, kind) && !errors.Is(a, kind) {
		return b
	}
	return a
}
