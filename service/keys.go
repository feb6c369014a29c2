package service

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"firsttap/dispatch"
	"firsttap/idempotency"
)

// KeyStore stores the hashes of keys.
type KeyStore interface {
	EnsureKey(ctx context.Context, k dispatch.Key) error
	KeyByHash(ctx context.Context, hash string) (dispatch.Key, error)
	// KeyHashes returns the identifiers of the newest keys in force, by their hashes.
	KeyHashes(ctx context.Context, most int) (map[string]string, error)
	AddKey(ctx context.Context, k dispatch.Key) (dispatch.KeyRecord, error)
}

// Keys authenticates admins' keys. Safe for concurrent use.
type Keys struct {
	store KeyStore
	cache *keyCache
}

// NewKeys returns Keys over store.
func NewKeys(store KeyStore) *Keys { return &Keys{store: store, cache: newKeyCache(store)} }

// Fingerprint names a secret without telling it.
func Fingerprint(secret string) string { return dispatch.Fingerprint(HashKey(secret)) }

// StoreFirst stores key as the first key, role admin, in place of the previous one. ErrOldSecret.
func (k *Keys) StoreFirst(ctx context.Context, key string) error {
	hash := HashKey(key)
	err := k.store.EnsureKey(ctx, dispatch.Key{ID: dispatch.FirstKeyID, Name: "FIRSTTAP_ADMIN_KEY", Role: dispatch.Admin, Hash: hash})
	if err == nil {
		k.cache.add(hash, dispatch.FirstKeyID)
	}
	return err
}

// KnownID returns the identifier of the key with that secret if the cache has the key, without a statement. The key may have been revoked.
func (k *Keys) KnownID(key string) (string, bool) { return k.cache.id(HashKey(key)) }

// Authenticate returns the key with that secret, ErrUnauthenticated, or ErrUnavailable. A key in the cache is looked up in the
// database, so that a revocation takes effect at once. For any other key it first calls may, unless may is nil. If may
// returns true, the refreshed cache decides. If may returns false, the key gets ErrTooManyFailures unless a recent cache has it.
func (k *Keys) Authenticate(ctx context.Context, key string, may func() bool) (dispatch.Key, error) {
	hash := HashKey(key)
	if !k.cache.has(hash) {
		if err := k.find(ctx, hash, may); err != nil {
			return dispatch.Key{}, err
		}
	}
	found, err := k.store.KeyByHash(ctx, hash)
	if errors.Is(err, dispatch.ErrKeyNotFound) {
		k.cache.remove(hash)
		return dispatch.Key{}, ErrUnauthenticated
	}
	return found, err
}

// find looks for a key that is not in the cache.
func (k *Keys) find(ctx context.Context, hash string, may func() bool) error {
	if may != nil && !may() {
		if err := k.cache.refreshStale(ctx); err != nil || k.cache.has(hash) {
			return err
		}
		return ErrTooManyFailures
	}
	if k.cache.isUnknown(hash) {
		return ErrUnauthenticated
	}
	if err := k.cache.refresh(ctx); err != nil {
		return err
	}
	if k.cache.has(hash) || k.cache.isTruncated() {
		return nil
	}
	k.cache.unknown.Add(hash, time.Now().Add(unknownKeyTTL))
	return ErrUnauthenticated
}

// secretPrefix starts every key, so that scanners for leaked secrets find it.
const secretPrefix = "ftk_"

// Create makes a key and returns it with its secret, which cannot be read again. by is the caller's own secret.
// ErrKeyReused, ErrUnavailable, ErrUnknown.
func (k *Keys) Create(ctx context.Context, name string, role dispatch.Role, by string) (dispatch.KeyRecord, string, error) {
	secret := newSecret(ctx, by)
	hash := HashKey(secret)
	made, err := k.store.AddKey(ctx, dispatch.Key{ID: idempotency.KeyID(ctx, time.Now()), Name: name, Role: role, Hash: hash})
	if err == nil {
		k.cache.add(hash, made.ID)
	}
	return made, secret, err
}

func newSecret(ctx context.Context, by string) string {
	return secretPrefix + base64.RawURLEncoding.EncodeToString(secretBytes(ctx, by, "firsttap api key"))
}

// secretBytes returns 32 random bytes. Those of an idempotent request are derived from the request's seed, so that a retry gets the same
// ones, from the caller's secret, as the seed is stored in plain text, and from the purpose.
func secretBytes(ctx context.Context, by, purpose string) []byte {
	raw := make([]byte, sha256.Size)
	if seed := idempotency.SeedFrom(ctx); seed != "" {
		mac := hmac.New(sha256.New, []byte(by))
		fmt.Fprintf(mac, "%s\n%s", purpose, seed)
		return mac.Sum(nil)
	}
	rand.Read(raw) // never fails: crypto/rand ends the process instead
	return raw
}

// HashKey returns what is stored of a key. It uses no salt and no stretching: keys are random or, the first one, long.
func HashKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}
