package handler

import (
	"context"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/notify/stream"
	"firsttap/repository/repositorytest"
)

// follows has the instance read the revocations of others until the test ends.
func (w *world) follows(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); w.revocations.Run(ctx, 5*time.Millisecond) }()
	t.Cleanup(func() { stop(); <-ended })
}

// issue returns a new token of the driver's.
func (w *world) issue(driver string) string {
	w.t.Helper()
	return w.call("POST", "/v1/admin/drivers/"+driver+"/tokens", key, "").want(201).text("token")
}

// TestTokensEnd at the instance that revokes them at once, and at another one soon. Tokens that are issued later are valid at both
// at once, also within the same second, and other drivers' tokens stay valid.
func TestTokensEnd(t *testing.T) {
	url := repositorytest.URL(t, "mariadb")
	here, there := newWorldOn(t, url), newWorldOn(t, url)
	there.follows(t)
	drivers := here.drivers(2)
	me := drivers[0]
	welcome := func(tokens ...string) {
		t.Helper()
		for _, token := range tokens {
			here.call("GET", "/v1/me", token, "").want(200)
			there.call("GET", "/v1/me", token, "").want(200)
		}
	}
	tokens := []string{me.token, here.issue(me.id), there.issue(me.id)}
	for range 3 {
		welcome(tokens...)
		here.call("DELETE", "/v1/admin/drivers/"+me.id+"/tokens", key, "").want(204).wantBody("")
		fresh := []string{there.issue(me.id), here.issue(me.id)}
		welcome(fresh...)
		for _, token := range tokens {
			here.refused("an old token, where it was revoked", here.call("GET", "/v1/me", token, ""), 401, "UNAUTHENTICATED")
			testkit.Eventually(t, "an old token is refused elsewhere", func() bool { return there.call("GET", "/v1/me", token, "").status == 401 })
			there.refused("an old token's tap", there.call("POST", "/v1/dispatches/"+string(dispatch.NewID(time.Now()))+"/accept", token, ""), 401, "UNAUTHENTICATED")
		}
		welcome(append(fresh, drivers[1].token)...) // also once the revocation is known
		tokens = fresh
	}
	third := newWorldOn(t, url) // knows before it is asked
	third.refused("an old token, at a new instance", third.call("GET", "/v1/me", me.token, ""), 401, "UNAUTHENTICATED")
	nobody := string(dispatch.NewDriverID(time.Now()))
	here.refused("an unknown driver", here.call("DELETE", "/v1/admin/drivers/"+nobody+"/tokens", key, ""), 404, "DRIVER_NOT_FOUND")
	revoked := 0
	for _, entry := range items(here.call("GET", "/v1/admin/audit?target="+me.id, key, "")) {
		if entry["action"] == "driver.tokens_revoke" {
			revoked++
		}
	}
	if revoked != 3 {
		t.Errorf("%d revocations are audited, want 3", revoked)
	}
}

// TestStreamOfARevokedToken ends when it next asks; one of a token of afterwards goes on.
func TestStreamOfARevokedToken(t *testing.T) {
	l := newLive(t, stream.Options{})
	d := l.drivers(1)[0]
	old := l.open("/v1/stream", d.token, "")
	l.call("DELETE", "/v1/admin/drivers/"+d.id+"/tokens", key, "").want(204)
	fresh := l.open("/v1/stream", l.issue(d.id), "")
	l.refused("a stream of an old token", l.call("GET", "/v1/stream", d.token, ""), 401, "UNAUTHENTICATED")
	l.clock.pass(recheckInterval)
	l.tells(dispatch.EventOpened, "")
	if name, text := old.next(); name != "end" {
		t.Errorf("%s %s", name, text)
	}
	if name, text := fresh.next(); name != string(dispatch.EventOpened) {
		t.Errorf("%s %s", name, text)
	}
}

// TestSuspendedDriversStart: a start gets 403 with the reason, and begun work can be completed.
func TestSuspendedDriversStart(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	id := w.dispatch(1)
	w.accept(id, d, `{"round":1}`).want(200)
	do := func(what string) { t.Helper(); w.call("POST", "/v1/admin/drivers/"+d.id+"/"+what, key, `{}`).want(200) }
	do("suspend")
	w.refused("start", w.on(id, "start", d), 403, "NOT_ELIGIBLE").want(403, "reasons", []any{"SUSPENDED"})
	w.call("PUT", "/v1/me/duty", d.token, `{"on_duty":true}`).want(200)
	do("reinstate")
	w.on(id, "start", d).want(200)
	do("suspend")
	w.on(id, "complete", d).want(200, "status", "COMPLETED")
}
