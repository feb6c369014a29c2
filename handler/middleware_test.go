package handler

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
)

// TestEveryAnswerIsGuarded: successes, errors, and requests without a route.
func TestEveryAnswerIsGuarded(t *testing.T) {
	w := newWorld(t)
	d, id := w.drivers(1)[0], w.dispatch(1)
	for _, r := range []reply{
		w.call("GET", "/v1/me", d.token, ""), w.accept(id, d, ""), w.call("GET", "/v1/admin/dispatches", key, ""), w.call("GET", "/v1/me", "", ""),
		w.call("GET", "/nowhere", "", ""), w.call("PATCH", "/v1/me", d.token, ""), w.call("GET", "/livez", "", ""), w.accept(id, d, "{"), w.on(id, "seen", d),
	} {
		for header, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
			"Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "Strict-Transport-Security": "",
		} {
			r.wantHeader(header, want)
		}
	}
	for proto, want := range map[string]string{
		"https": "max-age=31536000", "HTTPS": "max-age=31536000", "https, http": "max-age=31536000", "http, https": "", "httpsx": "",
	} {
		w.call("GET", "/livez", "", "", "X-Forwarded-Proto", proto).wantHeader("Strict-Transport-Security", want)
	}
}

// TestAuthorizationHeaders: the scheme's case does not matter (RFC 9110), all else does.
func TestAuthorizationHeaders(t *testing.T) {
	w := newWorld(t)
	token := w.drivers(1)[0].token
	for _, good := range []string{"Bearer " + token, "bearer " + token, "BEARER " + token} {
		w.call("GET", "/v1/me", "", "", "Authorization", good).want(200)
	}
	for name, bad := range map[string]string{
		"lower case": "Bearer " + strings.ToLower(token), "two spaces": "Bearer  " + token, "a dot": "Bearer " + token + ".", "a tab": "Bearer\t" + token,
		"quoted": `Bearer "` + token + `"`, "two in one": "Bearer " + token + ", Bearer " + token, "no scheme": token, "Basic": "Basic " + token,
		"nothing": "", "no token": "Bearer", "an empty token": "Bearer ", "huge": "Bearer " + strings.Repeat("a", 1<<20), "the admin's": "Bearer " + key,
	} {
		w.refused(name, w.call("GET", "/v1/me", "", "", "Authorization", bad), 401, "UNAUTHENTICATED")
	}
	twice := request(t.Context(), "GET", "/v1/me", token, "")
	twice.Header.Add("Authorization", "Bearer "+token) // each is good; which one counts, a proxy may see in another way
	w.refused("two headers", w.serve(twice, ""), 401, "UNAUTHENTICATED")
	w.refused("in the address", w.call("GET", "/v1/me?access_token="+token, "", ""), 401, "UNAUTHENTICATED")
}

// TestForwardedForIsNotBelieved: nothing goes by the address that a client says it has, its rate least of all.
func TestForwardedForIsNotBelieved(t *testing.T) {
	now := time.Now() // stands still, so that the rate gives nothing meanwhile
	w := newWorld(t, func(a *API) { a.AdminRate, a.Now = 1, func() time.Time { return now } })
	refused := 0
	for i := range 10 {
		ip := fmt.Sprintf("10.0.0.%d", i)
		r := w.call("GET", "/v1/admin/dispatches", key, "", "X-Forwarded-For", ip, "X-Real-Ip", ip, "Forwarded", "for="+ip)
		if r.status == 429 {
			refused++
		}
	}
	if refused != 8 { // the burst is two
		t.Errorf("%d of 10 were refused at 1/s", refused)
	}
	if strings.Contains(w.log.String(), "10.0.0.") {
		t.Error("an address that a client made up is in the log")
	}
}

// TestRequestID: an answer and an error have the request id that the client sent, or else a new one.
func TestRequestID(t *testing.T) {
	w := newWorld(t)
	seen := map[string]bool{}
	for range 100 {
		id := w.call("GET", "/nothing", "", "").header.Get("X-Request-Id")
		if seen[id] || id == "" {
			t.Fatalf("%q again", id)
		}
		seen[id] = true
	}
	longest := strings.Repeat("x", maxRequestID)
	for _, path := range []string{"/livez", "/nothing"} {
		for _, id := range []string{"abc-1", longest, "~!@#$%^&*()", `"quoted"`} {
			w.call("GET", path, "", "", "X-Request-Id", id).wantHeader("X-Request-Id", id)
		}
		for _, id := range []string{"", " a", "a b", "a\tb", "a\x7f", "a\x00b", "a\r\nSet-Cookie: x=1", longest + "x", "\u202e", "é"} {
			got := w.call("GET", path, "", "", "X-Request-Id", id).header.Get("X-Request-Id")
			if got == "" || got == id || strings.ContainsAny(got, "\r\n\x00 ") {
				t.Errorf("%q became %q", id, got)
			}
		}
	}
}

