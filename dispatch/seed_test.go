package dispatch

import (
	"testing"
	"time"
)

// What comes from a seed is always the same, of the seed's time, and unlike anything else that comes from it.
func TestIdentifiersFromASeed(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	seed := NewSeed(at)
	ctx, other := WithSeed(t.Context(), seed), WithSeed(t.Context(), NewSeed(at))
	if IDFor(ctx, time.Now()) != IDFor(ctx, time.Time{}) || DriverIDFor(ctx, at, 7) != DriverIDFor(ctx, time.Now(), 7) {
		t.Error("another identifier from the same seed")
	}
	seen := map[string]bool{}
	for _, id := range []string{
		string(IDFor(ctx, at)), string(IDFor(other, at)), string(IDFor(t.Context(), at)), string(IDFor(t.Context(), at)),
		string(DriverIDFor(ctx, at, 0)), string(DriverIDFor(ctx, at, 1)), string(DriverIDFor(ctx, at, 10)), string(DriverIDFor(other, at, 0)),
		KeyIDFor(ctx, at), AuditIDFor(ctx, at),
	} {
		if len(id) != 4+26 || !LooksLikeID(id) || seen[id[4:]] {
			t.Errorf("%s: not an identifier, or what follows the prefix is another's", id)
		}
		seen[id[4:]] = true
	}
	id, err := ParseID(string(IDFor(ctx, time.Now())))
	if err != nil || id < FirstID(at) || id >= FirstID(at.Add(time.Microsecond)) {
		t.Errorf("%s is not of the seed's time: %v", id, err)
	}
	for _, bad := range []Seed{"", "idm_", "idm_0", "x", "idm_!!", Seed("key_" + string(seed[4:]))} {
		bad := WithSeed(t.Context(), bad)
		if first := IDFor(bad, at); first == IDFor(bad, at) {
			t.Errorf("%q is a seed", SeedOf(bad))
		}
	}
}
