package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	. "firsttap/repository/repositorytest"
)

func TestOnlyTheHashOfAKeyIsStored(t *testing.T) {
	db := Pooled(t, "sqlite")
	const plain = "a-key-that-nobody-must-read"
	Must(t, db.EnsureKey(t.Context(), FirstKey(plain)))
	sum := sha256.Sum256([]byte(plain))
	db.MustCount(t, 1, "api_keys WHERE role = 'admin' AND hash = ?", hex.EncodeToString(sum[:]))
	for _, suffix := range []string{"", "-wal"} {
		raw, err := os.ReadFile(strings.TrimPrefix(db.URL, "sqlite://") + suffix)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), plain) {
			t.Errorf("the key itself is in the database%s", suffix)
		}
	}
}

// TestKeys: a key is good to the letter until it is revoked, also one that was asked for before it was there.
func TestKeys(t *testing.T) {
	db := Pooled(t, "sqlite")
	keys := NewKeys(db)
	refuse := func(secret string) {
		t.Helper()
		MustBeError(t, secret, ErrorOf(keys.Authenticate(t.Context(), secret, true)), ErrUnauthenticated)
	}
	refuse("three")
	Must(t, db.EnsureKey(t.Context(), FirstKey("three")))
	if k, err := keys.Authenticate(t.Context(), "three", true); err != nil || k.Role != dispatch.Admin || k.ID != dispatch.FirstKeyID {
		t.Errorf("%+v, %v", k, err)
	}
	for _, bad := range []string{"", " three", "Three", "three\n", HashKey("three"), strings.Repeat("x", 1<<16), "\xff", "' OR 1=1 --"} {
		refuse(bad)
	}
	db.Exec(t, "UPDATE api_keys SET revoked_at = 1")
	refuse("three")
	Must(t, db.Close())
	MustBeError(t, "without a database", ErrorOf(keys.Authenticate(t.Context(), "three", true)), dispatch.ErrUnavailable)
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
// One that needs no fresh list is answered at once.
func TestManyInvalidKeysTakeOneConnection(t *testing.T) {
	store := &heldKeys{KeyStore: Pooled(t, "sqlite"), reached: make(chan struct{}, 9), release: make(chan struct{}, 9)}
	keys := NewKeys(store)
	store.release <- struct{}{}
	MustBeError(t, "the first list", ErrorOf(keys.Authenticate(t.Context(), "nobody's", false)), ErrUnauthenticated)
	<-store.reached
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- ErrorOf(keys.Authenticate(t.Context(), "nobody's", true)) }()
	<-store.reached
	MustBeError(t, "an old list will do", ErrorOf(keys.Authenticate(t.Context(), "a third's", false)), ErrUnauthenticated)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	go func() { second <- ErrorOf(keys.Authenticate(ctx, "another's", true)) }()
	select {
	case <-store.reached:
		t.Error("two requests read at the same time")
	case err := <-second:
		MustBeError(t, "the second", err, dispatch.ErrUnavailable)
	}
	close(store.release)
	MustBeError(t, "the first", <-first, ErrUnauthenticated)
	testkit.Equal(t, "reads", 2, store.reads.Load())
}

// apiKey stores a viewer's key, and returns the key.
func apiKey(t *testing.T, db *Bench, name string) string {
	t.Helper()
	_, secret, err := NewKeys(db).Create(t.Context(), name, dispatch.Viewer, "")
	Must(t, err)
	if !strings.HasPrefix(secret, "ftk_") || len(secret) != 4+43 {
		t.Errorf("the secret is %s", secret)
	}
	return secret
}

// slowKeys has viewers' keys by their hashes, and lists them when it is released.
type slowKeys struct {
	KeyStore
	ids     map[string]string
	release chan struct{}
}

func (s *slowKeys) KeyHashes(context.Context, int) (map[string]string, error) {
	<-s.release
	return s.ids, nil
}

func (s *slowKeys) KeyByHash(_ context.Context, hash string) (dispatch.Key, error) {
	return dispatch.Key{ID: s.ids[hash]}, nil
}

// TestManyNewKeysAtTheStart: an instance without a list accepts any number of valid keys at once, even when too many sign-ins have failed.
func TestManyNewKeysAtTheStart(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		store := &slowKeys{ids: map[string]string{}, release: make(chan struct{})}
		keys := NewKeys(store)
		for i := range 60 {
			store.ids[HashKey(fmt.Sprint(i))] = fmt.Sprint("key_", i)
		}
		for i := range 60 {
			go func() {
				MustBeError(t, "a valid key", ErrorOf(keys.Authenticate(t.Context(), fmt.Sprint(i), false)), nil)
			}()
		}
		synctest.Wait()
		close(store.release)
		synctest.Wait()
	})
}

// TestMoreKeysThanTheListHas: keys beyond the list are found too.
func TestMoreKeysThanTheListHas(t *testing.T) {
	db := Pooled(t, "sqlite")
	first := apiKey(t, db, "the oldest")
	for range 5 {
		apiKey(t, db, "a newer one")
	}
	fresh := NewKeys(db)
	fresh.most = 3
	if k, err := fresh.Authenticate(t.Context(), first, true); err != nil || k.Name != "the oldest" {
		t.Errorf("%+v, %v", k, err)
	}
	testkit.Equal(t, "keys in the list", 3, len(fresh.ids))
	MustBeError(t, "an unknown key", ErrorOf(fresh.Authenticate(t.Context(), "nobody's", true)), ErrUnauthenticated)
}
