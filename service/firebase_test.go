package service

import (
	"context"
	"errors"
	"testing"
	"time"

	"firsttap/dispatch"
)

// uids maps a test's valid ID tokens to their users.
type uids map[string]string

func (u uids) UID(_ context.Context, token string) (string, time.Time, error) {
	switch uid, ok := u[token]; {
	case token == "unclear":
		return "", time.Time{}, dispatch.ErrUnavailable
	case ok:
		return uid, fixed, nil
	}
	return "", time.Time{}, errors.New("refused")
}

// TestCaller distinguishes our own tokens from Firebase's, and a refusal from an outage.
func TestCaller(t *testing.T) {
	p, c := newPlace(t), &clock{fixed}
	id := p.drivers(1, firebaseUID("Kim"))[0]
	tokens := newTokens(TokenOptions{Now: c.now})
	if got, err := tokens.Authenticate(t.Context(), "kims"); !errors.Is(err, ErrUnauthenticated) || got != "" {
		t.Errorf("without Firebase: %q, %v", got, err)
	}
	tokens = NewTokens(TokenOptions{
		Revocations: NoRevocations(), Secret: secret, Now: c.now, IDTokens: uids{"kims": "Kim", "small": "kim", "nobodys": "nobody"}, Drivers: p,
	})
	for token, want := range map[string]dispatch.DriverID{with(nil): driver, "kims": id} {
		for range 2 {
			if got, err := tokens.Authenticate(t.Context(), token); err != nil || got != want {
				t.Errorf("%q, %v, want %s", got, err, want)
			}
		}
	}
	for token, want := range map[string]error{
		"nobodys": ErrUnauthenticated, "small": ErrUnauthenticated, "forged": ErrUnauthenticated, "": ErrUnauthenticated, "unclear": dispatch.ErrUnavailable,
	} {
		if got, err := tokens.Authenticate(t.Context(), token); !errors.Is(err, want) || got != "" {
			t.Errorf("%s: %q, %v, want %v", token, got, err, want)
		}
	}
}

// TestChangedUID takes effect within a minute, and for a new driver within seconds.
func TestChangedUID(t *testing.T) {
	p, c := newPlace(t), &clock{fixed}
	id := p.drivers(1, firebaseUID("old"))[0]
	tokens := newTokens(TokenOptions{Now: c.now, IDTokens: uids{"old's": "old", "new's": "new"}, Drivers: p})
	is := func(token string, want dispatch.DriverID) {
		t.Helper()
		if got, err := tokens.Authenticate(t.Context(), token); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", token, got, err, want)
		}
	}
	is("old's", id)
	is("new's", "")
	p.exec("UPDATE drivers SET firebase_uid = 'new' WHERE id = ?", id)
	c.Time = c.Add(5 * time.Second)
	is("new's", id)
	c.Time = c.Add(55 * time.Second)
	is("old's", "")
	is("new's", id)
}

// TestDatabaseIsAway: an outage is not a refusal.
func TestDatabaseIsAway(t *testing.T) {
	p, c := newPlace(t), &clock{fixed}
	p.drivers(1, firebaseUID("Kim"))
	tokens := newTokens(TokenOptions{Now: c.now, IDTokens: uids{"kims": "Kim"}, Drivers: p})
	p.Close()
	mustBe(t, errorOf(tokens.Authenticate(t.Context(), "kims")), dispatch.ErrUnavailable)
}
