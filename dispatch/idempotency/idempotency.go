// Package idempotency defines how a request that is sent twice takes effect once: the request's key, its reservation, and
// the seed of the identifiers and secrets that it creates.
package idempotency

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"firsttap/dispatch"
)

var (
	// ErrKeyReused says that the Idempotency-Key was used for another request, or with another secret.
	ErrKeyReused = errors.New("the Idempotency-Key belongs to another request")
	// ErrKeyInUse says that a request with the Idempotency-Key is under way.
	ErrKeyInUse = errors.New("a request with this Idempotency-Key is under way")
)

// Request identifies a request that takes effect once, however often it is sent.
type Request struct {
	Caller      string // the key's identifier
	Name        string // the Idempotency-Key, hashed
	Fingerprint string // of the method, path and body
}

// Reservation is the right to execute a request until the lease ends, or the answer to it.
type Reservation struct {
	Request
	Seed  Seed
	Lease string
	// Answer is the sealed answer, nil before there is one.
	Answer []byte
}

// Seed determines the identifiers of the objects that a request creates: a second execution creates the same identifiers, and
// the primary key refuses them. It is not a secret.
type Seed string

const seedPrefix = "idm_"

// NewSeed returns a unique seed. Identifiers from it have that time.
func NewSeed(now time.Time) Seed { return Seed(dispatch.NewUniqueID(seedPrefix, now)) }

type seedKey struct{}

// WithSeed returns a context with the seed.
func WithSeed(ctx context.Context, s Seed) context.Context {
	return context.WithValue(ctx, seedKey{}, s)
}

// SeedFrom returns the context's seed, "" for none. Without a seed a retry may create a second object.
func SeedFrom(ctx context.Context) Seed {
	s, _ := ctx.Value(seedKey{}).(Seed)
	return s
}

// DispatchID returns the identifier of the dispatch that the request of ctx creates.
func DispatchID(ctx context.Context, now time.Time) dispatch.ID {
	if id, ok := derived(ctx, dispatch.DispatchPrefix, 0); ok {
		return dispatch.ID(id)
	}
	return dispatch.NewID(now)
}

// DriverID returns the identifier of the nth driver that the request of ctx creates.
func DriverID(ctx context.Context, now time.Time, n int) dispatch.DriverID {
	if id, ok := derived(ctx, dispatch.DriverPrefix, n); ok {
		return dispatch.DriverID(id)
	}
	return dispatch.NewDriverID(now)
}

// KeyID returns the identifier of the key that the request of ctx creates.
func KeyID(ctx context.Context, now time.Time) string {
	return identifier(ctx, dispatch.KeyPrefix, now)
}

// WebhookID returns the identifier of the webhook that the request of ctx creates.
func WebhookID(ctx context.Context, now time.Time) string {
	return identifier(ctx, dispatch.WebhookPrefix, now)
}

// EventID returns the identifier of the event that the request of ctx creates.
func EventID(ctx context.Context, now time.Time) string {
	return identifier(ctx, dispatch.EventPrefix, now)
}

// AuditID returns the identifier of the audit entry of the request of ctx. A request has at most one.
func AuditID(ctx context.Context, now time.Time) string {
	return identifier(ctx, dispatch.AuditPrefix, now)
}

// identifier returns an identifier derived from the seed of ctx, or a unique one without a seed.
func identifier(ctx context.Context, prefix string, now time.Time) string {
	if id, ok := derived(ctx, prefix, 0); ok {
		return id
	}
	return dispatch.NewUniqueID(prefix, now)
}

// derived returns the nth identifier with prefix from the seed of ctx. It reports false without a seed.
func derived(ctx context.Context, prefix string, n int) (string, bool) {
	seed := string(SeedFrom(ctx))
	if !strings.HasPrefix(seed, seedPrefix) {
		return "", false
	}
	return dispatch.DeriveID(seed, prefix, n)
}

// Secret returns 32 random bytes. Those of an idempotent request are derived from the request's seed, so that a retry gets the same
// ones, from the caller's secret by, as the seed is stored in plain text, and from the purpose.
func Secret(ctx context.Context, by, purpose string) []byte {
	if seed := SeedFrom(ctx); seed != "" {
		mac := hmac.New(sha256.New, []byte(by))
		fmt.Fprintf(mac, "%s\n%s", purpose, seed)
		return mac.Sum(nil)
	}
	raw := make([]byte, sha256.Size)
	rand.Read(raw) // never fails: crypto/rand ends the process instead
	return raw
}
