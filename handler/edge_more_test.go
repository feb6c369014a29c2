package handler

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/limit"
	"firsttap/repository"
)

// TestOddBodies: other spellings of the same, and what is no request at all.
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
	if r := w.accept(id, d, " \n\t{ \"round\" : 1 } \r\n"); r.status != 200 {
		t.Errorf("white space: %s", r.raw)
	}
	if strings.Contains(w.log.String(), "level=ERROR") {
		t.Errorf("an error of ours: %s", w.log)
	}
}

// TestExpiredOnTheWire: a window that has passed is 410, and a dispatch in it can be canceled no more.
func TestExpiredOnTheWire(t *testing.T) {
	w := newWorld(t)
	d, id := w.drivers(1)[0], w.dispatch(1)
	w.expire(id)
	w.refused("too late", w.accept(id, d, `{"round":1}`), 410, "DISPATCH_EXPIRED")
	w.refused("canceled too late", w.call("POST", "/v1/admin/dispatches/"+id+"/cancel", key, "", "If-Match", `"2"`), 409, "INVALID_STATE")
	if r := w.call("GET", "/v1/me/dispatches/"+id+"/claim", d.token, ""); r.at("outcome") != "EXPIRED" {
		t.Errorf("the receipt: %s", r.raw)
	}
	if r := w.call("GET", "/v1/me/offers", d.token, ""); len(r.json["items"].([]any)) != 0 {
		t.Errorf("still offered: %s", r.raw)
	}
}

// TestErrorTable goes through the table with what no test can bring about here.
func TestErrorTable(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{claimError{dispatch.ErrUnknown}, 503, "CLAIM_UNAVAILABLE"},
		{claimError{dispatch.ErrUnavailable}, 503, "CLAIM_UNAVAILABLE"},
		{claimError{errors.Join(dispatch.ErrUnknown, errors.New("the table is full"))}, 503, "CLAIM_UNAVAILABLE"},
		{dispatch.ErrUnknown, 503, "UNAVAILABLE"},
		{claimError{&dispatch.TakenError{}}, 409, "ALREADY_TAKEN"},
		{claimError{dispatch.ErrNotFound}, 404, "DISPATCH_NOT_FOUND"},
		{errors.New("a table is missing at 10.0.0.1"), 500, "INTERNAL"},
	} {
		w := newWorld(t)
		h := &handler{API: API{Log: slog.New(slog.DiscardHandler)}}
		rec := httptest.NewRecorder()
		ctx := echo.New().NewContext(httptest.NewRequestWithContext(t.Context(), "POST", "/v1/x", nil), rec)
		ctx.Response().Header().Set("X-Request-Id", "r")
		h.answerError(c.err, ctx)
		r := reply{status: rec.Code, header: rec.Header(), raw: rec.Body.String()}
		if err := json.Unmarshal(rec.Body.Bytes(), &r.json); err != nil {
			t.Fatal(err)
		}
		w.refused(c.err.Error(), r, c.status, c.code)
		if (r.status == 503) != (r.header.Get("Retry-After") != "") {
			t.Errorf("%v: Retry-After %q", c.err, r.header.Get("Retry-After"))
		}
		if strings.Contains(r.raw, "table") {
			t.Errorf("a user is told what is for operators: %s", r.raw)
		}
		if taken := new(dispatch.TakenError); errors.As(c.err, &taken) && r.at("final") != false {
			t.Errorf("not final: %s", r.raw)
		}
	}
}

// TestRateLimitRefills with time, and counts each key for itself too.
func TestRateLimitRefills(t *testing.T) {
	now := time.Now()
	w := newWorld(t, func(a *API) { a.DriverRate, a.AdminRate, a.Now = 2, 3, func() time.Time { return now } })
	// Made behind the API's back: the making counts as well.
	id := dispatch.NewDriverID(now)
	if err := w.store.AddDrivers(t.Context(), []dispatch.Driver{{ID: id, Name: "Kim", Regions: []string{"seoul"}, VehicleClass: "45m", OnDuty: true, Version: 1}}); err != nil {
		t.Fatal(err)
	}
	token, _, err := w.tokens.Issue(id, 0)
	if err != nil {
		t.Fatal(err)
	}
	passed := func(token, path string) (n int) {
		for range 20 {
			switch r := w.call("GET", path, token, ""); r.status {
			case 200:
				n++
			default:
				w.refused(path, r, 429, "RATE_LIMITED")
				if r.header.Get("Retry-After") != "1" {
					t.Errorf("Retry-After %q", r.header.Get("Retry-After"))
				}
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
	w.refused("an unknown token costs nobody anything", w.call("GET", "/v1/me", "x", ""), 401, "UNAUTHENTICATED")
}

func TestParseRate(t *testing.T) {
	for s, want := range map[string]limit.Rate{"20/s": 20, "0.5/s": 0.5, "1e3/s": 1000} {
		if got, err := limit.ParseRate(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "/s", "20", "0/s", "-1/s", "NaN/s", "Inf/s", "2e9/s", "1/m", "1/s/s"} {
		if got, err := limit.ParseRate(s); err == nil {
			t.Errorf("%q is %v", s, got)
		}
	}
}

// TestRequestIDOfAnError: a failure carries the id that was sent, too.
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

// Strangers may ask as often as they like whether the instance is ready: the database is not asked for it.
func TestReadyDoesNotQueryTheDatabase(t *testing.T) {
	up := true
	w := newWorld(t, func(a *API) { a.DatabaseUp = func() bool { return up } })
	asked := 0
	w.observe(func(ctx context.Context, _ repository.Statement) (context.Context, func(error)) {
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
	w := newWorld(t, func(a *API) { a.RedisDegraded = func() bool { return down } })
	for _, c := range []struct {
		down   bool
		status string
		redis  string
	}{{false, "ok", "ok"}, {true, "degraded", "degraded"}} {
		down = c.down
		if r := w.call("GET", "/readyz", "", ""); r.status != 200 || r.at("status") != c.status || r.at("redis") != c.redis || r.at("database") != "ok" {
			t.Errorf("%d %s", r.status, r.raw)
		}
	}
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	if r := w.call("GET", "/readyz", "", ""); r.status != 503 || r.at("status") != "unavailable" || r.at("database") != "unavailable" || strings.Contains(r.raw, "closed") {
		t.Errorf("%d %s", r.status, r.raw)
	}
	for _, route := range []string{"POST /v1/admin/dispatches", "GET /v1/admin/dispatches"} {
		method, path, _ := strings.Cut(route, " ")
		r := w.call(method, path, key, order(1))
		w.refused(route, r, 503, "UNAVAILABLE")
		if r.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", route)
		}
	}
}
