package handler

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const aDevice = `{"platform":"android","push_token":"token-1","app_version":"1.2","locale":"ko-KR"}`

func (w *world) device(d caller, installation, token string) {
	w.t.Helper()
	w.call("PUT", "/v1/me/devices/"+installation, d.token, fmt.Sprintf(`{"platform":"android","push_token":%q}`, token)).want(200)
}

// TestDevices: a device is registered, several times, and deleted; no answer has its push token.
func TestDevices(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(2)
	began := time.Now().Truncate(time.Millisecond)
	for range 2 {
		r := w.call("PUT", "/v1/me/devices/phone", d[0].token, aDevice)
		r.want(200, "installation_id", "phone", "platform", "android", "app_version", "1.2", "locale", "ko-KR")
		if at := r.time("updated_at"); at.Before(began) || at.After(time.Now()) || strings.Contains(r.raw, "token-1") {
			t.Error(r.raw)
		}
	}
	w.call("PUT", "/v1/me/devices/tablet", d[1].token, `{"platform":"ios","push_token":"token-1"}`).want(200, "app_version", nil, "locale", nil)
	for _, path := range []string{"phone", "phone", "tablet", "never"} {
		w.call("DELETE", "/v1/me/devices/"+path, d[0].token, "").want(204).wantBody("")
	}
}

func TestInvalidDevices(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	field := func(override string) string {
		name, _, _ := strings.Cut(override, ":")
		var kept []string
		for _, f := range strings.Split(strings.Trim(aDevice, "{}"), ",") {
			if !strings.HasPrefix(f, name+":") {
				kept = append(kept, f)
			}
		}
		return "{" + strings.Join(append(kept, override), ",") + "}"
	}
	for _, override := range []string{
		`"platform":""`, `"platform":"Android"`, `"platform":null`, `"push_token":""`, `"push_token":"a b"`, `"push_token":"토큰"`,
		`"push_token":"a\u007f"`, `"push_token":null`, `"locale":["ko"]`, `"push_token":"a\u200bb"`, `"quarantined_at":null`,
	} {
		r := w.refused(override, w.call("PUT", "/v1/me/devices/phone", d.token, field(override)), 422, "VALIDATION_FAILED")
		r.hasField(strings.Trim(strings.Split(override, ":")[0], `"`))
		if errs, _ := r.at("errors").([]any); len(errs) != 1 {
			t.Errorf("%d errors: %s", len(errs), r.raw)
		}
	}
	for _, body := range []string{"", "{}", "[]", "null", `{"platform":"android","push_token":"x"`, aDevice + aDevice} {
		w.ours(body, w.call("PUT", "/v1/me/devices/phone", d.token, body))
	}
	for _, id := range []string{strings.Repeat("x", 129), "a%20b", "%ED%8F%B0", "a%00", "%7F", "%ff", "%20"} {
		w.refused(id, w.call("PUT", "/v1/me/devices/"+id, d.token, aDevice), 422, "VALIDATION_FAILED")
		w.refused(id, w.call("DELETE", "/v1/me/devices/"+id, d.token, ""), 422, "VALIDATION_FAILED")
	}
	for _, path := range []string{"/v1/me/devices", "/v1/me/devices/", "/v1/me/devices/a/b"} {
		w.ours(path, w.call("PUT", path, d.token, aDevice))
	}
	longest := field(`"push_token":"` + strings.Repeat("~", 1024) + `"`)
	for id, want := range map[string]string{
		strings.Repeat("x", 128): strings.Repeat("x", 128), "a%2Fb%25": "a/b%", "!$&'()*+,;=:@-._~": "!$&'()*+,;=:@-._~", "%22%3C%3E": `"<>`, "a+b": "a+b",
	} {
		w.call("PUT", "/v1/me/devices/"+id, d.token, longest).want(200, "installation_id", want)
	}
	if w.noErrorLogged(); strings.Contains(w.log.String(), "~~~~") {
		t.Errorf("a token is in the log: %s", w.log)
	}
}

// TestDevicesWithOddDetails: a device whose version or locale can't be read is registered all the same, as it gets the pushes.
func TestDevicesWithOddDetails(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	for _, c := range []struct{ version, locale, wantVersion, wantLocale any }{
		{" 4.2.0\n", "ko_KR@calendar=gregorian", "4.2.0", "ko-KR"},
		{strings.Repeat("9", 99), "ko-KR-u-ca-gregory-nu-latn-hc-h23-ms-metric", strings.Repeat("9", 64), "ko-KR"},
		{"1\x00", "POSIX", nil, nil},
		{"\u202e1", strings.Repeat("x", 200), nil, nil},
		{"\u200b", "\u202e", nil, nil},
	} {
		body := toJSON(map[string]any{"platform": "android", "push_token": "t", "app_version": c.version, "locale": c.locale})
		w.call("PUT", "/v1/me/devices/phone", d.token, body).want(200, "app_version", c.wantVersion, "locale", c.wantLocale)
	}
}

// TestSeen: the current round and earlier rounds can be marked as seen; later rounds are refused.
func TestSeen(t *testing.T) {
	w := newWorld(t)
	d, far, id := w.drivers(1)[0], w.drivers(1, `"regions":["jeju"]`)[0], w.dispatch(1)
	seen := func(d caller, body string) reply { return w.call("POST", "/v1/dispatches/"+id+"/seen", d.token, body) }
	seen(d, "").want(204).wantBody("")
	w.refused("a round to come", seen(d, `{"round":2}`), 409, "OFFER_STALE")
	w.refused("no object", seen(d, `null`), 400, "MALFORMED_REQUEST")
	w.refused("not theirs to see", seen(far, ""), 404, "DISPATCH_NOT_FOUND")
	w.accept(id, d, "").want(200)
	w.on(id, "withdraw", d)
	for _, body := range []string{`{"round":1}`, `{"round":2}`, `{"round":null}`} {
		seen(d, body).want(204)
	}
	w.refused("a round to come", seen(d, `{"round":3}`), 409, "OFFER_STALE")
	funnel := fmt.Sprint(w.call("GET", "/v1/admin/dispatches/"+id+"/notifications", key, "").at("funnel"))
	if strings.Count(funnel, "seen:1 ") != 2 {
		t.Errorf("the funnel: %s", funnel)
	}
}
