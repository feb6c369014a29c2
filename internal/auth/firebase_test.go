package auth

import (
	"context"
	"testing"
	"time"

	"firsttap/dispatch"
	. "firsttap/repository/repositorytest"
)

// uids maps each ID token that is valid in a test to the identifier of its user. All users signed in at the time fixed. The user of the
// token "disabled" is refused.
type uids map[string]string

func (u uids) Verify(_ context.Context, token string) (IDToken, error) {
	switch uid, ok := u[token]; {
	case token == "unclear":
		return IDToken{}, dispatch.ErrUnavailable
	case ok:
		return IDToken{UID: uid, SignedIn: fixed, IssuedAt: fixed, ExpiresAt: fixed.Add(time.Hour)}, nil
	}
	return IDToken{}, ErrUnauthenticated
}

func (u uids) Allows(_ context.Context, t IDToken) bool { return u["disabled"] != t.UID }

// TestCaller distinguishes our own tokens from Firebase's, and a refusal from an outage.
func TestCaller(t *testing.T) {
	db, c := Pooled(t, "sqlite"), &clock{fixed}
	id := user(t, db, "Kim")
	newTokens(t, TokenOptions{}).mustAccept(t, "kims", "") // without Firebase
	ids := uids{"kims": "Kim", "small": "kim", "nobodys": "nobody"}
	tokens := newTokens(t, TokenOptions{IDTokens: ids, Drivers: db, Now: c.now})
	for token, want := range map[string]dispatch.DriverID{with(nil): driver, "kims": id, "nobodys": "", "small": "", "forged": "", "": ""} {
		for range 2 {
			tokens.mustAccept(t, token, want)
		}
	}
	MustBeError(t, "while Firebase can't be asked", ErrorOf(tokens.Authenticate(t.Context(), "unclear")), dispatch.ErrUnavailable)
	ids["disabled"] = "Kim"
	tokens.mustAccept(t, "kims", "") // although the token is known
	delete(ids, "disabled")
	tokens.mustAccept(t, "kims", id)
	delete(ids, "kims")
	c.Time = c.Add(time.Hour)
	tokens.mustAccept(t, "kims", "") // it is verified again when it has ended
	Must(t, db.Close())
	ids["lees"] = "Lee"
	MustBeError(t, "without a database", ErrorOf(tokens.Authenticate(t.Context(), "lees")), dispatch.ErrUnavailable)
}

// TestChangedUID takes effect within a minute, and for a new driver within seconds.
func TestChangedUID(t *testing.T) {
	db, c := Pooled(t, "sqlite"), &clock{fixed}
	id := user(t, db, "old")
	tokens := newTokens(t, TokenOptions{Now: c.now, IDTokens: uids{"old's": "old", "new's": "new"}, Drivers: db})
	tokens.mustAccept(t, "old's", id)
	tokens.mustAccept(t, "new's", "")
	db.Exec(t, "UPDATE drivers SET firebase_uid = 'new' WHERE id = ?", id)
	c.Time = c.Add(5 * time.Second)
	tokens.mustAccept(t, "new's", id)
	c.Time = c.Add(55 * time.Second)
	tokens.mustAccept(t, "old's", "")
	tokens.mustAccept(t, "new's", id)
}

// TestFirebaseUserIsRevoked: users who signed in before the revocation, or within its second, must sign in again.
func TestFirebaseUserIsRevoked(t *testing.T) {
	db, store := Pooled(t, "sqlite"), &revoked{}
	id, another := user(t, db, "Kim"), user(t, db, "Lee")
	tokens, r := heeding(t, store, TokenOptions{IDTokens: uids{"kims": "Kim", "lees": "Lee"}, Drivers: db})
	tokens.mustAccept(t, "kims", id)
	for at, want := range map[time.Duration]dispatch.DriverID{
		-time.Second: id, -time.Nanosecond: id, 0: "", 999 * time.Millisecond: "", time.Hour: "",
	} { // after the sign-in
		store.all = []dispatch.Revocation{{Driver: id, Generation: 1, At: fixed.Add(at)}}
		Must(t, r.read(t.Context()))
		tokens.mustAccept(t, "kims", want)
		tokens.mustAccept(t, "lees", another)
	}
}
