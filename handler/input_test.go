package handler

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"firsttap/dispatch"
	"firsttap/service"
)

// Bad input gets a clear 4xx, never a 500, and changes nothing.
func TestBadBodies(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	id := w.dispatch(1)
	for _, body := range []string{
		`{"round":0}`, `{"round":-1}`, `{"round":1.5}`, `{"round":"1"}`, `{"round":1e99}`, `{"round":true}`, `{"round":[1]}`,
		`{"rounds":1}`, `{"round":1,"driver_id":"drv_x"}`, `[]`, `"accept"`, `1`, `{`, `{"round":1`, `{"round":1}{"round":1}`,
		`{"round":1} x`, "\x00", "\xff\xfe", `{"round":NaN}`, strings.Repeat("[", 20000), strings.Repeat(" ", maxBody+1) + "{}",
	} {
		r := w.accept(id, d, body)
		if r.status < 400 || r.status > 499 || r.code() == "" || r.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%.40q: %d %s", body, r.status, r.raw)
		}
	}
	for body, field := range map[string]string{
		order(1, `"region":"absent"`):                                                     "region",
		order(1, `"region":" seoul"`):                                                     "region",
		order(1, `"region":"`+strings.Repeat("x", 65)+`"`):                                "region",
		order(1, `"work_ends_at":"2020-01-01T00:00:00Z"`):                                 "work_ends_at",
		order(1, `"work_starts_at":"tomorrow"`):                                           "",
		order(1, `"fee":{"amount":-1,"currency":"KRW"}`):                                  "fee.amount",
		order(1, `"fee":{"amount":1,"currency":"WON"}`):                                   "fee.currency",
		order(1, `"fee":{"amount":1e30,"currency":"KRW"}`):                                "fee.amount",
		order(1, `"site_lat":91`):                                                         "site_lat",
		order(1, `"min_working_height_m":0`):                                              "min_working_height_m",
		order(1, `"status":"ACCEPTED"`):                                                   "status",
		order(1, `"accepted_by":"drv_1"`):                                                 "accepted_by",
		order(1, `"expires_at":"2020-01-01T00:00:00Z"`):                                   "expires_at",
		order(1, `"opens_at":"9999-01-01T00:00:00Z","expires_at":"2030-01-01T00:00:00Z"`): "expires_at",
		order(1, `"note":"`+strings.Repeat("x", 2001)+`"`):                                "note",
		order(1, `"external_id":"a\u0000b"`):                                              "external_id",
	} {
		r := w.call("POST", "/v1/admin/dispatches", key, body)
		if r.status < 400 || r.status > 499 || field != "" && !strings.Contains(r.raw, fmt.Sprintf(`"field":%q`, field)) {
			t.Errorf("%s: %d %s", field, r.status, r.raw)
		}
	}
	if r := w.call("GET", "/v1/admin/dispatches", key, ""); len(r.json["items"].([]any)) != 1 || r.at("items").([]any)[0].(map[string]any)["version"] != 1.0 {
		t.Errorf("something changed: %s", r.raw)
	}
	if strings.Contains(w.log.String(), "level=ERROR") {
		t.Errorf("an error of ours: %s", w.log)
	}
}

func TestBodyLimit(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	w.refused("more than 64 KiB", w.accept(w.dispatch(1), d, `{"round":1,"x":"`+strings.Repeat("x", maxBody)+`"}`), 413, "BODY_TOO_LARGE")
}

