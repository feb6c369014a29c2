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
	// keysInBook bounds the book. Of more keys the newest are in it, and any other is looked for by itself.
	keysInBook = 16384
	// unknownKeys is how many keys are remembered to be none, for unknownTime each. One that is made meanwhile is random, so
	// nobody has asked for it before; the first one, which may have any form, is taken out of them when it is put.
	unknownKeys = 4096
	unknownTime = 5 * time.Second
	// glanceEvery is how often the book is read for those who are not let look, all together.
	glanceEvery = time.Second
	// lookTime is what reading the book may take.
	lookTime = 5 * time.Second
)

// keyBook knows the hashes of the keys in force as they were lately, so that most invented keys are found out without a
// statement, and nobody who has a key waits behind those who have none. It reads them all at once, one read at a time, on
// a connection of its own. It proves nothing: a key that is in it may be revoked by now.
type keyBook struct {
	store   KeyStore
	most    int // keysInBook but in a test
	unknown *lru.Cache[string, time.Time]
	mu      sync.RWMutex
	hashes  map[string]struct{}
	known   bool // it was read
	full    bool // there are keys that are not in it
	// reading holds one who reads, or puts something in that a reader might not have seen.
	reading chan struct{}
	tried   time.Time // when the last read began; of reading
	read    time.Time // when the last one began that succeeded; of reading
}

func newKeyBook(store KeyStore) *keyBook {
	unknown, err := lru.New[string, time.Time](unknownKeys)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &keyBook{store: store, most: keysInBook, unknown: unknown, hashes: map[string]struct{}{}, reading: make(chan struct{}, 1)}
}

func (b *keyBook) has(hash string) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	_, ok := b.hashes[hash]
	return ok
}

// none reports whether the book was never read.
func (b *keyBook) none() bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return !b.known
}

// some reports whether there are keys in force that are not in the book.
func (b *keyBook) some() bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.full
}

// isNone reports whether the book was asked for the key lately, and did not have it.
func (b *keyBook) isNone(hash string) bool {
	until, ok := b.unknown.Get(hash)
	return ok && time.Now().Before(until)
}

// add puts in a key that was made here. It is told once the key is committed.
func (b *keyBook) add(hash string) {
	b.reading <- struct{}{} // or who reads meanwhile would take it out again
	defer func() { <-b.reading }()
	b.unknown.Remove(hash)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hashes[hash] = struct{}{}
}

// remove takes out a key that is not in force any more.
func (b *keyBook) remove(hash string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.hashes, hash)
}

// look has the book be one of after this call began. Of many who look, one reads for all that came before it does.
// ErrUnavailable.
func (b *keyBook) look(ctx context.Context) error {
	came := time.Now()
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	select {
	case b.reading <- struct{}{}:
		defer func() { <-b.reading }()
	case <-ctx.Done():
		return fmt.Errorf("%w: the keys are being read: %w", dispatch.ErrUnavailable, ctx.Err())
	}
	if b.read.After(came) {
		return nil
	}
	return b.load(ctx)
}

// glance has the book be one of the last second, unless somebody reads it at the moment. Nobody waits for that but at the
// start, when there is none yet. ErrUnavailable.
func (b *keyBook) glance(ctx context.Context) error {
	if b.none() {
		return b.look(ctx)
	}
	select {
	case b.reading <- struct{}{}:
		defer func() { <-b.reading }()
	default:
		return nil
	}
	if time.Since(b.tried) < glanceEvery {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	return b.load(ctx)
}

// load reads the book. The caller holds reading.
func (b *keyBook) load(ctx context.Context) error {
	b.tried = time.Now()
	// Others wait for the answer too: it does not end with the request that asks.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
	defer cancel()
	all, err := b.store.KeyHashes(ctx, b.most)
	if err != nil {
		return err
	}
	b.read = b.tried
	hashes := make(map[string]struct{}, len(all))
	for _, hash := range all {
		hashes[hash] = struct{}{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hashes, b.known, b.full = hashes, true, len(all) >= b.most
	return nil
}
