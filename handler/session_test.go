package handler

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/idempotency"
	"firsttap/notify/stream"
)

// signIn returns the cookie of a new session, as a browser sends it.
func (w *world) signIn(key string) string {
	w.t.Helper()
	r := w.call("POST", "/v1/session", "", fields(map[string]any{"key": key})).want(200)
	cookie, _, _ := strings.Cut(r.header.Get("Set-Cookie"), ";")
	return cookie
}

// by sends a request in a session.
func (w *world) by(cookie, method, path, body string, headers ...string) reply {
	return w.call(method, path, "", body, append([]string{"Cookie", cookie}, headers...)...)
}

func TestSession(t *testing.T) {
	now := time.Now()
	w := newWorld(t, func(a *API) { a.Now = func() time.Time { return now } })
	w.putKey(dispatch.Viewer, "a-viewers-key")
	r := w.call("POST", "/v1/session", "", `{"key":"a-viewers-key"}`)
	ends := shown(now.Add(12 * time.Hour))
	r.want(200, "key_id", "key_viewer", "name", "viewer", "role", "viewer", "expires_at", ends)
	cookies := (&http.Response{Header: r.header}).Cookies()
	if len(cookies) != 1 {
		t.Fatalf("%v", cookies)
	}
	c := cookies[0]
	if c.Name != "firsttap_session" || c.Path != "/v1" || c.Domain != "" || c.MaxAge != 12*60*60 || !c.HttpOnly || c.Secure ||
		c.SameSite != http.SameSiteStrictMode || r.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v", r.header)
	}
	raw, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || strings.Contains(string(raw)+r.raw, "a-viewers-key") {
		t.Errorf("the key is to be read: %q, %v", raw, err)
	}
	if again := w.signIn("a-viewers-key"); again == "firsttap_session="+c.Value {
		t.Error("two sessions look alike")
	}
	cookie := "firsttap_session=" + c.Value
	w.by(cookie, "GET", "/v1/session", "").wantBody(r.raw)
	w.call("GET", "/v1/session", "a-viewers-key", "").want(200, "key_id", "key_viewer", "expires_at", nil)
	w.by(cookie, "GET", "/v1/admin/board", "").want(200)
	w.refused("an operation that viewers may not use", w.by(cookie, "POST", "/v1/admin/dispatches", order(1)), 403, "FORBIDDEN")
	w.by("theme=dark; "+cookie+"; lang=ko", "GET", "/v1/session", "").want(200)
	out := w.by(cookie, "DELETE", "/v1/session", "")
	if got := out.header.Get("Set-Cookie"); out.status != 204 || got != "firsttap_session=; Path=/v1; Max-Age=0; HttpOnly; SameSite=Strict" {
		t.Errorf("%d %s", out.status, got)
	}
}

// TestSessionOverTLS is sent over TLS only, wherever that ends.
func TestSessionOverTLS(t *testing.T) {
	w := newWorld(t)
	sent := func(method string, change func(*http.Request)) string {
		req := request(t.Context(), method, "/v1/session", "", `{"key":"`+key+`"}`)
		change(req)
		return w.serve(req, "").header.Get("Set-Cookie")
	}
	for _, method := range []string{"POST", "DELETE"} {
		for what, change := range map[string]func(*http.Request){
			"here": func(r *http.Request) { r.TLS = &tls.ConnectionState{} }, "a proxy": func(r *http.Request) { r.Header.Set("X-Forwarded-Proto", "https") },
		} {
			c := sent(method, change) // as browsers demand of the prefix
			if !strings.HasPrefix(c, "__Host-firsttap_session=") || !strings.Contains(c, "; Path=/; ") || !strings.Contains(c, "; Secure;") || strings.Contains(c, "Domain") {
				t.Errorf("%s, %s: %s", method, what, c)
			}
		}
	}
}

