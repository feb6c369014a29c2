package service

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
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
	r, err := NewRevocations(t.Context(), store, quiet)
	must(t, err)
	o.Revocations = r
	return newTokens(o), r
}

func issued(t *testing.T, tokens *Tokens, generation int) string {
	t.Helper()
	token, _, err := tokens.Issue(driver, generation)
	must(t, err)
	return token
}

// TestGenerations: generations decide, not clocks. Tokens without one are revoked too.
func TestGenerations(t *testing.T) {
	c := &clock{fixed}
	tokens, r := heeding(t, &revoked{}, TokenOptions{Now: c.now})
	plain, first := with(nil), issued(t, tokens, 0)
	if strings.Contains(part(goodClaims()), "gen") {
		t.Error("a token of before says a generation")
	}
	tokens.mustAccept(t, plain, driver)
	tokens.mustAccept(t, first, driver)
	must(t, r.Revoke(t.Context(), driver))
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
	synctest.Test(t, func(t *testing.T) {
		store := &revoked{all: []dispatch.Revocation{{Driver: driver, Generation: 3}}}
		tokens, r := heeding(t, store, TokenOptions{Now: time.Now})
		log := &testkit.LogBuffer{}
		r.log = slog.New(slog.NewTextHandler(log, nil))
		testkit.Run(t, func(ctx context.Context) { r.Run(ctx, RevocationsInterval) })
		third, second := issued(t, tokens, 3), issued(t, tokens, 2)
		pass(time.Millisecond)           // after the reading of each interval
		tokens.mustAccept(t, second, "") // of before, at the start
		for range 100 {
			tokens.mustAccept(t, third, driver)
		}
		store.set(nil, dispatch.Revocation{Driver: driver, Generation: 4})
		pass(RevocationsInterval)
		tokens.mustAccept(t, third, "") // revoked elsewhere
		store.mu.Lock()
		reads := store.reads
		store.mu.Unlock()
		if reads != 2 {
			t.Errorf("%d readings, want 2", reads)
		}
		store.set(dispatch.ErrUnavailable)
		pass(3 * RevocationsInterval)
		tokens.mustAccept(t, third, "") // revoked, during an outage
		if age := r.Age(); age < 3*RevocationsInterval {
			t.Errorf("read %s ago", age)
		}
		if n := log.Count("level=WARN"); n != 1 {
			t.Errorf("%d warnings", n)
		}
		// A database that was restored from a backup issues tokens of an earlier generation.
		store.set(nil, dispatch.Revocation{Driver: driver, Generation: 3})
		pass(RevocationsInterval)
		tokens.mustAccept(t, third, driver) // good again, as the database is an older one
		if n := log.Count("level=INFO"); n != 1 {
			t.Errorf("%d lines say that it is over", n)
		}
	})
}

// TestRevokedWhileReading: a reading that started earlier does not undo a revocation.
func TestRevokedWhileReading(t *testing.T) {
	store := &revoked{}
	tokens, r := heeding(t, store, TokenOptions{})
	old := issued(t, tokens, 0)
	store.reading = func() {
		if err := r.Revoke(t.Context(), driver); err != nil {
			t.Error(err)
		}
	}
	must(t, r.read(t.Context()))
	tokens.mustAccept(t, old, "")
	store.reading = nil
	must(t, r.read(t.Context()))
	tokens.mustAccept(t, old, "") // when the revocation has been read
}

// TestRevocationsAreUnknownAtTheStart: without a first reading there are no Revocations.
func TestRevocationsAreUnknownAtTheStart(t *testing.T) {
	mustBe(t, errorOf(NewRevocations(t.Context(), &revoked{err: dispatch.ErrUnavailable}, quiet)), dispatch.ErrUnavailable)
}

// TestFailedRevocation: the tokens stay valid.
func TestFailedRevocation(t *testing.T) {
	tokens, r := heeding(t, &revoked{}, TokenOptions{})
	r.store = &revoked{err: dispatch.ErrUnavailable}
	mustBe(t, r.Revoke(t.Context(), driver), dispatch.ErrUnavailable)
	tokens.mustAccept(t, issued(t, tokens, 0), driver)
}

// TestFirebaseUserIsRevoked: users who signed in before the revocation, or within its second, must sign in again.
func TestFirebaseUserIsRevoked(t *testing.T) {
	p := newPlace(t)
	id := p.drivers(1, firebaseUID("Kim"))[0]
	another := p.drivers(1, firebaseUID("Lee"))[0]
	store := &revoked{}
	tokens, r := heeding(t, store, TokenOptions{IDTokens: uids{"kims": "Kim", "lees": "Lee"}, Drivers: p}) // they sign in at fixed
	tokens.mustAccept(t, "kims", id)
	for at, want := range map[time.Duration]dispatch.DriverID{
		-time.Second: id, -time.Nanosecond: id, 0: "", 999 * time.Millisecond: "", time.Hour: "",
	} { // after the sign-in
		store.all = []dispatch.Revocation{{Driver: id, Generation: 1, At: fixed.Add(at)}}
		must(t, r.read(t.Context()))
		tokens.mustAccept(t, "kims", want)
		tokens.mustAccept(t, "lees", another)
	}
}

// TestRevocationsAtOnce: concurrent revocations and readings lose none.
func TestRevocationsAtOnce(t *testing.T) {
	p := newPlace(t)
	all := p.drivers(20)
	r, err := NewRevocations(t.Context(), p, quiet)
	must(t, err)
	testkit.Together(2*len(all), func(k int) {
		if k%2 == 1 {
			if err := r.read(t.Context()); err != nil {
				t.Error(err)
			}
			return
		}
		id := all[k/2]
		if err := r.Revoke(t.Context(), id); err != nil || !r.isRevoked(id, 0) || r.isRevoked(id, 1) {
			t.Errorf("%s: %v", id, err)
		}
	})
	for range 2 { // as it was noted, and as it is read
		for _, id := range all {
			if !r.isRevoked(id, 0) || r.isRevoked(id, 1) {
				t.Errorf("%s is not revoked once", id)
			}
		}
		must(t, r.read(t.Context()))
	}
}
