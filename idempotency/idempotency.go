// Package idempotency says what makes a request that is sent twice be done once: its key, its reservation, and the seed from
// which all identifiers come that the request makes.
package idempotency

import (
	"context"
	"errors"
	"strings"
	"time"

	"firsttap/dispatch"
)

var (
	// ErrKeyReused says that the Idempotency-Key was sent with another request before, or by another secret.
	ErrKeyReused = errors.New("the Idempotency-Key belongs to another request")
	// ErrKeyInUse says that a request with the Idempotency-Key is under way.
	ErrKeyInUse = errors.New("a request with this Idempotency-Key is under way")
)

// Request is a request that is to be done once, however often it is sent.
type Request struct {
	Caller      string // the key's identifier
	Name        string // what the caller calls the request, hashed
	Fingerprint string // of what is asked for
}

// Reservation is the right to do a request, until its lease ends; or what was answered to it.
type Reservation struct {
	Request
	Seed  Seed
	Lease string
	// Answer is sealed; nil unless the request has been answered.
	Answer []byte
}

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
