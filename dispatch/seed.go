package dispatch

import (
	"context"
	"strings"
	"time"
)

// Seed is what the identifiers of all that a request makes come from: whoever does the request again makes what was made
// already, and its primary key says so. It is no secret.
type Seed string

const seedPrefix = "idm_"

// NewSeed returns a seed that no other request has. What comes from it is of that time.
func NewSeed(now time.Time) Seed { return Seed(Unique(seedPrefix, now)) }

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

// IDFor returns the identifier of the dispatch that the request of ctx makes.
func IDFor(ctx context.Context, now time.Time) ID { return ID(identifier(ctx, dispatchPrefix, now, 0)) }

// DriverIDFor returns the identifier of the nth driver that the request of ctx makes.
func DriverIDFor(ctx context.Context, now time.Time, n int) DriverID {
	return DriverID(identifier(ctx, driverPrefix, now, n))
}

// KeyIDFor returns the identifier of the key that the request of ctx makes.
func KeyIDFor(ctx context.Context, now time.Time) string { return identifier(ctx, keyPrefix, now, 0) }

// AuditIDFor returns the identifier of the audit entry of the request of ctx. A request has one at most.
func AuditIDFor(ctx context.Context, now time.Time) string {
	return identifier(ctx, auditPrefix, now, 0)
}

// identifier is Unique where ctx has no seed, and derived from the seed where it has one.
func identifier(ctx context.Context, prefix string, now time.Time, n int) string {
	seed := string(SeedOf(ctx))
	if !strings.HasPrefix(seed, seedPrefix) {
		return Unique(prefix, now)
	}
	if id, ok := Derive(seed, prefix, n); ok {
		return id
	}
	return Unique(prefix, now)
}
