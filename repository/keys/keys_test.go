package keys_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/idempotency"
	. "firsttap/repository/repositorytest"
)

func TestKeys(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		hash := func(letter string) string { return strings.Repeat(letter, 64) }
		read := func(h string, want dispatch.Key, wantErr error) {
			t.Helper()
			if got, err := db.KeyByHash(t.Context(), h); got != want || !errors.Is(err, wantErr) {
				t.Errorf("got %+v, %v; want %+v, %v", got, err, want, wantErr)
			}
		}
		read(hash("a"), dispatch.Key{}, dispatch.ErrKeyNotFound)
		key := dispatch.Key{ID: "key_1", Name: "첫째", Role: dispatch.Viewer, Hash: hash("a")}
		MustAll(t, 8, func(int) error { return db.EnsureKey(t.Context(), key) }) // several instances start at once
		read(hash("a"), key, nil)
		read(hash("b"), dispatch.Key{}, dispatch.ErrKeyNotFound)

		key = dispatch.Key{ID: "key_1", Name: "둘째", Role: dispatch.Admin, Hash: hash("b")}
		Must(t, db.EnsureKey(t.Context(), key))
		read(hash("a"), dispatch.Key{}, dispatch.ErrKeyNotFound)
		read(hash("b"), key, nil)

		db.Exec(t, "UPDATE api_keys SET revoked_at = 1")
		read(hash("b"), dispatch.Key{}, dispatch.ErrKeyNotFound)
		db.MustCount(t, 2, "api_keys") // the replaced one too
	})
}

// A secret that was replaced does not come back by an instance whose settings were forgotten: that is audited, with a fingerprint.
func TestReplacedSecretsStayReplaced(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		key := func(letter string) dispatch.Key {
			return dispatch.Key{ID: dispatch.FirstKeyID, Name: "FIRSTTAP_ADMIN_KEY", Role: dispatch.Admin, Hash: strings.Repeat(letter, 64)}
		}
		Must(t, db.EnsureKey(t.Context(), key("a")))
		Must(t, db.EnsureKey(t.Context(), key("b")))
		MustBeError(t, "the old key", db.EnsureKey(t.Context(), key("a")), dispatch.ErrOldSecret)
		MustBeError(t, "a request with the old key", ErrorOf(db.KeyByHash(t.Context(), key("a").Hash)), dispatch.ErrKeyNotFound)
		Must(t, ErrorOf(db.KeyByHash(t.Context(), key("b").Hash)))
		Must(t, db.EnsureKey(t.Context(), key("b")))
		if e := db.LastAudit(t, dispatch.AuditSecretRefuse); e.Target != dispatch.FirstKeyID || !strings.Contains(e.Detail, `"fingerprint":"aaaaaaaaaaaa"`) {
			t.Errorf("%+v", e)
		}
		for _, step := range []struct {
			fingerprint, replaced string
			err                   error
		}{
			{"one", "", nil}, {"one", "", nil}, {"two", "one", nil}, {"two", "", nil}, {"one", "", dispatch.ErrOldSecret}, {"two", "", nil}, {"three", "two", nil},
		} {
			replaced, err := db.UseSecret(t.Context(), "FIRSTTAP_JWT_SECRET", step.fingerprint)
			if replaced != step.replaced || !errors.Is(err, step.err) {
				t.Errorf("%+v: %q, %v", step, replaced, err)
			}
		}
		if e := db.LastAudit(t, dispatch.AuditSecretRefuse); e.Target != "FIRSTTAP_JWT_SECRET" || e.Detail != `{"fingerprint":"one"}` {
			t.Errorf("%+v", e)
		}
	})
}

// TestKeysAreAudited: creating, replacing and revoking a key are audited; a request that changes nothing is not.
func TestKeysAreAudited(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		first := dispatch.Key{ID: dispatch.FirstKeyID, Name: "FIRSTTAP_ADMIN_KEY", Role: dispatch.Admin, Hash: "a"}
		MustAll(t, 8, func(int) error { return db.EnsureKey(t.Context(), first) }) // several instances start at once
		first.Hash = "b"
		Must(t, db.EnsureKey(t.Context(), first))
		k, err := db.AddKey(t.Context(), dispatch.Key{ID: "key_1", Name: "둘째", Role: dispatch.Viewer, Hash: "c"})
		if err != nil || k.CreatedAt.IsZero() || k.RevokedAt != nil {
			t.Fatalf("%+v, %v", k, err)
		}
		MustAll(t, 8, func(int) error { return db.RevokeKey(t.Context(), "key_1") })
		MustBeError(t, "the first one", db.RevokeKey(t.Context(), dispatch.FirstKeyID), dispatch.ErrFirstKey)
		MustBeError(t, "none", db.RevokeKey(t.Context(), "key_2"), dispatch.ErrKeyNotFound)
		entries := db.MustAudit(t, "key.create key_first", "key.create key_first", "key.create key_1", "key.revoke key_1")
		if want := `{"name":"둘째","role":"viewer"}`; entries[0].Detail != want || entries[1].Detail != want || entries[0].Actor != dispatch.System {
			t.Errorf("%+v", entries)
		}
		keys, next, err := db.Keys.Keys(t.Context(), dispatch.Page{Limit: 1})
		if err != nil || len(keys) != 1 || keys[0].ID != dispatch.FirstKeyID || keys[0].RevokedAt != nil {
			t.Errorf("%+v, %v", keys, err)
		}
		keys, next, err = db.Keys.Keys(t.Context(), dispatch.Page{Limit: 1, Cursor: next})
		if err != nil || len(keys) != 1 || keys[0].ID != "key_1" || keys[0].RevokedAt == nil || next == "" {
			t.Errorf("then %+v, %q, %v", keys, next, err)
		}
	})
}

// A key that was derived from another secret can't be shown again.
func TestAddKeyOfAnotherSecret(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		ctx := idempotency.WithSeed(t.Context(), idempotency.NewSeed(time.Now()))
		k := dispatch.Key{ID: idempotency.KeyID(ctx, time.Now()), Name: "n", Role: dispatch.Viewer, Hash: "h"}
		Must(t, ErrorOf(db.AddKey(ctx, k)))
		k.Hash = "another"
		MustBeError(t, "a key of another secret", ErrorOf(db.AddKey(ctx, k)), idempotency.ErrKeyReused)
	})
}

// The hashes are those of the newest keys in force.
func TestHashesOfKeys(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		for _, id := range []string{"key_1", "key_2", "key_3"} {
			Must(t, ErrorOf(db.AddKey(t.Context(), dispatch.Key{ID: id, Name: id, Role: dispatch.Viewer, Hash: "hash of " + id})))
		}
		Must(t, db.RevokeKey(t.Context(), "key_3"))
		ids, err := db.KeyHashes(t.Context(), 1)
		if want := map[string]string{"hash of key_2": "key_2"}; err != nil || !maps.Equal(ids, want) {
			t.Errorf("%v, %v, want %v", ids, err, want)
		}
	})
}