// TestASiblingsCookie: over TLS, a cookie with the name that a sibling subdomain can set neither signs a user in nor disturbs a
// session; over plain HTTP, the cookie with the name for TLS is ignored.
func TestASiblingsCookie(t *testing.T) {
	w := newWorld(t)
	w.putKey(dispatch.Viewer, "viewer")
	theirs := w.signIn("viewer")
	_, value, _ := strings.Cut(w.signIn(key), "=")
	const https = "X-Forwarded-Proto"
	signedIn := w.call("POST", "/v1/session", "", `{"key":"`+key+`"}`, https, "https")
	ours, _, _ := strings.Cut(signedIn.header.Get("Set-Cookie"), ";")
	for _, cookies := range map[string]string{
		"alone": ours, "a session of theirs before": theirs + "; " + ours, "and after": ours + "; " + theirs, "garbage": "firsttap_session=x; " + ours + "; firsttap_session=y",
	} {
		w.by(cookies, "GET", "/v1/session", "", https, "https").want(200, "key_id", dispatch.FirstKeyID)
	}
	w.refused("theirs alone", w.by(theirs, "GET", "/v1/session", "", https, "https"), 401, "UNAUTHENTICATED")
	w.refused("two of ours", w.by(ours+"; "+ours, "GET", "/v1/session", "", https, "https"), 401, "UNAUTHENTICATED")
	w.refused("over plain HTTP", w.by("__Host-firsttap_session="+value, "GET", "/v1/session", ""), 401, "UNAUTHENTICATED")
}

// TestBrowser: a cookie jar accepts the cookie, and sends it to the API only.
func TestBrowser(t *testing.T) {
	l := newLive(t, stream.Options{})
	jar, err := cookiejar.New(nil)
	noError(t, err)
	browser := &http.Client{Jar: jar}
	t.Cleanup(browser.CloseIdleConnections)
	do := func(method, path, body string, want int) {
		t.Helper()
		req := request(t.Context(), method, l.url+path, "", body)
		req.RequestURI = ""
		r, err := browser.Do(req)
		noError(t, err)
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("%s %s: %s", method, path, r.Status)
		}
	}
	do("GET", "/v1/session", "", 401)
	do("POST", "/v1/session", `{"key":"`+key+`"}`, 200)
	do("GET", "/v1/session", "", 200)
	do("POST", "/v1/admin/dispatches", order(1), 201)
	for path, want := range map[string]int{"/v1/admin/board": 1, "/console/": 0, "/driver/": 0, "/docs": 0} {
		req := request(t.Context(), "GET", l.url+path, "", "")
		if sent := jar.Cookies(req.URL); len(sent) != want {
			t.Errorf("%s gets %v", path, sent)
		}
	}
	do("DELETE", "/v1/session", "", 204)
	do("GET", "/v1/session", "", 401)
	do("DELETE", "/v1/session", "", 204)
}

// TestSessionEnds with its time, and at once with its key.
func TestSessionEnds(t *testing.T) {
	now := time.Now()
	w := newWorld(t, func(a *API) { a.Now = func() time.Time { return now } })
	w.putKey(dispatch.Viewer, "viewer")
	cookie, other := w.signIn("viewer"), w.signIn(key)
	now = now.Add(12*time.Hour - 2*time.Millisecond)
	w.by(cookie, "GET", "/v1/admin/board", "").want(200)
	w.call("DELETE", "/v1/admin/api-keys/key_viewer", key, "").want(204)
	w.refused("with its key", w.by(cookie, "GET", "/v1/admin/board", ""), 401, "UNAUTHENTICATED").wantHeader("WWW-Authenticate", "Bearer")
	w.refused("the session after its end", w.by(cookie, "GET", "/v1/session", ""), 401, "UNAUTHENTICATED")
	w.refused("again with that key", w.call("POST", "/v1/session", "", `{"key":"viewer"}`), 401, "UNAUTHENTICATED")
	w.by(other, "GET", "/v1/session", "").want(200)
	now = now.Add(2 * time.Millisecond)
	w.refused("after 12 hours", w.by(other, "GET", "/v1/session", ""), 401, "UNAUTHENTICATED")
}

