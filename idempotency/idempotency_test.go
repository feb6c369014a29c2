package idempotency

import (
	"testing"
	"time"

	"firsttap/dispatch"
)

// Identifiers from a seed are reproducible, have the seed's time, and are distinct.
func TestIdentifiersFromASeed(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	seed := NewSeed(at)
	ctx, other := WithSeed(t.Context(), seed), WithSeed(t.Context(), NewSeed(at))
	if DispatchID(ctx, time.Now()) != DispatchID(ctx, time.Time{}) || DriverID(ctx, at, 7) != DriverID(ctx, time.Now(), 7) {
		t.Error("another identifier from the same seed")
	}
	seen := map[string]bool{}
	for _, id := range []string{
		string(DispatchID(ctx, at)), string(DispatchID(other, at)), string(DispatchID(t.Context(), at)), string(DispatchID(t.Context(), at)),
		string(DriverID(ctx, at, 0)), string(DriverID(ctx, at, 1)), string(DriverID(ctx, at, 10)), string(DriverID(other, at, 0)),
		KeyID(ctx, at), AuditID(ctx, at),
	} {
		if len(id) != 4+26 || !dispatch.LooksLikeID(id) || seen[id[4:]] {
			t.Errorf("%s: not an identifier, or what follows the prefix is another's", id)
		}
		seen[id[4:]] = true
	}
	id, err := dispatch.ParseID(string(DispatchID(ctx, time.Now())))
	if err != nil || id < dispatch.MinID(at) || id >= dispatch.MinID(at.Add(time.Microsecond)) {
		t.Errorf("%s is not of the seed's time: %v", id, err)
	}
	for _, bad := range []Seed{"", "idm_", "idm_0", "x", "idm_!!", Seed("key_" + string(seed[4:]))} {
		bad := WithSeed(t.Context(), bad)
		if first := DispatchID(bad, at); first == DispatchID(bad, at) {
			t.Errorf("%q is a seed", SeedFrom(bad))
		}
	}
}

// Whether an identifier was derived from a seed can be told, and between which seeds that seed is.
func TestSeedOfAnIdentifier(t *testing.T) {
	at := time.Now()
	seed := NewSeed(at)
	id := string(DriverID(WithSeed(t.Context(), seed), at, 2))
	if first, last, ok := SeedsLike(id); !ok || seed < first || seed > last || NewSeed(at.Add(time.Microsecond)) <= last || NewSeed(at.Add(-time.Microsecond)) >= first {
		t.Errorf("%s is of a seed from %s to %s, and not of %s", id, first, last, seed)
	}
	if _, _, ok := SeedsLike("drv_x"); ok {
		t.Error("a malformed identifier has a seed")
	}
	for _, c := range []struct {
		seed   Seed
		prefix string
		n      int
		want   bool
	}{
		{seed, dispatch.DriverPrefix, 3, true},
		{seed, dispatch.DriverPrefix, 2, false},
		{seed, dispatch.DispatchPrefix, 3, false},
		{NewSeed(at), dispatch.DriverPrefix, 3, false},
		{"", dispatch.DriverPrefix, 3, false},
	} {
		if c.seed.Made(id, c.prefix, c.n) != c.want {
			t.Errorf("%s is one of the first %d of %q with %s: want %v", id, c.n, c.seed, c.prefix, c.want)
		}
	}
}
