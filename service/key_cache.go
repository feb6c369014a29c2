package service

import (
	"context"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"firsttap/dispatch"
)

const (
	// maxCachedKeys bounds the book. Of more keys the newest are in it, and any other is looked for by itself.
	maxCachedKeys = 16384
	// maxUnknownKeys is how many keys are remembered to be none, for unknownTime each. One that is made meanwhile is random, so
	// nobody has asked for it before; the first one, which may have any form, is taken out of them when it is put.
	maxUnknownKeys = 4096
	unknownKeyTTL  = 5 * time.Second
	// refreshInterval is how often the book is read for those who are not let look, all together.
	refreshInterval = time.Second
	// refreshTimeout is what reading the book may take.
	refreshTimeout = 5 * time.Second
)

// keyCache knows the hashes of the keys in force as they were lately, so that most invented keys are found out without a
// statement, and nobody who has a key waits behind those who have none. It reads them all at once, one read at a time, on
// a connection of its own. It proves nothing: a key that is in it may be revoked by now.
type keyCache struct {
	store     KeyStore
	limit     int // keysInBook but in a test
	unknown   *lru.Cache[string, time.Time]
	mu        sync.RWMutex
	hashes    map[string]struct{}
	loaded    bool // it was read
	truncated bool // there are keys that are not in it
	// loading holds one who reads, or puts something in that a reader might not have seen.
	loading     chan struct{}
	attemptedAt time.Time // when the last read began; of reading
	loadedAt    time.Time // when the last one began that succeeded; of reading
}

func newKeyCache(store KeyStore) *keyCache {
	unknown, err := lru.New[string, time.Time](maxUnknownKeys)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &keyCache{store: store, limit: maxCachedKeys, unknown: unknown, hashes: map[string]struct{}{}, loading: make(chan struct{}, 1)}
}

func (b *keyCache) has(hash string) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	_, ok := b.hashes[hash]
	return ok
}

// isEmpty reports whether the book was never read.
func (b *keyCache) isEmpty() bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return !b.loaded
}

// isTruncated reports whether there are keys in force that are not in the book.
func (b *keyCache) isTruncated() bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.truncated
}

// isUnknown reports whether the book was asked for the key lately, and did not have it.
func (b *keyCache) isUnknown(hash string) bool {
	until, ok := b.unknown.Get(hash)
	return ok && time.Now().Before(until)
}

// add puts in a key that was made here. It is told once the key is committed.
func (b *keyCache) add(hash string) {
	b.loading <- struct{}{} // or who reads meanwhile would take it out again
	defer func() { <-b.loading }()
	b.unknown.Remove(hash)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hashes[hash] = struct{}{}
}

// remove takes out a key that is not in force any more.
func (b *keyCache) remove(hash string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.hashes, hash)
}

// refresh has the book be one of after this call began. Of many who look, one reads for all that came before it does.
// ErrUnavailable.
func (b *keyCache) refresh(ctx context.Context) error {
	came := time.Now()
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	select {
	case b.loading <- struct{}{}:
		defer func() { <-b.loading }()
	case <-ctx.Done():
		return fmt.Errorf("%w: the keys are being read: %w", dispatch.ErrUnavailable, ctx.Err())
	}
	if b.loadedAt.After(came) {
		return nil
	}
	return b.load(ctx)
}

// refreshStale has the book be one of the last second, unless somebody reads it at the moment. Nobody waits for that but at the
// start, when there is none yet. ErrUnavailable.
func (b *keyCache) refreshStale(ctx context.Context) error {
	if b.isEmpty() {
		return b.refresh(ctx)
	}
	select {
	case b.loading <- struct{}{}:
		defer func() { <-b.loading }()
	default:
		return nil
	}
	if time.Since(b.attemptedAt) < refreshInterval {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	return b.load(ctx)
}

// load reads the book. The caller holds reading.
func (b *keyCache) load(ctx context.Context) error {
	b.attemptedAt = time.Now()
	// Others wait for the answer too: it does not end with the request that asks.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTimeout)
	defer cancel()
	all, err := b.store.KeyHashes(ctx, b.limit)
	if err != nil {
		return err
	}
	b.loadedAt = b.attemptedAt
	hashes := make(map[string]struct{}, len(all))
	for _, hash := range all {
		hashes[hash] = struct{}{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hashes, b.loaded, b.truncated = hashes, true, len(all) >= b.limit
	return nil
}