// TestStreamOfASession ends with the key, and with the session's time.
func TestStreamOfASession(t *testing.T) {
	l := newLive(t, stream.Options{})
	l.putKey(dispatch.Viewer, "viewer")
	hers, his := l.signIn("viewer"), l.signIn(key)
	revoked, timed := l.open("/v1/admin/stream", "", "", "Cookie", hers), l.open("/v1/admin/stream", "", "", "Cookie", his)
	l.by(his, "DELETE", "/v1/admin/api-keys/key_viewer", "").want(204)
	tell := func(o *open, want string) {
		t.Helper()
		if name, text := o.next(); name != want {
			t.Errorf("%s %s, want %s", name, text, want)
		}
	}
	l.clock.pass(recheckInterval)
	l.tells(dispatch.EventOpened, "")
	tell(revoked, "end")
	tell(timed, string(dispatch.EventOpened))
	l.clock.pass(sessionTTL)
	l.tells(dispatch.EventOpened, "")
	tell(timed, "end")
}

// TestInvalidCookies: forged, changed, cut, of another secret, or two of them.
func TestInvalidCookies(t *testing.T) {
	w := newWorld(t)
	token := w.drivers(1)[0].token
	good := w.signIn(key)
	value := strings.TrimPrefix(good, "firsttap_session=")
	until := time.Now().Add(time.Hour)
	ours, others := newSessions([]byte("secret")), newSessions([]byte("another secret"))
	bad := map[string]string{
		"empty": "", "the key": key, "the key in base64": base64.RawURLEncoding.EncodeToString([]byte(key)), "padded": value + "=", "longer": value + "A",
		"of another secret": others.seal(session{key, until}), "over": ours.seal(session{key, time.Now()}), "without a key": ours.seal(session{"", until}),
		"of a wrong key": ours.seal(session{"x", until}), "of a driver's token": ours.seal(session{token, until}), "a driver's token": token,
		"oversized": strings.Repeat(value, 1000), "of what is no session": cookieText.EncodeToString(ours.cipher.Seal(nil, nil, []byte("short"), nil)),
		"an answer, sealed": base64.RawURLEncoding.EncodeToString(must(newAnswerSeal(key, "k", idempotency.Request{}).close(&answer{Status: 200}))),
	}
	another := strings.TrimPrefix(w.signIn(key), "firsttap_session=")
	bad["two halves"] = value[:len(value)/2] + another[len(another)/2:]
	for i := range value {
		bad["cut at "+value[:i]] = value[:i]
		for _, c := range []byte{'A', 'B', '_'} {
			if value[i] != c {
				bad["changed after "+value[:i]+" to "+string(c)] = value[:i] + string(c) + value[i+1:]
			}
		}
	}
	for what, v := range bad {
		w.refused(what, w.by("firsttap_session="+v, "GET", "/v1/admin/board", ""), 401, "UNAUTHENTICATED")
	}
	for what, cookies := range map[string]string{
		"twice": good + "; " + good, "another one before": "firsttap_session=x; " + good, "another one after": good + "; firsttap_session=x",
		"another name": strings.Replace(good, "session", "Session", 1),
	} {
		w.refused(what, w.by(cookies, "GET", "/v1/admin/board", ""), 401, "UNAUTHENTICATED")
	}
	w.by(good, "GET", "/v1/admin/board", "").want(200)
}

// TestSessionsOfInstances: with the same secret, sessions are valid at all instances; without a secret, at their own instance only.
func TestSessionsOfInstances(t *testing.T) {
	made := session{key, time.UnixMilli(1796083200000)}
	got, err := newSessions([]byte("secret")).open(newSessions([]byte("secret")).seal(made))
	if err != nil || got != made {
		t.Errorf("%v, %v", got, err)
	}
	for _, secret := range [][]byte{nil, {}} {
		if got, err := newSessions(secret).open(newSessions(secret).seal(made)); err == nil {
			t.Errorf("an empty secret opens the cookie: %v", got)
		}
	}
}

