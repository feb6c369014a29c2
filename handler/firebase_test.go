package handler

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/internal/auth"
	"firsttap/internal/firebase"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// movable is a clock that goes until it is stopped, and that a test can put forward.
type movable struct {
	stopped atomic.Pointer[time.Time]
	ahead   atomic.Int64
}

func (m *movable) now() time.Time {
	now := time.Now()
	if at := m.stopped.Load(); at != nil {
		now = *at
	}
	return now.Add(time.Duration(m.ahead.Load()))
}

func (m *movable) stop() { m.stopped.Store(new(time.Now())) }

func (m *movable) pass(d time.Duration) { m.ahead.Add(int64(d)) }

// newFirebaseWorld is the API where the emulator's users are drivers too.
func newFirebaseWorld(t *testing.T, e *servertest.FirebaseAuth, clock *movable) *world {
	t.Helper()
	return newWorld(t, func(a *API) {
		ids, err := firebase.New(context.Background(), firebase.Options{
			Project: servertest.FirebaseProject, Emulator: e.Addr(), Now: clock.now, Log: slog.New(slog.DiscardHandler),
		})
		noError(t, err)
		t.Cleanup(ids.Close)
		a.Tokens = auth.NewTokens(auth.TokenOptions{
			Secret: []byte("secret"), Now: clock.now, IDTokens: ids, Drivers: storeOf(a).Drivers, Revocations: a.Revocations,
		})
	})
}

// TestFirebase: users of a real emulator.
func TestFirebase(t *testing.T) {
	testkit.OnlyInAll(t)
	e := servertest.StartFirebaseAuth(t)
	t.Run("sign in", func(t *testing.T) { firebaseUsersSignIn(t, e) })
	t.Run("are revoked", func(t *testing.T) { firebaseUserIsRevoked(t, e) })
}

// firebaseUsersSignIn: they sign in as drivers, and are refused soon after they are disabled.
func firebaseUsersSignIn(t *testing.T, e *servertest.FirebaseAuth) {
	clock := &movable{}
	w := newFirebaseWorld(t, e, clock)
	sign := func(name string) (caller, string) {
		uid, token := e.SignUp(name + "@example.com")
		d := w.drivers(1, fmt.Sprintf(`"firebase_uid":%q`, uid))[0]
		return caller{d.id, token}, uid
	}
	is := func(what, token, id string) {
		t.Helper()
		w.call("GET", "/v1/me", token, "").want(200, "id", id)
	}
	refused := func(what, token string) {
		t.Helper()
		w.refused(what, w.call("GET", "/v1/me", token, ""), 401, "UNAUTHENTICATED")
	}

	_, stranger := e.SignUp("stranger@example.com")
	refused("a user without a driver", stranger)
	ours := w.drivers(1)[0]
	is("our own token", ours.token, ours.id)
	for name, end := range map[string]func(uid string){
		"disabled": func(uid string) { e.Disable(uid, true) },
		"revoked":  func(uid string) { e.Revoke(uid, time.Now().Add(time.Hour).Unix()) },
		"deleted":  e.Delete,
	} {
		d, uid := sign(name)
		is(name+", before", d.token, d.id)
		w.accept(w.dispatch(1), d, "").want(200)
		end(uid)
		clock.pass(time.Minute)
		refused(name+", a minute ago", d.token)
		w.refused(name+" taps", w.accept(w.dispatch(1), d, ""), 401, "UNAUTHENTICATED")
		p := strings.Split(d.token, ".")
		refused(name+", signed by somebody", p[0]+"."+p[1]+".c2lnbmVk")
	}
	is("our own token, all the while", ours.token, ours.id)
	if strings.Contains(w.log.String(), stranger) {
		t.Error("a token is in the log")
	}
}

// firebaseUserIsRevoked: after a new sign-in the token of the earlier sign-in is refused.
func firebaseUserIsRevoked(t *testing.T, e *servertest.FirebaseAuth) {
	w := newFirebaseWorld(t, e, &movable{})
	const email = "kim@example.com"
	uid, old := e.SignUp(email)
	d := w.drivers(1, fmt.Sprintf(`"firebase_uid":%q`, uid))[0]
	w.call("GET", "/v1/me", old, "").want(200, "id", d.id)
	w.call("DELETE", "/v1/admin/drivers/"+d.id+"/tokens", key, "").want(204)
	w.refused("an earlier sign-in", w.call("GET", "/v1/me", old, ""), 401, "UNAUTHENTICATED")
	// The time of a sign-in has no fractions: one in the second of the revocation does not count as later.
	testkit.Eventually(t, "a user who signs in again is accepted", func() bool { return w.call("GET", "/v1/me", e.SignIn(email), "").status == 200 })
	w.refused("an earlier sign-in, still", w.call("GET", "/v1/me", old, ""), 401, "UNAUTHENTICATED")
}
