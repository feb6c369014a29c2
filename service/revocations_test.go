package service

import (
	"context"
	"errors"
	"fmt"
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

// counting counts log lines by level.
type counting struct {
	slog.Handler
	mu     sync.Mutex
	levels map[slog.Level]int
}

func (c *counting) Enabled(context.Context, slog.Level) bool { return true }

func (c *counting) Handle(_ context.Context, r slog.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.levels[r.Level]++
	return nil
}

func (c *counting) of(l slog.Level) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.levels[l]
}

func heeding(t *testing.T, store RevocationStore, now func() time.Time) (*Tokens, *Revocations) {
	t.Helper()
	r, err := NewRevocations(t.Context(), store, quiet)
	must(t, err)
	return NewTokens(TokenOptions{Secret: secret, Now: now, Revocations: r}), r
}

// is checks whether the driver's token is accepted.
func is(t *testing.T, tokens *Tokens, what, token string, good bool) {
	t.Helper()
	got, err := tokens.Authenticate(t.Context(), token)
	if good && (err != nil || got != driver) || !good && !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("%s: %q, %v", what, got, err)
	}
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
	tokens, r := heeding(t, &revoked{}, c.now)
	plain, first := with(nil), issued(t, tokens, 0)
	if strings.Contains(part(goodClaims()), "gen") {
		t.Error("a token of before says a generation")
	}
	is(t, tokens, "without a generation", plain, true)
	is(t, tokens, "of the first", first, true)
	must(t, r.Revoke(t.Context(), driver))
	for _, step := range []time.Duration{-time.Minute, 0, time.Minute} { // the clock is set back, stands, goes on
		c.Time = fixed.Add(step)
		fresh := issued(t, tokens, 1)
		c.Time = fixed
		is(t, tokens, "without a generation", plain, false)
		is(t, tokens, "of the first", first, false)
		is(t, tokens, "of the first, issued now", issued(t, tokens, 0), false)
		is(t, tokens, "made by hand, of none", with(map[string]any{"gen": -1}), false)
		if step <= 0 {
			is(t, tokens, "of the second", fresh, true)
		}
		is(t, tokens, "of one that is not known here yet", issued(t, tokens, 2), true)
	}
	for name, gen := range map[string]any{"text": "1", "a fraction": 1.5, "huge": 1e300} {
		is(t, tokens, "a generation that is "+name, with(map[string]any{"gen": gen}), false)
	}
	if got, err := tokens.Authenticate(t.Context(), with(map[string]any{"sub": "drv_" + strings.Repeat("2", 26)})); err != nil || got == driver {
		t.Errorf("another driver's: %s, %v", got, err)
	}
}

// TestRevokedElsewhere: other instances' revocations take effect at the next reading, which is one query for all drivers.
// While readings fail, known revocations count, and one warning is logged.
func TestRevokedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &revoked{all: []dispatch.Revocation{{Driver: driver, Generation: 3}}}
		log := &counting{levels: map[slog.Level]int{}}
		r, err := NewRevocations(t.Context(), store, slog.New(log))
		must(t, err)
		tokens := NewTokens(TokenOptions{Secret: secret, Now: time.Now, Revocations: r})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx, RevocationsInterval) })
		third, second := issued(t, tokens, 3), issued(t, tokens, 2)
		pass := func(n int) {
			time.Sleep(time.Duration(n)*RevocationsInterval + time.Millisecond)
			synctest.Wait()
		}
		is(t, tokens, "of before, at the start", second, false)
		for range 100 {
			is(t, tokens, "of now", third, true)
		}
		store.set(nil, dispatch.Revocation{Driver: driver, Generation: 4})
		pass(1)
		is(t, tokens, "revoked elsewhere", third, false)
		store.mu.Lock()
		reads := store.reads
		store.mu.Unlock()
		if reads != 2 {
			t.Errorf("%d readings, want 2", reads)
		}
		store.set(dispatch.ErrUnavailable)
		pass(3)
		is(t, tokens, "revoked, during an outage", third, false)
		if age := r.Age(); age < 3*RevocationsInterval {
			t.Errorf("read %s ago", age)
		}
		if n := log.of(slog.LevelWarn); n != 1 {
			t.Errorf("%d warnings", n)
		}
		// A database that was restored from a backup issues tokens of an earlier generation.
		store.set(nil, dispatch.Revocation{Driver: driver, Generation: 3})
		pass(1)
		is(t, tokens, "good again, as the database is an older one", third, true)
		if n := log.of(slog.LevelInfo); n != 1 {
			t.Errorf("%d lines say that it is over", n)
		}
		stop()
		running.Wait()
	})
}

// TestRevokedWhileReading: a reading that started earlier does not undo a revocation.
func TestRevokedWhileReading(t *testing.T) {
	store := &revoked{}
	tokens, r := heeding(t, store, (&clock{fixed}).now)
	old := issued(t, tokens, 0)
	store.reading = func() {
		if err := r.Revoke(t.Context(), driver); err != nil {
			t.Error(err)
		}
	}
	must(t, r.read(t.Context()))
	is(t, tokens, "old", old, false)
	store.reading = nil
	must(t, r.read(t.Context()))
	is(t, tokens, "old, when it is read", old, false)
}

// TestRevocationsAreUnknownAtTheStart: without a first reading there are no Revocations.
func TestRevocationsAreUnknownAtTheStart(t *testing.T) {
	mustBe(t, errorOf(NewRevocations(t.Context(), &revoked{err: dispatch.ErrUnavailable}, quiet)), dispatch.ErrUnavailable)
}

// TestFailedRevocation: the tokens stay valid.
func TestFailedRevocation(t *testing.T) {
	tokens, r := heeding(t, &revoked{}, (&clock{fixed}).now)
	r.store = &revoked{err: dispatch.ErrUnavailable}
	mustBe(t, r.Revoke(t.Context(), driver), dispatch.ErrUnavailable)
	is(t, tokens, "a token", issued(t, tokens, 0), true)
}

// TestFirebaseUserIsRevoked: users who signed in before the revocation, or within its second, must sign in again.
func TestFirebaseUserIsRevoked(t *testing.T) {
	p, c := newPlace(t), &clock{fixed}
	id := p.drivers(1, firebaseUID("Kim"))[0]
	p.drivers(1, firebaseUID("Lee"))
	store := &revoked{}
	r, err := NewRevocations(t.Context(), store, quiet)
	must(t, err)
	tokens := NewTokens(TokenOptions{
		Secret: secret, Now: c.now, IDTokens: uids{"kims": "Kim", "lees": "Lee"}, Drivers: p, Revocations: r, // they sign in at fixed
	})
	good := func(what, token string, want bool) {
		t.Helper()
		if got, err := tokens.Authenticate(t.Context(), token); (err == nil) != want || err != nil && !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	good("before", "kims", true)
	for at, want := range map[time.Duration]bool{-time.Second: true, -time.Nanosecond: true, 0: false, 999 * time.Millisecond: false, time.Hour: false} {
		store.all = []dispatch.Revocation{{Driver: id, Generation: 1, At: fixed.Add(at)}}
		must(t, r.read(t.Context()))
		good(fmt.Sprintf("revoked %s after the sign-in", at), "kims", want)
		good("another's", "lees", true)
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
