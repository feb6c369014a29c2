package handler

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
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
		"null", " null\n",
		`{"round":9223372036854775808}`, `{"round":-9223372036854775808}`, `{"round":{}}`, `{"round":Infinity}`, `{"round":01}`, `{"round":0x1}`,
		`{"round":1,}`, `{'round':1}`, `{round:1}`, `// x`, `{"round":1}/**/`, `{"round":1}]`, `{"":1}`, "{\"round\":1}\x00",
		`[{"round":1}]`, `true`, `""`, `}`, `round=1`, `<xml/>`, strings.Repeat(`{"a":`, 11000), `{"round":` + strings.Repeat("9", 60000) + `}`,
		`{"` + strings.Repeat("x", 60000) + `":1}`, "--x\r\nContent-Disposition: form-data; name=\"round\"\r\n\r\n1\r\n--x--",
	} {
		w.ours(body[:min(40, len(body))], w.accept(id, d, body))
	}
	for body, field := range map[string]string{
		order(1, `"region":"absent"`):                                                             "region",
		order(1, `"region":"seoul\ufffd"`):                                                        "region",
		order(1, `"region":"`+strings.Repeat("x", 65)+`"`):                                        "region",
		order(1, `"work_ends_at":"2020-01-01T00:00:00Z"`):                                         "work_ends_at",
		order(1, `"fee":{"amount":-1,"currency":"KRW"}`):                                          "fee.amount",
		order(1, `"fee":{"amount":1,"currency":"WON"}`):                                           "fee.currency",
		order(1, `"site_lat":91`):                                                                 "site_lat",
		order(1, `"min_working_height_m":0`):                                                      "min_working_height_m",
		order(1, `"status":"ACCEPTED"`):                                                           "status",
		order(1, `"expires_at":"2020-01-01T00:00:00Z"`):                                           "expires_at",
		order(1, `"opens_at":"9999-01-01T00:00:00Z","expires_at":"2030-01-01T00:00:00Z"`):         "opens_at",
		order(1, `"note":"`+strings.Repeat("x", 2001)+`"`):                                        "note",
		order(1, `"external_id":"a\u0000b"`):                                                      "external_id",
		order(-3):                                                                                 "work_ends_at", // it is over
		order(1, `"work_starts_at":"2025-01-01T00:00:00Z","work_ends_at":"2025-01-01T03:00:00Z"`): "work_ends_at",
		order(1, `"opens_at":"`+inFuture(3*time.Hour)+`"`):                                        "opens_at",
		order(1, `"expires_at":"`+inFuture(3*time.Hour)+`"`):                                      "expires_at",
		order(1, `"work_ends_at":"9999-12-31T23:59:59-12:00"`):                                    "work_ends_at",
		order(1, `"work_starts_at":"0000-01-01T00:00:00+14:00"`):                                  "work_starts_at",
	} {
		w.refused(field, w.call("POST", "/v1/admin/dispatches", key, body), 422, "VALIDATION_FAILED").hasField(field)
	}
	notText := w.call("POST", "/v1/admin/dispatches", key, strings.Replace(order(1), `"note":"`, "\"note\":\"\xff\xfe", 1))
	w.refused("invalid UTF-8", notText, 400, "MALFORMED_REQUEST")
	w.call("GET", "/v1/admin/dispatches", key, "").want(200).wantItems(1)
	w.untouched(id)
	w.noErrorLogged()
}

func TestPaths(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	for _, id := range []string{
		"x", "dsp_", "dsp_1%27%20OR%201=1--", "drv_" + strings.Repeat("0", 26), "dsp_" + strings.Repeat("z", 26), "dsp_%00",
		strings.Repeat("d", 5000), "%2e%2e", "*",
	} {
		for _, r := range []reply{
			w.call("GET", "/v1/dispatches/"+id, d.token, ""), w.accept(id, d, ""), w.call("GET", "/v1/admin/dispatches/"+id, key, ""),
		} {
			w.refused(id, r, 404, "DISPATCH_NOT_FOUND")
		}
	}
	w.refused("no such address", w.call("GET", "/v2/me", d.token, ""), 404, "NOT_FOUND")
	w.refused("no such method", w.call("DELETE", "/v1/me", d.token, ""), 405, "METHOD_NOT_ALLOWED")
}

