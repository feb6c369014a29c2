package idempotency

import (
	"bytes"
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

// TestSecrets: each is another one, except for the same request by the same caller, which a retry is, and for the same purpose.
func TestSecrets(t *testing.T) {
	ctx, other := WithSeed(t.Context(), NewSeed(time.Now())), WithSeed(t.Context(), NewSeed(time.Now()))
	seen := map[string]bool{}
	for _, secret := range [][]byte{
		Secret(ctx, "mine", "a key"), Secret(ctx, "yours", "a key"), Secret(ctx, "", "a key"), Secret(ctx, "mine", "a webhook"),
		Secret(other, "mine", "a key"), Secret(t.Context(), "mine", "a key"), Secret(t.Context(), "mine", "a key"),
	} {
		if seen[string(secret)] || len(secret) != 32 {
			t.Errorf("%x is known already, or too short", secret)
		}
		seen[string(secret)] = true
	}
	if !bytes.Equal(Secret(ctx, "mine", "a key"), Secret(ctx, "mine", "a key")) {
		t.Error("another secret when the request is repeated")
	}
}
