package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/idempotency"
)

const (
	// maxListed bounds the list to the newest keys in force. With more keys, every other one is looked up by itself.
	maxListed = 16384
	// listAge is how old the list may be where no fresh one is needed.
	listAge     = time.Second
	listTimeout = 5 * time.Second
)

// KeyStore stores the hashes of keys.
type KeyStore interface {
	KeyByHash(ctx context.Context, hash string) (dispatch.Key, error)
	// KeyHashes returns the identifiers of the newest keys in force, by their hashes.
	KeyHashes(ctx context.Context, most int) (map[string]string, error)
	AddKey(ctx context.Context, k dispatch.Key) (dispatch.KeyRecord, error)
}

// Keys authenticates admins' keys. It lists the keys that were lately in force, so that most invented keys cost no statement and valid
// keys do not wait behind them. The list is read as a whole, one read at a time, which takes one connection of the readers at most. Safe
// for concurrent use.
type Keys struct {
	store KeyStore
	most  int // maxListed but in a test

	mu        sync.RWMutex
	ids       map[string]string // by hash; nil before the first list. A key in it may have been revoked since.
	truncated bool              // there are more keys in force

	reading chan struct{} // held by a reader
	readAt  time.Time     // when the last read began; needs reading
	err     error         // of the last read; needs reading
}

// NewKeys returns Keys over store.
func NewKeys(store KeyStore) *Keys {
	return &Keys{store: store, most: maxListed, reading: make(chan struct{}, 1)}
}

// KnownID returns the identifier of the key with that secret if the list has it, without a statement. The key may have been revoked.
func (k *Keys) KnownID(secret string) (string, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	id, ok := k.ids[HashKey(secret)]
	return id, ok
}

// Authenticate returns the key with that secret, ErrUnauthenticated, or ErrUnavailable. A key in the list is looked up, so that a
// revocation takes effect at once. Of any other key a list decides that is read after the call or, unless it must be fresh, is a second
// old at most.
func (k *Keys) Authenticate(ctx context.Context, secret string, fresh bool) (dispatch.Key, error) {
	if _, known := k.KnownID(secret); !known {
		if err := k.refresh(ctx, fresh); err != nil {
			return dispatch.Key{}, err
		}
		if _, known = k.KnownID(secret); !known && (!fresh || !k.isTruncated()) {
			return dispatch.Key{}, ErrUnauthenticated
		}
	}
	hash := HashKey(secret)
	found, err := k.store.KeyByHash(ctx, hash)
	if errors.Is(err, dispatch.ErrKeyNotFound) {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.ids, hash)
		return dispatch.Key{}, ErrUnauthenticated
	}
	return found, err
}

func (k *Keys) isTruncated() bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.truncated
}

func (k *Keys) hasList() bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.ids != nil
}

// refresh reads the list, unless a read has begun after the call or, where no fresh list is needed, within listAge. It waits for another
// caller's read only for a fresh list, and for the first one. ErrUnavailable.
func (k *Keys) refresh(ctx context.Context, fresh bool) error {
	since := time.Now()
	if !fresh {
		since = since.Add(-listAge)
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	select {
	case k.reading <- struct{}{}:
	default:
		if !fresh && k.hasList() {
			return nil
		}
		select {
		case k.reading <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("%w: another read of the keys is under way: %w", dispatch.ErrUnavailable, ctx.Err())
		}
	}
	defer func() { <-k.reading }()
	if !k.readAt.After(since) {
		k.readAt = time.Now()
		k.err = k.read(ctx)
	}
	return k.err
}

func (k *Keys) read(ctx context.Context) error {
	// Other callers wait for the answer too: it must not end with this one.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listTimeout)
	defer cancel()
	ids, err := k.store.KeyHashes(ctx, k.most)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ids, k.truncated = ids, len(ids) >= k.most
	return nil
}

// secretPrefix starts every key, so that scanners for leaked secrets find it.
const secretPrefix = "ftk_"

// Create makes a key and returns it with its secret, which cannot be read again. by is the caller's own secret.
// ErrKeyReused, ErrUnavailable, ErrUnknown.
func (k *Keys) Create(ctx context.Context, name string, role dispatch.Role, by string) (dispatch.KeyRecord, string, error) {
	secret := newSecret(ctx, by)
	made, err := k.store.AddKey(ctx, dispatch.Key{ID: idempotency.KeyID(ctx, time.Now()), Name: name, Role: role, Hash: HashKey(secret)})
	return made, secret, err
}

func newSecret(ctx context.Context, by string) string {
	return secretPrefix + base64.RawURLEncoding.EncodeToString(idempotency.Secret(ctx, by, "firsttap api key"))
}

// FirstKey is the key that an instance puts in force at its start, role admin.
func FirstKey(secret string) dispatch.Key {
	return dispatch.Key{ID: dispatch.FirstKeyID, Name: "FIRSTTAP_ADMIN_KEY", Role: dispatch.Admin, Hash: HashKey(secret)}
}

// HashKey returns what is stored of a key. It uses no salt and no stretching: keys are random or, the first one, long.
func HashKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// Fingerprint names a secret without telling it.
func Fingerprint(secret string) string { return dispatch.Fingerprint(HashKey(secret)) }
