package systemtest

import (
	"fmt"
	"strings"
	"testing"

	"firsttap/internal/testkit"
)

// newToken is a token that the instance issues for the driver.
func newToken(t *testing.T, i *Instance, driver string) string {
	t.Helper()
	return textOf(i.must(201, "POST", "/v1/admin/drivers/"+driver+"/tokens", AdminKey, "").body, "token")
}

// newSession is the cookie of a new session at the instance.
func newSession(t *testing.T, i *Instance) string {
	t.Helper()
	a := i.must(200, "POST", "/v1/session", "", fmt.Sprintf(`{"key":%q}`, AdminKey))
	cookie, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	return cookie
}

// TestSecretIsReplaced at one instance after the other. Tokens and sessions of either instance stay valid at both all the
// while. Those under the old secret end when that is removed.
func TestSecretIsReplaced(t *testing.T) {
	t.Parallel()
	db := mariaDB(t)
	const next = "the-next-secret-of-the-tests-of-firsttap"
	run := func(current, previous string) *Instance {
		return Start(t, "FIRSTTAP_DATABASE_URL="+db, "FIRSTTAP_JWT_SECRET"+"="+current, "FIRSTTAP_JWT_SECRET_PREVIOUS"+"="+previous)
	}
	both := []*Instance{run(JWTSecret, ""), run(JWTSecret, "")}
	driver := MakeDrivers(t, both[0], 1)[0]
	var tokens, sessions []string
	check := func(what string, tokens, sessions []string, want int) {
		t.Helper()
		for n, i := range both {
			for k, token := range tokens {
				if a := patiently(func() Response { return send("GET", i.URL+"/v1/me", token, "") }); a.status != want {
					t.Errorf("%s: token %d at instance %d: %s", what, k, n, a)
				}
			}
			for k, cookie := range sessions {
				if a := patiently(func() Response { return sendWith("GET", i.URL+"/v1/admin/board", "", "", "Cookie", cookie) }); a.status != want {
					t.Errorf("%s: session %d at instance %d: %s", what, k, n, a)
				}
			}
		}
	}
	issue := func() {
		for _, i := range both {
			tokens, sessions = append(tokens, newToken(t, i, driver.ID)), append(sessions, newSession(t, i))
		}
	}
	issue()
	for _, step := range []struct{ current, previous string }{{JWTSecret, next}, {next, JWTSecret}} {
		for n := range both {
			both[n].end()
			both[n] = run(step.current, step.previous)
			issue()
			check(fmt.Sprintf("instance %d has been given %q", n, step), tokens, sessions, 200)
		}
	}
	of := len(tokens) - len(both) // both issue under the new secret by now
	for n := range both {
		both[n].end()
		both[n] = run(next, "")
	}
	check("the new secret's", tokens[of:], sessions[of:], 200)
	check("the old secret's", tokens[:1], sessions[:1], 401)
}

// TestTokensEndEverywhere: revoked tokens end at once at the instance that revokes them, and soon at others, and
// so do open streams. A new token is valid everywhere at once. After a restart the old one is still revoked.
func TestTokensEndEverywhere(t *testing.T) {
	t.Parallel()
	settings := []string{"FIRSTTAP_DATABASE_URL=" + mariaDB(t)}
	here, there := Start(t, settings...), Start(t, settings...)
	drivers := MakeDrivers(t, here, 2)
	me, another := drivers[0], drivers[1]
	stream := openStream(t, there, me.Token, "")
	here.must(204, "DELETE", "/v1/admin/drivers/"+me.ID+"/tokens", AdminKey, "")
	here.must(401, "GET", "/v1/me", me.Token, "")
	fresh := newToken(t, here, me.ID)
	othersAreGood := func(i *Instance) {
		t.Helper()
		for _, token := range []string{fresh, another.Token} {
			i.must(200, "GET", "/v1/me", token, "")
		}
	}
	othersAreGood(here)
	othersAreGood(there) // before it knows
	// An instance reads the revoked tokens every 10 s, and in the next 10 s if the database does not answer.
	testkit.Within(t, 3*testkit.Patience, "the old token is refused there", func() bool { return send("GET", there.URL+"/v1/me", me.Token, "").status == 401 })
	if a := Accept(there, MakeDispatch(t, here), me, 1); a.status != 401 {
		t.Errorf("a tap: %s", a)
	}
	othersAreGood(there) // when it knows
	stream.rest()        // until it ends
	later := Start(t, settings...)
	othersAreGood(later)
	later.must(401, "GET", "/v1/me", me.Token, "")
}
