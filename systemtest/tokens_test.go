package systemtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"firsttap/testkit"
)

// newToken is a token that the instance issues for the driver.
func newToken(t *testing.T, i *Instance, driver string) string {
	t.Helper()
	a := send("POST", i.URL+"/v1/admin/drivers/"+driver+"/tokens", AdminKey, "")
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(a.body), &made); err != nil || a.status != 201 {
		t.Fatalf("a token: %s", a)
	}
	return made.Token
}

// newSession is the cookie of a new session at the instance.
func newSession(t *testing.T, i *Instance) string {
	t.Helper()
	a := send("POST", i.URL+"/v1/session", "", fmt.Sprintf(`{"key":%q}`, AdminKey))
	cookie, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	if a.status != 200 || cookie == "" {
		t.Fatalf("a session: %s", a)
	}
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
				if a := send("GET", i.URL+"/v1/me", token, ""); a.status != want {
					t.Errorf("%s: token %d at instance %d: %s", what, k, n, a)
				}
			}
			for k, cookie := range sessions {
				if a := sendWith("GET", i.URL+"/v1/admin/board", "", "", "Cookie", cookie); a.status != want {
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
	if a := send("DELETE", here.URL+"/v1/admin/drivers/"+me.ID+"/tokens", AdminKey, ""); a.status != 204 {
		t.Fatal(a)
	}
	if a := send("GET", here.URL+"/v1/me", me.Token, ""); a.status != 401 {
		t.Errorf("where it was revoked: %s", a)
	}
	fresh := newToken(t, here, me.ID)
	good := func(what string, i *Instance) {
		t.Helper()
		for _, token := range []string{fresh, another.Token} {
			if a := send("GET", i.URL+"/v1/me", token, ""); a.status != 200 {
				t.Errorf("%s: %s", what, a)
			}
		}
	}
	good("here", here)
	good("there, before it knows", there)
	testkit.Eventually(t, "the old token is refused there", func() bool { return send("GET", there.URL+"/v1/me", me.Token, "").status == 401 })
	if a := Accept(there, MakeDispatch(t, here), me, 1); a.status != 401 {
		t.Errorf("a tap: %s", a)
	}
	good("there, when it knows", there)
	stream.rest() // until it ends
	later := Start(t, settings...)
	good("at a new instance", later)
	if a := send("GET", later.URL+"/v1/me", me.Token, ""); a.status != 401 {
		t.Errorf("the old token at a new instance: %s", a)
	}
}