func TestPaths(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	for _, id := range []string{"x", "dsp_", "dsp_1%27%20OR%201=1--", "drv_" + strings.Repeat("0", 26), "dsp_" + strings.Repeat("z", 26), "dsp_%00", strings.Repeat("d", 5000), "%2e%2e", "*"} {
		for method, path := range map[string]string{
			"GET": "/v1/dispatches/%s", "POST": "/v1/dispatches/%s/accept",
		} {
			if r := w.call(method, fmt.Sprintf(path, id), d.token, ""); r.status != 404 || r.code() == "" {
				t.Errorf("%s %.40s: %d %s", method, id, r.status, r.raw)
			}
		}
		w.call("GET", "/v1/admin/dispatches/"+id, key, "").want(404)
	}
	w.refused("no such address", w.call("GET", "/v2/me", d.token, ""), 404, "NOT_FOUND")
	w.refused("no such method", w.call("DELETE", "/v1/me", d.token, ""), 405, "METHOD_NOT_ALLOWED")
	for _, q := range []string{"limit=0", "limit=201", "limit=x", "status=OPEN", "cursor=x", "cursor=%00", "cursor=AAAAAAAAAAAAAA"} {
		if r := w.call("GET", "/v1/admin/dispatches?"+q, key, ""); r.status < 400 || r.status > 499 {
			t.Errorf("%s: %d %s", q, r.status, r.raw)
		}
	}
}

func TestForgedTokens(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	now := time.Now()
	good := func() jwt.MapClaims {
		return jwt.MapClaims{"iss": "firsttap", "aud": "driver", "sub": d.id, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	}
	sign := func(method jwt.SigningMethod, secret any, change func(jwt.MapClaims)) string {
		claims := good()
		change(claims)
		token, err := jwt.NewWithClaims(method, claims).SignedString(secret)
		noError(t, err)
		return token
	}
	secret, same := []byte("secret"), func(jwt.MapClaims) {}
	set := func(k string, v any) func(jwt.MapClaims) { return func(c jwt.MapClaims) { c[k] = v } }
	without := func(k string) func(jwt.MapClaims) { return func(c jwt.MapClaims) { delete(c, k) } }
	w.call("GET", "/v1/me", sign(jwt.SigningMethodHS256, secret, same), "").want(200)
	parts := strings.Split(d.token, ".")
	for name, token := range map[string]string{
		"none":                         sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, same),
		"HS384":                        sign(jwt.SigningMethodHS384, secret, same),
		"HS512":                        sign(jwt.SigningMethodHS512, secret, same),
		"another secret":               sign(jwt.SigningMethodHS256, []byte("Secret"), same),
		"empty secret":                 sign(jwt.SigningMethodHS256, []byte{}, same),
		"expired":                      sign(jwt.SigningMethodHS256, secret, set("exp", now.Add(-time.Second).Unix())),
		"no exp":                       sign(jwt.SigningMethodHS256, secret, without("exp")),
		"exp as text":                  sign(jwt.SigningMethodHS256, secret, set("exp", "never")),
		"not yet":                      sign(jwt.SigningMethodHS256, secret, set("nbf", now.Add(time.Hour).Unix())),
		"made tomorrow":                sign(jwt.SigningMethodHS256, secret, set("iat", now.Add(time.Hour).Unix())),
		"another issuer":               sign(jwt.SigningMethodHS256, secret, set("iss", "lasttap")),
		"no issuer":                    sign(jwt.SigningMethodHS256, secret, without("iss")),
		"another audience":             sign(jwt.SigningMethodHS256, secret, set("aud", "admin")),
		"no audience":                  sign(jwt.SigningMethodHS256, secret, without("aud")),
		"no subject":                   sign(jwt.SigningMethodHS256, secret, without("sub")),
		"not a driver":                 sign(jwt.SigningMethodHS256, secret, set("sub", "key_first")),
		"an unknown driver":            sign(jwt.SigningMethodHS256, secret, set("sub", "drv_"+strings.Repeat("0", 26))),
		"cut off":                      d.token[:len(d.token)-2],
		"the payload of another token": parts[0] + "." + strings.Split(sign(jwt.SigningMethodHS256, []byte("x"), set("sub", "drv_"+strings.Repeat("1", 26))), ".")[1] + "." + parts[2],
		"no signature":                 parts[0] + "." + parts[1] + ".",
		"more dots":                    d.token + ".x",
		"garbage":                      "x.y.z",
		"huge":                         strings.Repeat("a", 15000),
		"an admin's key":               key,
	} {
		r := w.call("GET", "/v1/me", token, "")
		w.refused(name, r, 401, "UNAUTHENTICATED")
		if r.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", name)
		}
	}
	for _, header := range []string{"", "Bearer", "Bearer ", "Basic " + d.token, d.token} {
		w.refused(header, w.call("GET", "/v1/me", "", "", "Authorization", header), 401, "UNAUTHENTICATED")
	}
	w.refused("a driver as admin", w.call("GET", "/v1/admin/dispatches", d.token, ""), 401, "UNAUTHENTICATED")
}

