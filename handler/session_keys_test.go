package handler

import (
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
)

// TestOddKeys sign in if they are keys, and their cookies are small enough for a browser to keep.
func TestOddKeys(t *testing.T) {
	w := newWorld(t)
	for what, odd := range map[string]string{
		"the longest": strings.Repeat("k", 512), "of what JSON escapes": strings.Repeat("\x01", 512), "for HTML": strings.Repeat("<", 512),
		"of four bytes each": strings.Repeat("🏗", 512), "Korean": "열려라 참깨", "of what a header can't have": "a\r\nb\x00", "a cookie's": `";,\ =`, "a space": " ",
	} {
		w.putNamedKey("key_odd", dispatch.Viewer, odd)
		cookie := w.signIn(odd)
		w.by(cookie, "GET", "/v1/session", "").want(200, "key_id", "key_odd")
		if len(cookie) > 4000 {
			t.Errorf("%s: a cookie of %d bytes", what, len(cookie))
		}
	}
	tooLong := strings.Repeat("k", 513)
	w.putNamedKey("key_long", dispatch.Viewer, tooLong)
	for body, field := range map[string]string{
		`{"key":"` + tooLong + `"}`: "key", `{"key":""}`: "key", `{}`: "key", ``: "key", `{"key":5}`: "key", `{"key":null}`: "key",
		`{"Key":"` + key + `"}`: "Key", `{"key":"` + key + `","role":"admin"}`: "role",
	} {
		r := w.refused(body, w.call("POST", "/v1/session", "", body), 422, "VALIDATION_FAILED").wantHeader("Set-Cookie", "")
		if r.hasField(field); strings.Contains(r.raw, key) {
			t.Errorf("the answer has the key: %s", r.raw)
		}
	}
	for _, body := range []string{`null`, `[]`, "{\"key\":\"\xff\"}", "key=" + key} {
		w.refused(body, w.call("POST", "/v1/session", "", body), 400, "MALFORMED_REQUEST")
	}
	w.refused("too much", w.call("POST", "/v1/session", "", `{"key":"`+strings.Repeat("k", maxBody)+`"}`), 413, "BODY_TOO_LARGE")
	driver := w.drivers(1)[0]
	for what, wrong := range map[string]string{"a wrong key": "x", "another case": strings.ToUpper(key), "with a space": key + " ", "a driver's token": driver.token} {
		r := w.refused(what, w.call("POST", "/v1/session", "", fields(map[string]any{"key": wrong})), 401, "UNAUTHENTICATED")
		r.wantHeader("Set-Cookie", "").wantHeader("WWW-Authenticate", "Bearer")
		if strings.Contains(r.text("detail"), "Bearer") {
			t.Errorf("%s: %s", what, r.raw)
		}
	}
}

// TestSigningInCounts against the rate of the key, as all that is done with it.
func TestSigningInCounts(t *testing.T) {
	now := time.Now()
	w := newWorld(t, func(a *API) { a.AdminRate, a.Now = 1, func() time.Time { return now } })
	cookie := w.signIn(key)
	w.by(cookie, "GET", "/v1/session", "").want(200)
	for _, r := range []reply{
		w.call("POST", "/v1/session", "", `{"key":"`+key+`"}`), w.by(cookie, "GET", "/v1/session", ""), w.by(cookie, "GET", "/v1/admin/board", ""),
		w.call("GET", "/v1/admin/board", key, ""),
	} {
		w.refused("the third", r, 429, "RATE_LIMITED").wantHeader("Set-Cookie", "").hasHeader("Retry-After")
	}
	w.by(cookie, "DELETE", "/v1/session", "").want(204)
}

// TestIdempotencyKeyInASession is the key's: sent again in another session of it, or with the key itself, it is the same
// request.
func TestIdempotencyKeyInASession(t *testing.T) {
	w := newWorld(t)
	w.putKey(dispatch.Admin, "another-admin")
	cookie, again := w.signIn(key), w.signIn(key)
	body := `{"name":"Night","role":"viewer"}`
	first := w.by(cookie, "POST", "/v1/admin/api-keys", body, "Idempotency-Key", "one").want(201)
	w.same("in another session", first, w.by(again, "POST", "/v1/admin/api-keys", body, "Idempotency-Key", "one"))
	w.same("with the key", first, w.post("/v1/admin/api-keys", body, "one"))
	w.refused("another body", w.by(cookie, "POST", "/v1/admin/api-keys", `{"name":"Day","role":"viewer"}`, "Idempotency-Key", "one"), 422, "IDEMPOTENCY_KEY_REUSED")
	w.refused("of another site", w.by(cookie, "POST", "/v1/admin/api-keys", body, "Idempotency-Key", "one", "Sec-Fetch-Site", "cross-site"), 403, "FORBIDDEN")
	others := w.by(w.signIn("another-admin"), "POST", "/v1/admin/api-keys", body, "Idempotency-Key", "one").want(201)
	if others.at("key") == first.at("key") {
		t.Errorf("of another key: %s", others.raw)
	}
	w.by(w.signIn(first.text("key")), "GET", "/v1/session", "").want(200, "key_id", first.at("id"), "role", "viewer")
}

// TestAuditOfASession names the key, as where the key itself was sent.
func TestAuditOfASession(t *testing.T) {
	w := newWorld(t)
	w.putKey(dispatch.Admin, "admin")
	w.by(w.signIn("admin"), "POST", "/v1/admin/drivers", driverBody).want(201)
	actors := items(w.call("GET", "/v1/admin/audit?actor=key_admin", key, ""))
	if !slices.ContainsFunc(actors, func(e map[string]any) bool { return e["action"] == "driver.create" }) {
		t.Errorf("%v", actors)
	}
}
