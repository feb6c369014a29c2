package handler

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
)

// TestEveryAnswerIsGuarded: successes, errors, and requests without a route.
func TestEveryAnswerIsGuarded(t *testing.T) {
	w := newWorld(t)
	d, id := w.drivers(1)[0], w.dispatch(1)
	for name, r := range map[string]reply{
		"a success": w.call("GET", "/v1/me", d.token, ""), "an accept": w.accept(id, d, ""), "an admin's": w.call("GET", "/v1/admin/dispatches", key, ""),
		"no token": w.call("GET", "/v1/me", "", ""), "nowhere": w.call("GET", "/nowhere", "", ""), "another method": w.call("PATCH", "/v1/me", d.token, ""),
		"a probe": w.call("GET", "/livez", "", ""), "malformed": w.accept(id, d, "{"), "no content": w.on(id, "seen", d),
	} {
		for header, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
			"Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "Strict-Transport-Security": "",
		} {
			if got := r.header.Get(header); got != want {
				t.Errorf("%s (%d): %s is %q", name, r.status, header, got)
			}
		}
	}
	for proto, want := range map[string]string{
		"https": "max-age=31536000", "HTTPS": "max-age=31536000", "https, http": "max-age=31536000", "http, https": "", "httpsx": "",
	} {
		r := w.call("GET", "/livez", "", "", "X-Forwarded-Proto", proto)
		if got := r.header.Get("Strict-Transport-Security"); got != want {
			t.Errorf("behind %q: %q", proto, got)
		}
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
		"huge": "Bearer " + strings.Repeat("a", 1<<20), "the admin's": "Bearer " + key,
	} {
		w.refused(name, w.call("GET", "/v1/me", "", "", "Authorization", bad), 401, "UNAUTHENTICATED")
	}
	// Each of them is good; which one counts, a proxy may see in another way.
	w.refused("two headers", w.callTwice("/v1/me", "Bearer "+token, "Bearer "+token), 401, "UNAUTHENTICATED")
	w.refused("in the address", w.call("GET", "/v1/me?access_token="+token, "", ""), 401, "UNAUTHENTICATED")
}

// TestForwardedForIsNotBelieved: nothing goes by the address that a client says it has, its rate least of all.
func TestForwardedForIsNotBelieved(t *testing.T) {
	w := newWorld(t, func(a *API) { a.AdminRate = 1 })
	refused := 0
	for i := range 10 {
		ip := fmt.Sprintf("10.0.0.%d", i)
		r := w.call("GET", "/v1/admin/dispatches", key, "", "X-Forwarded-For", ip, "X-Real-Ip", ip, "Forwarded", "for="+ip)
		if r.status == 429 {
			refused++
		}
	}
	if refused < 7 {
		t.Errorf("%d of 10 were refused at 1/s", refused)
	}
	if strings.Contains(w.log.String(), "10.0.0.") {
		t.Error("an address that a client made up is in the log")
	}
}

func (w *world) callTwice(path string, authorizations ...string) reply {
	req := httptest.NewRequestWithContext(context.Background(), "GET", path, http.NoBody)
	req.Header["Authorization"] = authorizations
	rec := httptest.NewRecorder()
	w.api.ServeHTTP(rec, req)
	return replyTo(w.t, req, "", rec)
}

// TestRequestIDOfAnError: an error has the request id that the client sent.
func TestRequestIDOfAnError(t *testing.T) {
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
	for _, id := range []string{"a", longest, "~!@#$%^&*()", `"quoted"`} {
		if got := w.call("GET", "/nothing", "", "", "X-Request-Id", id).header.Get("X-Request-Id"); got != id {
			t.Errorf("%q became %q", id, got)
		}
	}
	for _, id := range []string{" a", "a\x7f", "a\x00b", "a\r\nSet-Cookie: x=1", longest + "x", "\u202e"} {
		if got := w.call("GET", "/nothing", "", "", "X-Request-Id", id).header.Get("X-Request-Id"); got == id || strings.ContainsAny(got, "\r\n\x00 ") {
			t.Errorf("%q became %q", id, got)
		}
	}
}

// TestRateLimitRefills: the limit refills with time, and each key has its own.
func TestRateLimitRefills(t *testing.T) {
	now := time.Now()
	w := newWorld(t, func(a *API) { a.DriverRate, a.AdminRate, a.Now = 2, 3, func() time.Time { return now } })
	// The driver is created in the store, as requests to create it would count.
	id := dispatch.NewDriverID(now)
	if err := w.store.AddDrivers(t.Context(), []dispatch.Driver{{ID: id, Name: "Kim", Regions: []string{"seoul"}, VehicleClass: "45m", OnDuty: true, Version: 1}}); err != nil {
		t.Fatal(err)
	}
	token, _, err := w.tokens.Issue(id, 0)
	noError(t, err)
	passed := func(token, path string) (n int) {
		for range 20 {
			switch r := w.call("GET", path, token, ""); r.status {
			case 200:
				n++
			default:
				w.refused(path, r, 429, "RATE_LIMITED").wantHeader("Retry-After", "1")
			}
		}
		return n
	}
	if n := passed(token, "/v1/me"); n != 4 {
		t.Errorf("%d in a burst, want twice the rate", n)
	}
	if n := passed(key, "/v1/admin/dispatches"); n != 6 {
		t.Errorf("%d of the key's, want twice its rate", n)
	}
	now = now.Add(time.Second)
	if n := passed(token, "/v1/me"); n != 2 {
		t.Errorf("%d after a second, want 2", n)
	}
	w.refused("an unknown token counts for no caller", w.call("GET", "/v1/me", "x", ""), 401, "UNAUTHENTICATED")
}
