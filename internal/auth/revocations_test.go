//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package auth

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	. "firsttap/repository/repositorytest"
)

// revoked is a RevocationStore for tests.
type revoked struct {
	mu      sync.Mutex // for changes during a reading
	all     []dispatch.Revocation
	err     error
	reads   int
	reading func() // runs during each reading, if not nil
}

func (r *revoked) Revocations(context.Context) ([]dispatch.Revocation, error) {
	r.mu.Lock()
	r.reads++
	all, err := r.all, r.err
	r.mu.Unlock()
	if r.reading != nil {
		r.reading()
	}
	return all, err
}

func (r *revoked) RevokeTokens(_ context.Context, id dispatch.DriverID) (dispatch.Revocation, error) {
	v := dispatch.Revocation{Driver: id, Generation: 1, At: fixed}
	for _, before := range r.all {
		if before.Driver == id {
			v.Generation = max(v.Generation, before.Generation+1)
		}
	}
	r.all = append(r.all, v)
	return v, r.err
}

func (r *revoked) set(err error, all ...dispatch.Revocation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all, r.err = all, err
}

// heeding returns Tokens that heed the revocations in the store.
func heeding(t *testing.T, store RevocationStore, o TokenOptions) (*Tokens, *Revocations) {
	t.Helper()
	r, err := NewRevocations(t.Context(), store, Quiet)
	Must(t, err)
	o.Revocations = r
	return newTokens(t, o), r
}

func issued(t *testing.T, tokens *Tokens, generation int) string {
	t.Helper()
	token, _, err := tokens.Issue(driver, generation)
	Must(t, err)
	return token
}

// TestGenerations: generations decide, not clocks. Tokens without one are revoked too.
func TestGenerations(t *testing.T) {
	c := &clock{fixed}
	tokens, r := heeding(t, &revoked{}, TokenOptions{Now: c.now})
	plain, first := with(nil), issued(t, tokens, 0)
	tokens.mustAccept(t, plain, driver)
	tokens.mustAccept(t, first, driver)
	Must(t, r.Revoke(t.Context(), driver))
	for _, step := range []time.Duration{-time.Minute, 0, time.Minute} { // the clock is set back, stands, goes on
		c.Time = fixed.Add(step)
		fresh := issued(t, tokens, 1)
		c.Time = fixed
		tokens.mustAccept(t, plain, "")
		tokens.mustAccept(t, first, "")
		tokens.mustAccept(t, issued(t, tokens, 0), "")            // issued now, of the first generation
		tokens.mustAccept(t, with(map[string]any{"gen": -1}), "") // made by hand
		if step <= 0 {
			tokens.mustAccept(t, fresh, driver)
		}
		tokens.mustAccept(t, issued(t, tokens, 2), driver) // of a generation that is not known here yet
	}
	for _, gen := range []any{"1", 1.5, 1e300} {
		tokens.mustAccept(t, with(map[string]any{"gen": gen}), "")
	}
	another := "drv_" + strings.Repeat("2", 26)
	tokens.mustAccept(t, with(map[string]any{"sub": another}), dispatch.DriverID(another))
}

// TestRevokedElsewhere: other instances' revocations take effect at the next reading, which is one query for all drivers.
// While readings fail, known revocations count, and one warning is logged.
func TestRevokedElsewhere(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		store := &revoked{all: []dispatch.Revocation{{Driver: driver, Generation: 3}}}
		tokens, r := heeding(t, store, TokenOptions{Now: time.Now})
		log := &testkit.LogBuffer{}
		r.log = slog.New(slog.NewTextHandler(log, nil))
		testkit.Run(t, func(ctx context.Context) { r.Run(ctx, RevocationsInterval) })
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		third, second := issued(t, tokens, 3), issued(t, tokens, 2)
		pass(time.Millisecond)           // after the reading of each interval
		tokens.mustAccept(t, second, "") // of before, at the start
		for range 100 {
			tokens.mustAccept(t, third, driver)
		}
		store.set(nil, dispatch.Revocation{Driver: driver, Generation: 4})
		pass(RevocationsInterval)
		tokens.mustAccept(t, third, "") // revoked elsewhere
		testkit.Equal(t, "readings", 2, store.reads)
		store.set(dispatch.ErrUnavailable)
		pass(3 * RevocationsInterval)
		tokens.mustAccept(t, third, "") // revoked, during an outage
		if age := r.Age(); age < 3*RevocationsInterval {
			t.Errorf("read %s ago", age)
		}
		testkit.Equal(t, "warnings", 1, log.Count("level=WARN"))
		// A database that was restored from a backup issues tokens of an earlier generation.
		store.set(nil, dispatch.Revocation{Driver: driver, Generation: 3})
		pass(RevocationsInterval)
		tokens.mustAccept(t, third, driver) // good again, as the database is an older one
		testkit.Equal(t, "lines that say that it is over", 1, log.Count("level=INFO"))
	})
}

// TestRevokedWhileReading: a reading that started earlier does not undo a revocation.
func TestRevokedWhileReading(t *testing.T) {
	store := &revoked{}
	tokens, r := heeding(t, store, TokenOptions{})
	old := issued(t, tokens, 0)
	store.reading = func() { Must(t, r.Revoke(t.Context(), driver)) }
	Must(t, r.read(t.Context()))
	tokens.mustAccept(t, old, "")
	store.reading = nil
	Must(t, r.read(t.Context()))
	tokens.mustAccept(t, old, "") // when the revocation has been read
}

// TestRevocationsWithoutADatabase: none is made, and without a first reading there are no Revocations.
func TestRevocationsWithoutADatabase(t *testing.T) {
	away := &revoked{err: dispatch.ErrUnavailable}
	MustBeError(t, "the start", ErrorOf(NewRevocations(t.Context(), away, Quiet)), dispatch.ErrUnavailable)
	tokens, r := heeding(t, &revoked{}, TokenOptions{})
	r.store = away
	MustBeError(t, "a revocation", r.Revoke(t.Context(), driver), dispatch.ErrUnavailable)
	tokens.mustAccept(t, issued(t, tokens, 0), driver)
}

// TestRevocationsAtOnce: concurrent revocations and readings lose none.
func TestRevocationsAtOnce(t *testing.T) {
	db := Pooled(t, "sqlite")
	all := db.Fleet(t, 20)
	r, err := NewRevocations(t.Context(), db, Quiet)
	Must(t, err)
	testkit.Together(2*len(all), func(k int) {
		if k%2 == 1 {
			MustBeError(t, "a reading", r.read(t.Context()), nil)
			return
		}
		MustBeError(t, "a revocation", r.Revoke(t.Context(), all[k/2].ID), nil)
	})
	for _, v := range all {
		if !r.isRevoked(v.ID, 0) || r.isRevoked(v.ID, 1) {
			t.Errorf("%s is not revoked once", v.ID)
		}
	}
}