// TestSessionsOfAPreviousSecret are opened, and none is made under it.
func TestSessionsOfAPreviousSecret(t *testing.T) {
	made := session{key, time.UnixMilli(1796083200000)}
	before, during, after := newSessions([]byte("old")), newSessions([]byte("new"), []byte("old")), newSessions([]byte("new"))
	for what, of := range map[string]struct {
		made, opened *sessions
		good         bool
	}{
		"old, during": {before, during, true}, "new, during": {during, during, true}, "new, after": {during, after, true},
		"old, after": {before, after, false}, "new, before": {during, before, false},
		"of neither": {newSessions([]byte("another")), during, false},
	} {
		if got, err := of.opened.open(of.made.seal(made)); (err == nil) != of.good || of.good && got != made {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
}

// TestCrossSite: sessions are for this service's own pages. A key in the header may come from any page.
func TestCrossSite(t *testing.T) {
	w := newWorld(t)
	cookie := w.signIn(key)
	signIn := `{"key":"` + key + `"}`
	theirs := map[string][]string{
		"another site":            {"Sec-Fetch-Site", "cross-site"},
		"a sibling":               {"Sec-Fetch-Site", "same-site"},
		"what is new":             {"Sec-Fetch-Site", "near-site"},
		"an older browser":        {"Origin", "https://evil.example"},
		"a frame without origin":  {"Origin", "null"},
		"another port":            {"Origin", "http://example.com:8081"},
		"whoever says it is here": {"Origin", "http://example.com", "Sec-Fetch-Site", "cross-site"},
		"a form":                  {"Origin", "https://evil.example", "Content-Type", "text/plain"},
	}
	for what, headers := range theirs {
		for _, r := range []reply{
			w.by(cookie, "POST", "/v1/admin/dispatches", order(1), headers...),
			w.by(cookie, "GET", "/v1/admin/drivers", "", headers...),
			w.by(cookie, "GET", "/v1/admin/stream", "", headers...),
			w.by(cookie, "GET", "/v1/session", "", headers...),
			w.by(cookie, "DELETE", "/v1/session", "", headers...),
			w.call("DELETE", "/v1/session", "", "", headers...),
			w.call("POST", "/v1/session", "", signIn, headers...),
		} {
			w.refused(what, r, 403, "FORBIDDEN")
			if r.header.Get("Set-Cookie") != "" || strings.Contains(fmt.Sprint(r.at("detail")), "role") {
				t.Errorf("%s: %v %s", what, r.header, r.raw)
			}
		}
		w.refused(what+", with no session", w.by("", "GET", "/v1/session", "", headers...), 401, "UNAUTHENTICATED")
		w.call("POST", "/v1/admin/dispatches", key, order(1), append(headers, "Cookie", cookie)...).want(201)
	}
	if n := len(items(w.call("GET", "/v1/admin/dispatches", key, ""))); n != len(theirs) {
		t.Errorf("%d dispatches", n)
	}
	for _, headers := range map[string][]string{
		"our page": {"Sec-Fetch-Site", "same-origin", "Origin", "http://example.com"}, "the address bar": {"Sec-Fetch-Site", "none"},
		"our page in an older browser": {"Origin", "http://example.com"}, "a program": {},
	} {
		for _, r := range []reply{
			w.by(cookie, "POST", "/v1/admin/dispatches/preview", order(1), headers...), w.by(cookie, "GET", "/v1/admin/board", "", headers...),
			w.call("POST", "/v1/session", "", signIn, headers...),
		} {
			r.want(200)
		}
	}
}

// TestHeaderBeatsCookie: a request with a header and a cookie is made with the header's key, also if that is wrong.
func TestHeaderBeatsCookie(t *testing.T) {
	w := newWorld(t)
	w.putKey(dispatch.Viewer, "viewer")
	cookie, driver := w.signIn(key), w.drivers(1)[0]
	for _, header := range []string{"", "Bearer", "Bearer ", "Bearer x", "Basic " + key, "Bearer " + driver.token, key} {
		w.refused(header, w.by(cookie, "GET", "/v1/admin/board", "", "Authorization", header), 401, "UNAUTHENTICATED")
	}
	w.refused("a viewer's key", w.by(cookie, "GET", "/v1/admin/api-keys", "", "Authorization", "Bearer viewer"), 403, "FORBIDDEN")
	w.by(cookie, "GET", "/v1/session", "", "Authorization", "Bearer viewer").want(200, "key_id", "key_viewer", "expires_at", nil)
	w.by(cookie, "GET", "/v1/session", "", "Authorization", "Bearer "+key).want(200, "expires_at", nil)
	for _, path := range []string{"/v1/me", "/v1/me/offers"} {
		w.refused("a driver's, by the session", w.by(cookie, "GET", path, ""), 401, "UNAUTHENTICATED")
		w.by(cookie, "GET", path, "", "Authorization", "Bearer "+driver.token).want(200)
	}
}
