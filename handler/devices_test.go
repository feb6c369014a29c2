package handler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"firsttap/testkit"
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
		mustHave(t, "the device", r.json, "installation_id", "platform", "app_version", "locale", "updated_at")
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
		`"platform":""`, `"platform":"Android"`, `"platform":null`, `"platform":1`, `"push_token":""`, `"push_token":"a b"`,
		`"push_token":"토큰"`, `"push_token":"a\u007f"`, `"push_token":null`, `"push_token":"` + strings.Repeat("x", 1025) + `"`,
		`"app_version":1`, `"locale":1`, `"locale":["ko"]`, `"push_token":"a\u200bb"`,
		`"driver_id":"drv_1"`, `"installation_id":"x"`, `"quarantined_at":null`,
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

// TestOneTokenOfManyDrivers: when many drivers register the same push token at once, each gets the answer 200, and a dispatch is
// pushed to the token once, because only the last registration holds it.
func TestOneTokenOfManyDrivers(t *testing.T) {
	w := newWorld(t)
	drivers := w.drivers(12)
	testkit.Together(len(drivers), func(i int) {
		w.call("PUT", "/v1/me/devices/a%2Fb", drivers[i].token, aDevice).want(200)
	})
	id := w.dispatch(1)
	if pushes := w.tell(); len(pushes) != 1 || pushes[0].Device.PushToken != "token-1" || string(pushes[0].Dispatch.ID) != id {
		t.Errorf("pushed: %+v", pushes)
	}
}

// TestSeen: the current round and earlier rounds can be marked as seen; later rounds are refused.
func TestSeen(t *testing.T) {
	w := newWorld(t)
	d, far := w.drivers(2), w.drivers(1, `"regions":["jeju"]`)[0]
	id := w.dispatch(1)
	seen := func(d caller, body string) reply { return w.call("POST", "/v1/dispatches/"+id+"/seen", d.token, body) }
	funnel := func() string {
		return fmt.Sprint(w.call("GET", "/v1/admin/dispatches/"+id+"/notifications", key, "").at("funnel"))
	}
	for _, body := range []string{"", "{}", `{"round":1}`, `{"round":null}`} {
		seen(d[0], body).want(204).wantBody("")
	}
	if got := funnel(); !strings.Contains(got, "seen:1 ") {
		t.Errorf("the funnel: %s", got)
	}
	w.refused("a round to come", seen(d[0], `{"round":2}`), 409, "OFFER_STALE")
	for _, body := range []string{`{"round":0}`, `{"round":-1}`, `{"round":"1"}`, `{"rounds":1}`, `{"round":1.5}`, `[]`, `null`} {
		w.ours(body, seen(d[0], body))
	}
	w.refused("not theirs to see", seen(far, ""), 404, "DISPATCH_NOT_FOUND")
	for _, other := range []string{"x", "dsp_" + strings.Repeat("0", 26), "dsp_" + strings.Repeat("z", 26)} {
		w.refused(other, w.call("POST", "/v1/dispatches/"+other+"/seen", d[0].token, ""), 404, "DISPATCH_NOT_FOUND")
	}
	w.accept(id, d[0], "").want(200)
	seen(d[1], "").want(204)
	w.on(id, "withdraw", d[0])
	for _, body := range []string{`{"round":1}`, `{"round":2}`} {
		seen(d[0], body).want(204)
	}
	w.refused("a round to come", seen(d[0], `{"round":3}`), 409, "OFFER_STALE")
	if got := funnel(); strings.Count(got, "seen:2 ") != 1 || strings.Count(got, "seen:1 ") != 1 {
		t.Errorf("the funnel: %s", got)
	}
}
