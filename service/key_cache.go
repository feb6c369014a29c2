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
	// maxCachedKeys bounds the cache to the newest keys. With more keys, every other one is looked up by itself.
	maxCachedKeys = 16384
	// maxUnknownKeys bounds the invalid keys that are remembered, for unknownKeyTTL each. A key made meanwhile is random, so it
	// is not among them; add removes the first key, which may have any form.
	maxUnknownKeys = 4096
	unknownKeyTTL  = 5 * time.Second
	// refreshInterval bounds how often refreshStale reads the keys, for all its callers together.
	refreshInterval = time.Second
	refreshTimeout  = 5 * time.Second
)

// keyCache has the hashes and identifiers of the keys that were recently in force, so that most invented keys cost no query and valid keys
// do not wait behind them. It reads all hashes at once, one read at a time, on a connection of its own. A key in the cache
// may have been revoked since.
type keyCache struct {
	store     KeyStore
	limit     int // maxCachedKeys but in a test
	unknown   *lru.Cache[string, time.Time]
	mu        sync.RWMutex
	ids       map[string]string // by hash
	loaded    bool
	truncated bool // there are more keys in force
	// loading is held by a reader, and by add.
	loading     chan struct{}
	attemptedAt time.Time // when the last read began; needs loading
	loadedAt    time.Time // when the last successful read began; needs loading
}

func newKeyCache(store KeyStore) *keyCache {
	unknown, err := lru.New[string, time.Time](maxUnknownKeys)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &keyCache{store: store, limit: maxCachedKeys, unknown: unknown, ids: map[string]string{}, loading: make(chan struct{}, 1)}
}

func (c *keyCache) has(hash string) bool {
	_, ok := c.id(hash)
	return ok
}

func (c *keyCache) id(hash string) (string, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	id, ok := c.ids[hash]
	return id, ok
}

// isEmpty reports whether no read has succeeded.
func (c *keyCache) isEmpty() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return !c.loaded
}

func (c *keyCache) isTruncated() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.truncated
}

// isUnknown reports whether a recent read did not have the key.
func (c *keyCache) isUnknown(hash string) bool {
	until, ok := c.unknown.Get(hash)
	return ok && time.Now().Before(until)
}

// add adds a key that this instance has committed.
func (c *keyCache) add(hash, id string) {
	c.loading <- struct{}{} // a read under way would drop the key again
	defer func() { <-c.loading }()
	c.unknown.Remove(hash)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids[hash] = id
}

func (c *keyCache) remove(hash string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ids, hash)
}

// refresh makes the cache at least as new as the call. Concurrent calls share a read. ErrUnavailable.
func (c *keyCache) refresh(ctx context.Context) error {
	came := time.Now()
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	select {
	case c.loading <- struct{}{}:
		defer func() { <-c.loading }()
	case <-ctx.Done():
		return fmt.Errorf("%w: another read of the keys is under way: %w", dispatch.ErrUnavailable, ctx.Err())
	}
	if c.loadedAt.After(came) {
		return nil
	}
	return c.load(ctx)
}

// refreshStale refreshes a cache that is older than refreshInterval, unless a read is under way. It waits for another's read
// only while the cache is empty. ErrUnavailable.
func (c *keyCache) refreshStale(ctx context.Context) error {
	if c.isEmpty() {
		return c.refresh(ctx)
	}
	select {
	case c.loading <- struct{}{}:
		defer func() { <-c.loading }()
	default:
		return nil
	}
	if time.Since(c.attemptedAt) < refreshInterval {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	return c.load(ctx)
}

// load reads the keys. It needs loading.
func (c *keyCache) load(ctx context.Context) error {
	c.attemptedAt = time.Now()
	// Other requests wait for the answer too: it must not end with this one.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTimeout)
	defer cancel()
	all, err := c.store.KeyHashes(ctx, c.limit)
	if err != nil {
		return err
	}
	c.loadedAt = c.attemptedAt
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids, c.loaded, c.truncated = all, true, len(all) >= c.limit
	return nil
}
