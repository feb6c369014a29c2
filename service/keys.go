package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"firsttap/dispatch"
)

// KeyStore keeps the hashes of keys.
type KeyStore interface {
	PutKey(ctx context.Context, k dispatch.Key) error
	KeyByHash(ctx context.Context, hash string) (dispatch.Key, error)
}

// Keys tells whose an admin's key is.
type Keys struct{ store KeyStore }

// NewKeys returns Keys over store.
func NewKeys(store KeyStore) *Keys { return &Keys{store: store} }

// firstKeyID names the key that the settings give.
const firstKeyID = "key_first"

// PutFirst makes key the first one, role admin, in place of the first one there was.
func (k *Keys) PutFirst(ctx context.Context, key string) error {
	return k.store.PutKey(ctx, dispatch.Key{ID: firstKeyID, Name: "FIRSTTAP_ADMIN_KEY", Role: dispatch.Admin, Hash: hashKey(key)})
}

// Holder returns whose key it is, ErrUnauthenticated, or ErrUnavailable.
func (k *Keys) Holder(ctx context.Context, key string) (dispatch.Key, error) {
	found, err := k.store.KeyByHash(ctx, hashKey(key))
	if errors.Is(err, dispatch.ErrKeyNotFound) {
		return dispatch.Key{}, ErrUnauthenticated
	}
	return found, err
}

// hashKey needs no salt and no stretching: keys are random, not chosen by people.
func hashKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}