// TestRateLimitRefills: the limit refills with time, and each driver and key has its own.
func TestRateLimitRefills(t *testing.T) {
	now := time.Now()
	w := newWorld(t, func(a *API) { a.DriverRate, a.AdminRate, a.Now = 2, 3, func() time.Time { return now } })
	var tokens [2]string
	for i := range tokens { // in the store, as requests to create them would count
		id := dispatch.NewDriverID(now)
		kim := dispatch.Driver{ID: id, Name: "Kim", Regions: []string{"seoul"}, VehicleClass: "45m", OnDuty: true, Version: 1}
		noError(t, w.store.Drivers.AddDrivers(t.Context(), []dispatch.Driver{kim}, false))
		token, _, err := w.tokens.Issue(id, 0)
		noError(t, err)
		tokens[i] = token
	}
	passes := func(token, path string, want int) {
		t.Helper()
		n := 0
		for range 20 {
			if r := w.call("GET", path, token, ""); r.status == 200 {
				n++
			} else {
				w.refused(path, r, 429, "RATE_LIMITED").wantHeader("Retry-After", "1")
			}
		}
		if n != want {
			t.Errorf("%s: %d of 20 requests at once passed, want %d", path, n, want)
		}
	}
	passes(tokens[0], "/v1/me", 4) // twice the rate
	passes(tokens[1], "/v1/me", 4)
	passes(key, "/v1/admin/dispatches", 6)
	now = now.Add(time.Second)
	passes(tokens[0], "/v1/me", 2)
	w.refused("an unknown token counts for no caller", w.call("GET", "/v1/me", "x", ""), 401, "UNAUTHENTICATED")
}

// TestReadyDoesNotQueryTheDatabase: unauthenticated probes of any number cost the database nothing.
func TestReadyDoesNotQueryTheDatabase(t *testing.T) {
	up := true
	w := newWorld(t, func(a *API) { a.DatabaseUp = func() bool { return up } })
	asked := 0
	w.observe(func(ctx context.Context, _ database.Statement) (context.Context, func(error)) {
		asked++
		return ctx, func(error) {}
	})
	for _, up = range []bool{true, false} {
		if r := w.call("GET", "/readyz", "", ""); (r.status == 200) != up {
			t.Errorf("up %v: %d %s", up, r.status, r.raw)
		}
	}
	if asked > 0 {
		t.Errorf("%d statements", asked)
	}
}

func TestReady(t *testing.T) {
	down := false
	w := newWorld(t, func(a *API) { a.RedisDegraded = func() bool { return down }; a.JobsBlocked = a.RedisDegraded })
	for _, c := range []struct {
		down   bool
		status string
		redis  string
	}{{false, "ok", "ok"}, {true, "degraded", "degraded"}} {
		down = c.down
		r := w.call("GET", "/readyz", "", "").want(200, "status", c.status, "redis", c.redis, "database", "ok")
		if strings.Contains(r.raw, `"jobs":"blocked"`) != down {
			t.Errorf("down %v: %s", down, r.raw)
		}
	}
	noError(t, w.store.Close())
	if r := w.call("GET", "/readyz", "", "").want(503, "status", "unavailable", "database", "unavailable"); strings.Contains(r.raw, "closed") {
		t.Errorf("the answer shows internals: %s", r.raw)
	}
	for _, method := range []string{"POST", "GET"} {
		w.refused(method, w.call(method, "/v1/admin/dispatches", key, order(1)), 503, "UNAVAILABLE").hasHeader("Retry-After")
	}
}

// TestRequestsAboveTheRateCostNoStatement: a key that was seen before is not looked up again once it is above its rate.
func TestRequestsAboveTheRateCostNoStatement(t *testing.T) {
	now := time.Now()
	w := newWorld(t, func(a *API) { a.AdminRate, a.Now = 3, func() time.Time { return now } })
	w.putNamedKey("key_busy", dispatch.Viewer, "busy")
	var statements atomic.Int32
	w.observe(func(ctx context.Context, _ database.Statement) (context.Context, func(error)) {
		statements.Add(1)
		return ctx, func(error) {}
	})
	for _, request := range []struct{ method, path, token, body string }{
		{"GET", "/v1/session", "busy", ""}, {"POST", "/v1/session", "", `{"key":"busy"}`},
	} {
		send := func() reply { return w.call(request.method, request.path, request.token, request.body) }
		for range 6 {
			send()
		}
		statements.Store(0)
		for range 20 {
			w.refused(request.path, send(), 429, "RATE_LIMITED")
		}
		if n := statements.Load(); n != 0 {
			t.Errorf("20 refused requests cost %d statements", n)
		}
	}
}