// TestForgedTokens: a token that is not good is refused alike, whatever is wrong with it.
func TestForgedTokens(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	unknown, _, err := w.tokens.Issue("drv_"+dispatch.DriverID(strings.Repeat("0", 26)), 0)
	noError(t, err)
	for name, token := range map[string]string{
		"cut off": d.token[:len(d.token)-2], "garbage": "x.y.z", "huge": strings.Repeat("a", 15000), "an admin's key": key,
		"an unknown driver's": unknown,
	} {
		w.refused(name, w.call("GET", "/v1/me", token, ""), 401, "UNAUTHENTICATED").wantHeader("WWW-Authenticate", "Bearer")
	}
}

func TestBulkDrivers(t *testing.T) {
	w := newWorld(t)
	w.drivers(1000)
	one := `{"name":"A","phone":"+821012345678","regions":["seoul"],"vehicle_class":"45m"}`
	bad := []string{
		`{"drivers":[` + strings.Repeat(one+",", 1000) + one + `]}`,
		`{"drivers":[]}`, `{}`, `{"drivers":[` + one + `,{}]}`,
		`{"drivers":[` + strings.Replace(one, "+821012345678", "010-12", 1) + `]}`,
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
	for _, offer := range slices.Concat(w.pages("/v1/me/offers?limit=2", d.token)...) {
		got = append([]string{offer["id"].(string)}, got...)
		if offer["round"] != 1.0 || offer["opens_at"] == nil || offer["expires_at"] == nil || offer["offer_status"] == nil {
			t.Errorf("offer: %v", offer)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("offers %v, want %v", got, want)
	}
	w.call("PUT", "/v1/me/duty", d.token, `{"on_duty":false}`)
	w.call("GET", "/v1/me/offers", d.token, "").want(http.StatusOK).wantItems(0)
}

// TestNamesCountOnceAndByCase: bodies that another parser might read differently are refused.
func TestNamesCountOnceAndByCase(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct{ body, field string }{
		"another case":      {strings.Replace(order(1), `"region"`, `"Region"`, 1), "Region"},
		"twice":             {strings.Replace(order(1), `{`, `{"region":"busan",`, 1), "region"},
		"twice, at the end": {strings.TrimSuffix(order(1), "}") + `,"fee":{"amount":2,"currency":"KRW"}}`, "fee"},
		"inside":            {order(1, `"fee":{"amount":1,"Currency":"KRW"}`), "fee.Currency"},
		"a number":          {order(1, `"region":5`), "region"},
		"no whole number":   {order(1, `"fee":{"amount":1.5,"currency":"KRW"}`), "fee.amount"},
		"too large":         {strings.Replace(order(1, `"fee":{"amount":77,"currency":"KRW"}`), "77", "1e30", 1), "fee.amount"},
		"no time":           {order(1, `"work_starts_at":"tomorrow"`), "work_starts_at"},
		"a list":            {order(1, `"site_address":["a"]`), "site_address"},
		"accepted by":       {order(1, `"accepted_by":"drv_00000000000000000000000000"`), "accepted_by"},
	} {
		w.refused(name, w.call("POST", "/v1/admin/dispatches", key, c.body), 422, "VALIDATION_FAILED").hasField(c.field)
	}
	bulk := `{"drivers":[{"name":"Kim","phone":"+821000000000","regions":["seoul"],"vehicle_class":"45m"},{"name":"Lee","Phone":"x"}]}`
	if r := w.call("POST", "/v1/admin/drivers/bulk", key, bulk); !strings.Contains(r.raw, `"field":"drivers[1].Phone"`) {
		t.Errorf("in a list: %s", r.raw)
	}
}

// A value that the database can't store is the caller's error, which names the field, and no outage that invites another try.
func TestValueThatCantBeStored(t *testing.T) {
	p := describe(&dispatch.InvalidValueError{Field: "note", Err: errors.New("Data too long for column 'note' at row 1")}, "/x")
	if p.Status != 422 || p.Code != "VALIDATION_FAILED" || len(p.Errors) != 1 || p.Errors[0].Field != "note" || strings.Contains(p.Detail+p.Errors[0].Message, "column") {
		t.Errorf("%+v", p)
	}
}
