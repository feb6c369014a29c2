package auth

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"firsttap/dispatch"
)

// RevocationStore stores which drivers' tokens are revoked.
type RevocationStore interface {
	Revocations(ctx context.Context) ([]dispatch.Revocation, error)
	RevokeTokens(ctx context.Context, id dispatch.DriverID) (dispatch.Revocation, error)
}

const (
	// RevocationsInterval is how often an instance reads the revocations of others, and so the longest time until a revoked token
	// is refused everywhere. A live stream ends at its next check.
	RevocationsInterval = 10 * time.Second
	revocationsTimeout  = 5 * time.Second
)

// Revocations has every revocation in memory, so that checking a token costs no query. While the database is unavailable,
// known revocations stay in force and those of other instances are not known yet. Safe for concurrent use.
type Revocations struct {
	store RevocationStore
	log   *slog.Logger
	known atomic.Pointer[map[dispatch.DriverID]dispatch.Revocation] // replaced, never written

	mu      sync.Mutex // guards replacing known, and the fields below
	local   int        // how many revocations were made here
	failing bool
	readAt  time.Time
}

// NewRevocations reads the revocations from store. ErrUnavailable.
func NewRevocations(ctx context.Context, store RevocationStore, log *slog.Logger) (*Revocations, error) {
	r := &Revocations{store: store, log: log}
	return r, r.read(ctx)
}

// Run reads the revocations of other instances at that interval, until ctx ends.
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

// logReading logs the first reading that fails and the first that succeeds again.
func (r *Revocations) logReading(err error, every time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil && !r.failing:
		r.log.Warn("revocations not read; this instance accepts tokens that other instances revoke until a read succeeds",
			"error", err, "next_try_in", every)
	case err == nil && r.failing:
		r.log.Info("revoked tokens are read again")
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
	if own != r.local { // a revocation made here meanwhile may be missing
		for id, v := range *r.known.Load() {
			if known[id].Generation < v.Generation {
				known[id] = v
			}
		}
	}
	r.known.Store(&known)
	return nil
}

// Revoke revokes every token that the driver has, on this instance at once. ErrDriverNotFound, ErrUnavailable, ErrUnknown.
func (r *Revocations) Revoke(ctx context.Context, id dispatch.DriverID) error {
	made, err := r.store.RevokeTokens(ctx, id)
	if err == nil {
		r.Learn(made)
	}
	return err
}

// Learn makes this instance refuse the tokens that a stored revocation ends, without waiting for its next reading.
func (r *Revocations) Learn(made dispatch.Revocation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.local++
	known := maps.Clone(*r.known.Load())
	if known[made.Driver].Generation < made.Generation {
		known[made.Driver] = made
	}
	r.known.Store(&known)
}

// isRevoked reports whether the driver's tokens of that generation are revoked.
func (r *Revocations) isRevoked(driver dispatch.DriverID, generation int) bool {
	return generation < (*r.known.Load())[driver].Generation
}

// revokedSince reports whether the driver's tokens were revoked after the driver signed in elsewhere. That time is in whole
// seconds, so a sign-in in the second of the revocation counts as earlier.
func (r *Revocations) revokedSince(driver dispatch.DriverID, signedIn time.Time) bool {
	revoked, ok := (*r.known.Load())[driver]
	return ok && !signedIn.After(revoked.At.Truncate(time.Second))
}

// Age returns the time since the last successful reading.
func (r *Revocations) Age() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.readAt)
}