// A token that was verified once is refused from the second in which it ends.
func TestCachedTokenEnds(t *testing.T) {
	now := time.Now()
	tokens := service.NewTokens(service.TokenOptions{Revocations: service.NoRevocations(), Secret: []byte("secret"), Now: func() time.Time { return now }})
	driver := dispatch.NewDriverID(now)
	token, until, err := tokens.Issue(driver, 0)
	noError(t, err)
	for range 2 {
		if got, err := tokens.Driver(token); got != driver || err != nil {
			t.Fatal(got, err)
		}
	}
	now = until
	if _, err := tokens.Driver(token); err == nil {
		t.Error("good after its end")
	}
}

func TestRolesAndKeys(t *testing.T) {
	w := newWorld(t)
	for role, keyOf := range map[dispatch.Role]string{dispatch.Viewer: "v", dispatch.Dispatcher: "d"} {
		w.putKey(role, keyOf)
	}
	id := w.dispatch(1)
	for _, tt := range []struct {
		key, method, path, body string
		want                    int
	}{
		{"v", "GET", "/v1/admin/dispatches", "", 200},
		{"v", "POST", "/v1/admin/dispatches", order(2), 403},
		{"v", "POST", "/v1/admin/dispatches/" + id + "/cancel", "", 403},
		{"v", "POST", "/v1/admin/drivers/bulk", `{"drivers":[]}`, 403},
		{"d", "POST", "/v1/admin/dispatches", order(2), 201},
		{"d", "POST", "/v1/admin/drivers/bulk", `{"drivers":[]}`, 403},
		{"v", "GET", "/v1/admin/notifications", "", 200},
		{"v", "GET", "/v1/admin/dispatches/" + id + "/notifications", "", 200},
		{"v", "POST", "/v1/admin/notifications/ntf_1/redrive", "", 403},
		{"d", "POST", "/v1/admin/notifications/ntf_1/redrive", "", 404},
		{"no key", "GET", "/v1/admin/dispatches", "", 401},
	} {
		w.call(tt.method, tt.path, tt.key, tt.body).want(tt.want)
	}
}

func TestVersions(t *testing.T) {
	w := newWorld(t)
	id := w.dispatch(1)
	path := "/v1/admin/dispatches/" + id + "/cancel"
	w.refused("no version", w.call("POST", path, key, ""), 428, "PRECONDITION_REQUIRED")
	for _, v := range []string{`"2"`, `"0"`, `x`, `"1", "2"`} {
		w.refused(v, w.call("POST", path, key, "", "If-Match", v), 412, "VERSION_MOVED")
	}
	got := w.call("GET", "/v1/admin/dispatches/"+id, key, "")
	r := w.call("POST", path, key, `{"reason_code":"WEATHER"}`, "If-Match", got.header.Get("ETag")).want(200, "status", "CANCELED")
	w.refused("twice", w.call("POST", path, key, "", "If-Match", r.header.Get("ETag")), 409, "INVALID_STATE")
	again := w.call("POST", "/v1/admin/dispatches", key, order(3, `"external_id":"erp-1"`))
	if again.status != 201 || again.header.Get("Location") == "" {
		t.Fatal(again.raw)
	}
	w.refused("the same external id", w.call("POST", "/v1/admin/dispatches", key, order(4, `"external_id":"erp-1"`)), 409, "DUPLICATE_EXTERNAL_ID")
}

func TestRateLimitIsPerDriver(t *testing.T) {
	w := newWorld(t, func(api *API) { api.DriverRate = 1; now := time.Now(); api.Now = func() time.Time { return now } })
	d := w.drivers(2)
	for range 2 { // a burst of twice the rate
		w.call("GET", "/v1/me", d[0].token, "").want(200)
	}
	w.refused("the third", w.call("GET", "/v1/me", d[0].token, ""), 429, "RATE_LIMITED").wantHeader("Retry-After", "1")
	w.call("GET", "/v1/me", d[1].token, "").want(200)
}

