package handler

import (
	"strings"
	"testing"
	"time"

	"firsttap/limit"
	"firsttap/repository/repositorytest"
	"firsttap/servertest"
)

// TestUnclearBodies: null bodies and bodies that are not UTF-8, which encoding/json accepts.
func TestUnclearBodies(t *testing.T) {
	w := newWorld(t)
	d, id := w.drivers(1)[0], w.dispatch(1)
	for name, body := range map[string]string{
		"null": `null`, "null with space": " null\n",
	} {
		r := w.accept(id, d, body)
		w.ours(name, r)
		if r.status == 200 {
			w.on(id, "withdraw", d)
			id = w.dispatch(1)
		}
	}
	r := w.call("POST", "/v1/admin/dispatches", key, strings.Replace(order(1), `"note":"`, "\"note\":\"\xff\xfe", 1))
	w.ours("invalid UTF-8", r)
	if strings.Contains(r.raw, "\ufffd") {
		t.Errorf("and is kept as something else: %s", r.raw)
	}
}

// TestTimesHaveFourDigitYears: RFC 3339 knows no other, and a client's parser fails on the whole list.
func TestTimesHaveFourDigitYears(t *testing.T) {
	w := newWorld(t)
	for _, field := range []string{
		`"opens_at":"9999-12-31T23:55:00Z"`, // expires_at is ten minutes later by default
		`"work_ends_at":"9999-12-31T23:59:59-12:00"`,
		`"work_starts_at":"0000-01-01T00:00:00+14:00"`,
	} {
		r := w.call("POST", "/v1/admin/dispatches", key, order(1, field))
		for _, member := range []string{"opens_at", "expires_at", "work_starts_at", "work_ends_at"} {
			if s, ok := r.at(member).(string); ok {
				if _, err := time.Parse(time.RFC3339, s); err != nil {
					t.Errorf("%s: %d, %s is %q", field, r.status, member, s)
				}
			}
		}
	}
}

// TestRetryAfterIsLongEnough: a client that waits as long as Retry-After says is served.
func TestRetryAfterIsLongEnough(t *testing.T) {
	for _, rate := range []limit.Rate{0.3, 0.6, 0.7} {
		now := time.Now()
		w := newWorld(t, func(a *API) { a.AdminRate, a.Now = rate, func() time.Time { return now } })
		var r reply
		for r = w.call("GET", "/v1/admin/dispatches", key, ""); r.status == 200; {
			r = w.call("GET", "/v1/admin/dispatches", key, "")
		}
		wait, err := time.ParseDuration(r.header.Get("Retry-After") + "s")
		noError(t, err)
		now = now.Add(wait)
		w.call("GET", "/v1/admin/dispatches", key, "").want(200)
	}
}

// TestTokenOfAnUnknownDriver: a valid token of a driver that does not exist is refused on every route.
func TestTokenOfAnUnknownDriver(t *testing.T) {
	w := newWorld(t)
	token, _, err := w.tokens.Issue("drv_"+"00000000000000000000000000", 0)
	noError(t, err)
	for _, path := range []string{"/v1/me", "/v1/me/offers", "/v1/me/dispatches", "/v1/dispatches/" + w.dispatch(1)} {
		w.refused(path, w.call("GET", path, token, ""), 401, "UNAUTHENTICATED")
	}
}

// TestSearchOnMariaDB: neither a search in Korean nor one for invalid text is answered by "try again".
func TestSearchOnMariaDB(t *testing.T) {
	w := newWorldOn(t, repositorytest.URL(t, servertest.MariaDB))
	w.dispatch(1)
	for q, want := range map[string]int{"sejong": 0, "강남": 1, "서울시": 1, "%F0%9F%8F%97": 0, "%ff": 0, "%ed%a0%80": 0, "%00": 0} {
		r := w.call("GET", "/v1/admin/dispatches?q="+q, key, "")
		if items, _ := r.json["items"].([]any); r.status >= 500 || r.status == 200 && len(items) != want {
			t.Errorf("q=%s: %d %.300s", q, r.status, r.raw)
		}
	}
}

// TestSearchForNUL on SQLite finds everything: its LIKE ends at the first NUL.
func TestSearchForNUL(t *testing.T) {
	w := newWorld(t)
	w.dispatch(1)
	if r := w.call("GET", "/v1/admin/dispatches?q=%00", key, ""); r.status == 200 && len(r.json["items"].([]any)) != 0 {
		t.Errorf("found: %.200s", r.raw)
	}
}

// TestOddBodies: unusual spellings of valid bodies are accepted, and invalid bodies are refused.
func TestOddBodies(t *testing.T) {
	w := newWorld(t)
	d, id := w.drivers(1)[0], w.dispatch(1)
	for _, body := range []string{
		`{"round":9223372036854775808}`, `{"round":-9223372036854775808}`, `{"round":{}}`, `{"round":Infinity}`, `{"round":01}`, `{"round":0x1}`,
		`{"round":1,}`, `{'round':1}`, `{round:1}`, `// x`, `{"round":1}/**/`, `{"round":1}]`, `{"":1}`, "{\"round\":1}\x00", "\ufeff{}",
		`[{"round":1}]`, `true`, `""`, `}`, `round=1`, `<xml/>`, strings.Repeat(`{"a":`, 11000), `{"round":` + strings.Repeat("9", 60000) + `}`,
		`{"` + strings.Repeat("x", 60000) + `":1}`, "--x\r\nContent-Disposition: form-data; name=\"round\"\r\n\r\n1\r\n--x--",
	} {
		w.ours(body[:min(40, len(body))], w.accept(id, d, body))
	}
	for _, body := range []string{`{"reason_code":1}`, `{"reason_code":["x"]}`, `{"reason":"x"}`, `{"reason_code":"` + strings.Repeat("x", 65) + `"}`, `{"reason_code":"\u0000"}`, `[]`} {
		w.ours("withdraw "+body, w.call("POST", "/v1/dispatches/"+id+"/withdraw", d.token, body))
		w.ours("cancel "+body, w.call("POST", "/v1/admin/dispatches/"+id+"/cancel", key, body, "If-Match", `"1"`))
	}
	for _, body := range []string{"", "{}", `{"on_duty":null}`, `{"on_duty":"true"}`, `{"on_duty":1}`, `{"on_duty":true,"id":"drv_1"}`} {
		w.ours("duty "+body, w.call("PUT", "/v1/me/duty", d.token, body))
	}
	w.untouched(id)
	w.accept(id, d, " \n\t{ \"round\" : 1 } \r\n").want(200)
	if strings.Contains(w.log.String(), "level=ERROR") {
		t.Errorf("an error of ours: %s", w.log)
	}
}
