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
	p := newPlace(t)
	id := p.drivers(1, firebaseUID("Kim"))[0]
	newTokens(TokenOptions{}).mustAccept(t, "kims", "") // without Firebase
	tokens := newTokens(TokenOptions{IDTokens: uids{"kims": "Kim", "small": "kim", "nobodys": "nobody"}, Drivers: p})
	for token, want := range map[string]dispatch.DriverID{with(nil): driver, "kims": id, "nobodys": "", "small": "", "forged": "", "": ""} {
		for range 2 {
			tokens.mustAccept(t, token, want)
		}
	}
	if got, err := tokens.Authenticate(t.Context(), "unclear"); !errors.Is(err, dispatch.ErrUnavailable) || got != "" {
		t.Errorf("while Firebase can't be asked: %q, %v", got, err)
	}
}

// TestChangedUID takes effect within a minute, and for a new driver within seconds.
func TestChangedUID(t *testing.T) {
	p, c := newPlace(t), &clock{fixed}
	id := p.drivers(1, firebaseUID("old"))[0]
	tokens := newTokens(TokenOptions{Now: c.now, IDTokens: uids{"old's": "old", "new's": "new"}, Drivers: p})
	tokens.mustAccept(t, "old's", id)
	tokens.mustAccept(t, "new's", "")
	p.exec("UPDATE drivers SET firebase_uid = 'new' WHERE id = ?", id)
	c.Time = c.Add(5 * time.Second)
	tokens.mustAccept(t, "new's", id)
	c.Time = c.Add(55 * time.Second)
	tokens.mustAccept(t, "old's", "")
	tokens.mustAccept(t, "new's", id)
}

// TestDatabaseIsAway: an outage is not a refusal.
func TestDatabaseIsAway(t *testing.T) {
	p := newPlace(t)
	p.drivers(1, firebaseUID("Kim"))
	tokens := newTokens(TokenOptions{IDTokens: uids{"kims": "Kim"}, Drivers: p})
	p.db.Close()
	mustBe(t, errorOf(tokens.Authenticate(t.Context(), "kims")), dispatch.ErrUnavailable)
}
