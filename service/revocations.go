package service

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"firsttap/dispatch"
)

// RevocationStore keeps whose tokens have ended.
type RevocationStore interface {
	Revocations(ctx context.Context) ([]dispatch.Revocation, error)
	RevokeTokens(ctx context.Context, id dispatch.DriverID) (dispatch.Revocation, error)
}

const (
	// ReadRevocations is how often an instance reads what others have revoked. A token is refused everywhere that much later
	// at most, and a stream ends when it next asks.
	ReadRevocations = 10 * time.Second
	// revocationsTimeout is what one reading may take.
	revocationsTimeout = 5 * time.Second
)

// Revocations knows which drivers' tokens have ended, all of them in memory: a tap asks nobody, and a race of drivers who were
// quiet for an hour does not either. While the database can't be read, what is known goes on to count, and what another
// instance revokes meanwhile does not count here yet. Safe for concurrent use.
type Revocations struct {
	store RevocationStore
	log   *slog.Logger
	known atomic.Pointer[map[dispatch.DriverID]dispatch.Revocation] // replaced, never written

	mu      sync.Mutex // guards the replacing, and what follows
	local   int        // how many were made here
	failing bool
	readAt  time.Time
}

// NewRevocations returns what is revoked by now. ErrUnavailable.
func NewRevocations(ctx context.Context, store RevocationStore, log *slog.Logger) (*Revocations, error) {
	r := &Revocations{store: store, log: log}
	return r, r.read(ctx)
}

// Run reads what other instances have revoked, every so often, until ctx ends.
func (r *Revocations) Run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		err := r.read(ctx)
		if ctx.Err() != nil {
			return
		}
		r.logReading(err, every)
	}
}

// logReading logs when readings begin to fail, and when they succeed again.
func (r *Revocations) logReading(err error, every time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil && !r.failing:
		r.log.Warn("the revoked tokens can't be read: what another instance revokes from now on is still taken here",
			"error", err, "next_try_in", every)
	case err == nil && r.failing:
		r.log.Info("the revoked tokens were read again")
	}
	r.failing = err != nil
}

func (r *Revocations) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, revocationsTimeout)
	defer cancel()
	r.mu.Lock()
	own := r.local
	r.mu.Unlock()
	all, err := r.store.Revocations(ctx)
	if err != nil {
		return err
	}
	known := make(map[dispatch.DriverID]dispatch.Revocation, len(all))
	for _, v := range all {
		known[v.Driver] = v
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readAt = time.Now()
	if own != r.local { // one that was made here meanwhile may not have been read
		for id, v := range *r.known.Load() {
			if known[id].Generation < v.Generation {
				known[id] = v
			}
		}
	}
	r.known.Store(&known)
	return nil
}

// Revoke ends every token that the driver was issued before, here at once. ErrDriverNotFound, ErrUnavailable, ErrUnknown.
func (r *Revocations) Revoke(ctx context.Context, id dispatch.DriverID) error {
	made, err := r.store.RevokeTokens(ctx, id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.local++
	known := maps.Clone(*r.known.Load())
	if known[id].Generation < made.Generation {
		known[id] = made
	}
	r.known.Store(&known)
	return nil
}

// isRevoked reports whether the driver's tokens of that generation were revoked.
func (r *Revocations) isRevoked(driver dispatch.DriverID, generation int) bool {
	return r != nil && generation < (*r.known.Load())[driver].Generation
}

// revokedSince reports whether the driver's tokens were revoked since they signed in elsewhere. That time has no fraction of a
// second: who signed in within the second of the revocation signs in again.
func (r *Revocations) revokedSince(driver dispatch.DriverID, signedIn time.Time) bool {
	if r == nil {
		return false
	}
	revoked, ok := (*r.known.Load())[driver]
	return ok && !signedIn.After(revoked.At.Truncate(time.Second))
}

// Age is how long ago the revocations were read.
func (r *Revocations) Age() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.readAt)
}