func TestRequestID(t *testing.T) {
	w := newWorld(t)
	if got := w.call("GET", "/livez", "", "", "X-Request-Id", "abc-1").header.Get("X-Request-Id"); got != "abc-1" {
		t.Errorf("not taken over: %q", got)
	}
	for _, bad := range []string{"", "a b", "a\tb", strings.Repeat("x", 129), "é"} {
		if got := w.call("GET", "/livez", "", "", "X-Request-Id", bad).header.Get("X-Request-Id"); got == bad || got == "" {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

func TestBulkDrivers(t *testing.T) {
	w := newWorld(t)
	if n := len(w.drivers(1000)); n != 1000 {
		t.Error(n)
	}
	one := `{"name":"A","phone":"+821012345678","regions":["seoul"],"vehicle_class":"45m"}`
	bad := []string{
		`{"drivers":[` + strings.Repeat(one+",", 1000) + one + `]}`,
		`{"drivers":[]}`, `{}`, `{"drivers":[` + one + `,{}]}`,
		`{"drivers":[` + strings.Replace(one, "+821012345678", "010-1234-5678", 1) + `]}`,
		`{"drivers":[` + strings.Replace(one, `["seoul"]`, `[]`, 1) + `]}`,
		`{"drivers":[` + strings.Replace(one, `"name"`, `"id":"drv_1","name"`, 1) + `]}`,
	}
	for _, body := range bad {
		w.call("POST", "/v1/admin/drivers/bulk", key, body).want(422)
	}
	twice := strings.Replace(one, `"name"`, `"firebase_uid":"u1","name"`, 1)
	w.refused("one uid, two drivers", w.call("POST", "/v1/admin/drivers/bulk", key, `{"drivers":[`+twice+","+twice+`]}`), 409, "DUPLICATE_FIREBASE_UID")
	w.call("POST", "/v1/admin/drivers/bulk", key, `{"drivers":[`+twice+`]}`).want(200)
}

func TestOffers(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	want := []string{w.dispatch(3), w.dispatch(2), w.dispatch(1)}
	w.dispatch(4, `"region":"jeju"`)
	w.dispatch(5, `"min_working_height_m":46`)
	var got []string
	for cursor := ""; ; {
		r := w.call("GET", "/v1/me/offers?limit=2&cursor="+cursor, d.token, "").want(200)
		for _, o := range r.json["items"].([]any) {
			offer := o.(map[string]any)
			got = append([]string{offer["id"].(string)}, got...)
			if offer["round"] != 1.0 || offer["opens_at"] == nil || offer["expires_at"] == nil || offer["offer_status"] == nil {
				t.Errorf("offer: %v", offer)
			}
		}
		next, more := r.json["next_cursor"].(string)
		if !more {
			break
		}
		cursor = next
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("offers %v, want %v", got, want)
	}
	w.call("PUT", "/v1/me/duty", d.token, `{"on_duty":false}`)
	w.call("GET", "/v1/me/offers", d.token, "").want(http.StatusOK).wantItems(0)
}

// Whatever a body is, the answer is one of ours.
func FuzzBodies(f *testing.F) {
	w := newWorld(f)
	d := w.drivers(1)[0]
	id := w.dispatch(1)
	f.Add(`{"round":1}`)
	f.Add(order(1))
	f.Add(`{"drivers":[{}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		w.t = t
		for path, token := range map[string]string{
			"/v1/dispatches/" + id + "/accept": d.token, "/v1/admin/dispatches": key, "/v1/admin/drivers/bulk": key,
			"/v1/dispatches/" + id + "/withdraw": d.token,
		} {
			if r := w.call("POST", path, token, body); r.status >= 500 || r.status < 200 {
				t.Errorf("POST %s %q: %d %s", path, body, r.status, r.raw)
			}
		}
	})
}
