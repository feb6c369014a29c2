package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/idempotency"
)

func TestOnlyTheHashOfAKeyIsStored(t *testing.T) {
	p := newPlace(t)
	keys := NewKeys(p.Keys)
	const plain = "a-key-that-nobody-must-read"
	must(t, keys.StoreFirst(t.Context(), plain))
	var id, name, role, hash, path string
	err := p.raw.QueryRowContext(t.Context(), "SELECT id, name, role, hash FROM api_keys").Scan(&id, &name, &role, &hash)
	must(t, err)
	sum := sha256.Sum256([]byte(plain))
	if hash != hex.EncodeToString(sum[:]) || role != "admin" || !strings.HasPrefix(id, "key_") {
		t.Errorf("stored as %s, %s, %s, %s", id, name, role, hash)
	}
	must(t, p.raw.QueryRowContext(t.Context(), "SELECT file FROM pragma_database_list").Scan(&path))
	for _, suffix := range []string{"", "-wal"} {
		raw, err := os.ReadFile(path + suffix)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), plain) {
			t.Errorf("the key itself is in the database%s", suffix)
		}
	}
}

func TestKeys(t *testing.T) {
	p := newPlace(t)
	keys := NewKeys(p.Keys)
	known := func(key string) bool {
		t.Helper()
		k, err := keys.Authenticate(t.Context(), key, nil)
		if err == nil && (k.Role != dispatch.Admin || k.ID != dispatch.FirstKeyID) {
			t.Errorf("%q is %+v", key, k)
		}
		if err != nil && !errors.Is(err, ErrUnauthenticated) {
			t.Error(err)
		}
		return err == nil
	}
	for _, key := range []string{"one", "two", "two", "three"} { // a restart with the same key changes nothing
		must(t, keys.StoreFirst(t.Context(), key))
		for _, other := range []string{"one", "two", "three"} {
			if known(other) != (other == key) {
				t.Errorf("after %q is the first key, %q is good: %v", key, other, other != key)
			}
		}
	}
	for _, bad := range []string{"", " three", "Three", "three\n", HashKey("three"), strings.Repeat("x", 1<<16), "\xff", "' OR 1=1 --"} {
		if known(bad) {
			t.Errorf("%.20q is a key", bad)
		}
	}
	p.exec("UPDATE api_keys SET revoked_at = 1")
	if known("three") {
		t.Error("a revoked key is good")
	}
	must(t, p.db.Close())
	if _, err := keys.Authenticate(t.Context(), "three", nil); !errors.Is(err, dispatch.ErrUnavailable) || errors.Is(err, ErrUnauthenticated) {
		t.Errorf("without a database: %v", err)
	}
}

// A key is random. That of an idempotent request is derived from the seed and the caller's secret, so that the seed alone does
// not reveal it.
func TestFormatOfAKey(t *testing.T) {
	ctx := idempotency.WithSeed(t.Context(), idempotency.NewSeed(time.Now()))
	if first := newSecret(ctx, "mine"); first != newSecret(ctx, "mine") {
		t.Error("another key when it is made again")
	}
	other := idempotency.WithSeed(t.Context(), idempotency.NewSeed(time.Now()))
	seen := map[string]bool{}
	for _, s := range []string{
		newSecret(ctx, "mine"), newSecret(ctx, "yours"), newSecret(ctx, ""), newSecret(other, "mine"),
		newSecret(t.Context(), "mine"), newSecret(t.Context(), "mine"),
	} {
		if seen[s] || len(s) != len(secretPrefix)+43 {
			t.Errorf("%s is known already, or too short", s)
		}
		seen[s] = true
	}
}

// heldKeys holds each read of all keys until it is released.
type heldKeys struct {
	KeyStore
	reads            atomic.Int32
	reached, release chan struct{}
}

func (s *heldKeys) KeyHashes(ctx context.Context, most int) (map[string]string, error) {
	s.reads.Add(1)
	s.reached <- struct{}{}
	<-s.release
	return s.KeyStore.KeyHashes(ctx, most)
}

// While a request with an invalid key reads the keys, another one waits, and gives up with its context: invalid keys take one connection.
func TestManyInvalidKeysTakeOneConnection(t *testing.T) {
	p := newPlace(t)
	store := &heldKeys{KeyStore: p.Keys, reached: make(chan struct{}, 2), release: make(chan struct{})}
	keys := NewKeys(store)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- errorOf(keys.Authenticate(t.Context(), "nobody's", nil)) }()
	<-store.reached
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	go func() { second <- errorOf(keys.Authenticate(ctx, "another's", nil)) }()
	select {
	case <-store.reached:
		t.Error("two requests read at the same time")
	case err := <-second:
		mustBe(t, err, dispatch.ErrUnavailable)
	}
	close(store.release)
	mustBe(t, <-first, ErrUnauthenticated)
	if n := store.reads.Load(); n != 1 {
		t.Errorf("the keys were read %d times", n)
	}
}
