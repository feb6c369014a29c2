package idempotency

import (
	"context"
	"strings"
	"time"

	"firsttap/dispatch"
)

// Seed is what the identifiers of all that a request makes come from: whoever does the request again makes what was made
// already, and its primary key says so. It is no secret.
type Seed string

const seedPrefix = "idm_"

// NewSeed returns a seed that no other request has. What comes from it is of that time.
func NewSeed(now time.Time) Seed { return Seed(dispatch.Unique(seedPrefix, now)) }

type seedKey struct{}

// WithSeed returns a context in which identifiers come from the seed.
func WithSeed(ctx context.Context, s Seed) context.Context {
	return context.WithValue(ctx, seedKey{}, s)
}

// SeedOf returns the context's seed, "" if it has none: the request is done once, or its caller takes the blame.
func SeedOf(ctx context.Context) Seed {
	s, _ := ctx.Value(seedKey{}).(Seed)
	return s
}

// DispatchID returns the identifier of the dispatch that the request of ctx makes.
func DispatchID(ctx context.Context, now time.Time) dispatch.ID {
	return dispatch.ID(identifier(ctx, dispatch.DispatchPrefix, now, 0))
}

// DriverID returns the identifier of the nth driver that the request of ctx makes.
func DriverID(ctx context.Context, now time.Time, n int) dispatch.DriverID {
	return dispatch.DriverID(identifier(ctx, dispatch.DriverPrefix, now, n))
}

// KeyID returns the identifier of the key that the request of ctx makes.
func KeyID(ctx context.Context, now time.Time) string {
	return identifier(ctx, dispatch.KeyPrefix, now, 0)
}

// AuditID returns the identifier of the audit entry of the request of ctx. A request has one at most.
func AuditID(ctx context.Context, now time.Time) string {
	return identifier(ctx, dispatch.AuditPrefix, now, 0)
}

// identifier is Unique where ctx has no seed, and derived from the seed where it has one.
func identifier(ctx context.Context, prefix string, now time.Time, n int) string {
	seed := string(SeedOf(ctx))
	if !strings.HasPrefix(seed, seedPrefix) {
		return dispatch.Unique(prefix, now)
	}
	if id, ok := dispatch.Derive(seed, prefix, n); ok {
		return id
	}
	return dispatch.Unique(prefix, now)
}
