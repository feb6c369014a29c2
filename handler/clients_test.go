package handler

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/notify/stream"
	"firsttap/repository/database"
)

// TestHangUps: a client that closes the connection before its answer is no failure of the service, wherever the request is: it counts as
// 499, logs no error, and changes nothing that was not committed.
func TestHangUps(t *testing.T) {
	var statuses []int
	w := newWorld(t, func(a *API) {
		a.ObserveRequest = func(_, _ string, status int, _ time.Duration) { statuses = append(statuses, status) }
	})
	d, id := w.drivers(1)[0], w.dispatch(1)
	for _, c := range []struct{ method, path, token, body, name string }{
		{"GET", "/v1/me/offers", d.token, "", ""}, {"GET", "/v1/admin/board", key, "", ""}, {"GET", "/v1/me/dispatches", d.token, "", ""},
		{"GET", "/v1/admin/dispatches?q=seoul", key, "", ""}, {"GET", "/v1/admin/drivers/" + d.id + "/export", key, "", ""},
		{"POST", "/v1/dispatches/" + id + "/seen", d.token, "", ""}, {"PUT", "/v1/me/duty", d.token, `{"on_duty":false}`, ""},
		{"POST", "/v1/admin/dispatches", key, order(2), ""}, {"POST", "/v1/admin/dispatches", key, order(2), "k"}, {"GET", "/v1/stream", d.token, "", ""},
	} {
		for _, when := range []string{"at once", "at the first statement"} {
			statuses = nil
			ctx, hangUp := context.WithCancel(t.Context())
			if when == "at once" {
				hangUp()
			}
			w.observe(func(c context.Context, _ database.Statement) (context.Context, func(error)) {
				hangUp()
				return c, func(error) {}
			})
			headers := []string{"Idempotency-Key", c.name}[:min(2, 2*len(c.name))]
			w.api.ServeHTTP(httptest.NewRecorder(), request(ctx, c.method, c.path, c.token, c.body, headers...))
			w.observe(func(c context.Context, _ database.Statement) (context.Context, func(error)) {
				return c, func(error) {}
			})
			if !slices.Equal(statuses, []int{statusHungUp}) {
				t.Errorf("%s %s, hung up %s: counted as %v", c.method, c.path, when, statuses)
			}
		}
	}
	w.call("GET", "/v1/admin/dispatches", key, "").want(200).wantItems(1)
	w.post("/v1/admin/dispatches", order(2), "k").want(201) // what was not carried out was not kept
	if w.noErrorLogged(); strings.Contains(w.log.String(), "level=WARN") {
		t.Errorf("a warning: %s", w.log)
	}
}

// TestHangUpsWithinTheBody: a client that goes while it sends its body is not answered as if it had sent a wrong one, and one that is too
// slow is asked to send it again.
func TestHangUpsWithinTheBody(t *testing.T) {
	statuses := make(chan int, 100)
	w := newWorld(t, func(a *API) {
		a.ObserveRequest = func(_, _ string, status int, _ time.Duration) { statuses <- status }
	})
	d, id := w.drivers(1)[0], w.dispatch(1)
	s := httptest.NewUnstartedServer(w.api)
	s.Config.ReadTimeout = time.Second
	s.Start()
	t.Cleanup(s.Close)
	for path, token := range map[string]string{
		"/v1/dispatches/" + id + "/accept": d.token, "/v1/dispatches/" + id + "/decline": d.token, "/v1/admin/dispatches": key,
		"/v1/admin/drivers/bulk": key,
	} {
		header := ""
		if strings.HasSuffix(path, "bulk") {
			header = "Idempotency-Key: k\r\n"
		}
		for length, want := range map[string][2]int{
			"Content-Length: 20\r\n\r\n{": {statusHungUp, 408}, "Transfer-Encoding: chunked\r\n\r\n5\r\n{": {statusHungUp, 408},
			"Transfer-Encoding: chunked\r\n\r\nno length\r\n": {400, 400},
		} {
			for i, goes := range []bool{true, false} {
				for len(statuses) > 0 {
					<-statuses
				}
				conn, err := net.Dial("tcp", s.Listener.Addr().String())
				noError(t, err)
				fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s%s", path, token, header, length)
				if goes {
					conn.Close()
				}
				if got := <-statuses; got != want[i] {
					t.Errorf("%s, %q, the client goes: %v: %d, want %d", path, length, goes, got, want[i])
				}
				conn.Close()
			}
		}
	}
	w.untouched(id)
	w.noErrorLogged()
}

// TestOneRequestInManySpellings: a request that is encoded again is the same request, and another value is another request.
func TestOneRequestInManySpellings(t *testing.T) {
	w := newWorld(t)
	const body = `{"region":"서울","vehicle_class":"45m","site_address":"a/b","site_lat":37.5,"site_lng":127.0,` +
		`"work_starts_at":"2030-01-01T00:00:00Z","work_ends_at":"2030-01-01T01:00:00Z","fee":{"amount":9007199254740991,"currency":"KRW"}}`
	first := w.post("/v1/admin/dispatches", body, "k").want(201)
	for what, spelling := range map[string][]string{
		"order": {`"region":"서울","vehicle_class":"45m"`, `"vehicle_class":"45m","region":"서울"`}, "inner order": {`"amount":9007199254740991,"currency":"KRW"`, `"currency":"KRW","amount":9007199254740991`},
		"space": {`,`, " ,\r\n\t"}, "an escaped letter": {"서", `\uc11c`}, "an escaped solidus": {"a/b", `a\/b`}, "a whole number": {"127.0", "127"},
		"an exponent": {"127.0", "1.27E+2"}, "zeros": {"37.5", "37.500"}, "a mark": {`{"region`, "\ufeff{\"region"}, "an amount's zero": {"991", "991.0"},
	} {
		again := w.serve(request(t.Context(), "POST", "/v1/admin/dispatches", key, strings.Replace(body, spelling[0], spelling[1], 1), "Idempotency-Key", "k"), "")
		w.same(what, first, again)
	}
	for what, change := range map[string][]string{
		"an amount that is one less": {"991", "990"}, "the first one beyond": {"9007199254740991", "9007199254740993"}, "its neighbor": {"9007199254740991", "9007199254740992"},
		"a name's case": {"region", "Region"}, "another letter": {"45m", "45M"}, "null": {`"a/b"`, "null"}, "text": {"37.5", `"37.5"`},
	} {
		w.refused(what, w.post("/v1/admin/dispatches", strings.Replace(body, change[0], change[1], 1), "k"), 422, "IDEMPOTENCY_KEY_REUSED")
	}
	id := w.dispatch(1)
	version := w.read(id).header.Get("ETag")
	cancel := func(body string) reply {
		return w.serve(request(t.Context(), "POST", "/v1/admin/dispatches/"+id+"/cancel", key, body, "Idempotency-Key", "c", "If-Match", version), "")
	}
	canceled := cancel("").want(200)
	w.same("an empty object", canceled, cancel("{}"))
	w.same("an escaped path", canceled, w.call("POST", "/v1/admin/dispatches/"+strings.Replace(id, "_", "%5F", 1)+"/cancel", key, "", "Idempotency-Key", "c", "If-Match", version))
}

// TestBodiesOfOtherEncoders: a body is read whatever its Content-Type calls it, unless it is not plain UTF-8.
func TestBodiesOfOtherEncoders(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write([]byte(`{"round":1}`))
	noError(t, z.Close())
	hours := 0
	for name, c := range map[string]struct {
		body   string
		header []string
		status int
	}{
		"nothing": {`{"round":1}`, nil, 200}, "curl -d": {`{"round":1}`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 200},
		"fetch": {`{"round":1}`, []string{"Content-Type", "text/plain;charset=UTF-8"}, 200}, "text/json": {`{"round":1 }`, []string{"Content-Type", "text/json; charset=\"utf8\""}, 200},
		"a mark": {"\ufeff{\"round\":1}", []string{"Content-Type", "application/json"}, 200}, "a malformed type": {"\ufeff{}", []string{"Content-Type", "application/json; charset"}, 200},
		"identity": {"\ufeff{}", []string{"Content-Encoding", "Identity"}, 200}, "a whole number": {`{"round":1.0}`, nil, 200}, "an exponent": {`{"round":10e-1}`, nil, 200},
		"gzip": {zipped.String(), []string{"Content-Encoding", "gzip"}, 415}, "deflate, of a long body": {strings.Repeat("x", 100), []string{"Content-Encoding", "deflate"}, 415},
		"Korean":                 {"{\"round\":1} ", []string{"Content-Type", "application/json; charset=euc-kr"}, 200}, // a tap in ASCII must not cost the dispatch
		"Korean, of a long body": {strings.Repeat(" ", 100) + "{}", []string{"Content-Type", "application/json; charset=EUC-KR"}, 415},
	} {
		hours += 2
		id := w.dispatch(hours)
		r := w.serve(request(t.Context(), "POST", "/v1/dispatches/"+id+"/accept", d.token, c.body, c.header...), "")
		if r.want(c.status); c.status == 415 {
			w.refused(name, r, 415, "UNSUPPORTED_MEDIA_TYPE").wantHeader("Accept-Encoding", map[bool]string{true: "identity"}[c.header[0] == "Content-Encoding"])
		}
	}
	for _, name := range []string{"", "k"} {
		headers := []string{"Content-Encoding", "gzip", "Idempotency-Key", name}[:2+min(2, 2*len(name))]
		w.refused("a creation", w.call("POST", "/v1/admin/dispatches", key, order(1), headers...), 415, "UNSUPPORTED_MEDIA_TYPE")
	}
}

// TestNumbersAndTimes as other languages write them.
func TestNumbersAndTimes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "-0.0": 0, "0e999999999": 0, "0.000": 0, "350000.0": 350000, "3.5e5": 350000, "3.5E+5": 350000, "3500000e-1": 350000, "-1.50e1": -15,
		"9007199254740993.0": 9007199254740993, "9223372036854775807": 1<<63 - 1, "922337203685477580.7e1": 1<<63 - 1, "0.00012e5": 12, "1e18": 1e18,
	} {
		if got, err := parseWhole(text); err != nil || got != want {
			t.Errorf("%s is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"0.5", "350000.5", "1e-1", "9007199254740992.5", "1e19", "1e400", "1e999999999999999999999", "1e-999999999", "9223372036854775808", "9223372036854775808.0",
		"0.99999999999999999999999",
	} {
		if got, err := parseWhole(text); err == nil {
			t.Errorf("%s is %d", text, got)
		}
	}
	w := newWorld(t)
	preview := func(was, is string) reply {
		body := strings.Replace(order(1, `"work_starts_at":"2030-01-01T00:00:00Z","work_ends_at":"2030-01-01T01:00:00Z"`), was, is, 1)
		return w.call("POST", "/v1/admin/dispatches/preview", key, body)
	}
	preview("350000", "350000.0").want(200)
	w.refused("a fraction", preview("350000", "350000.5"), 422, "VALIDATION_FAILED").hasField("fee.amount")
	for _, at := range []string{"2030-01-01T09:00:00+09:00", "2030-01-01T00:00:00.123456789Z", "2030-01-01t00:00:00z", "2030-01-01T00:00:00-00:00"} {
		preview("2030-01-01T00:00:00Z", at).want(200)
	}
	for _, at := range []string{
		"2030-01-01T09:00:00+0900", "2030-01-01T00:00:60Z", "2030-01-01 00:00:00Z", "2030-01-01T00:00Z", "2030-01-01T00:00:00,5Z", "2030-01-01T00:00:00", "2090-02-30T00:00:00Z", "",
	} {
		w.refused(at, preview("2030-01-01T00:00:00Z", at), 422, "VALIDATION_FAILED").hasField("work_starts_at")
	}
}

// TestETagsThroughProxies: a proxy that compresses answers changes their ETags, and the client sends back what it got.
func TestETagsThroughProxies(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	tag := strings.Trim(strings.TrimPrefix(w.call("GET", "/v1/me/offers", d.token, "").header.Get("ETag"), "W/"), `"`)
	forms := []string{`"%s"`, `W/"%s"`, `%s`, `"%s-gzip"`, `W/"%s-br"`, `"%s;gzip"`, `"%s--gzip"`, `"%s-zstd"`}
	for _, form := range forms {
		w.call("GET", "/v1/me/offers", d.token, "", "If-None-Match", `"x", `+fmt.Sprintf(form, tag)).want(304)
	}
	w.call("GET", "/v1/me/offers", d.token, "", "If-None-Match", `"`+tag+`-x"`).want(200)
	for i, form := range forms {
		w.call("PATCH", "/v1/admin/dispatches/"+w.dispatch(i+1), key, `{"note":"x"}`, "If-Match", fmt.Sprintf(form, "1")).want(200)
	}
	path := "/v1/admin/dispatches/" + w.dispatch(1)
	for _, none := range []string{"*", `"1", "2"`, `"1",W/"1"`} {
		w.refused(none, w.call("PATCH", path, key, `{"note":"x"}`, "If-Match", none), 428, "PRECONDITION_REQUIRED")
	}
	for _, other := range []string{`"2"`, `"1-x"`, `"abc"`, `""`, `"1.0"`, `"-gzip"`} {
		w.refused(other, w.call("PATCH", path, key, `{"note":"x"}`, "If-Match", other), 412, "VERSION_MOVED")
	}
	w.call("GET", strings.Replace(path, "_", "%5f", 1), key, "").want(200)
}

// TestQueriesAreStrict: each route takes the parameters that its description lists, once each and well-formed.
func TestQueriesAreStrict(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	for _, op := range documented().operations {
		if !strings.HasPrefix(op.path, "/v1/") {
			continue
		}
		path, token := pathParameter.ReplaceAllString(op.path, "x"), w.callerOf(op, d)
		if op.path == "/v1/session" {
			token = key
		}
		w.refused(op.route(), w.call(op.method, path+"?no_such=1", token, "{}"), 422, "VALIDATION_FAILED").hasField("no_such")
		for _, p := range op.parameters(documented()) {
			if name := p["name"].(string); p["in"] == "query" {
				w.refused(op.route(), w.call(op.method, path+"?"+name+"=&"+name+"=", token, ""), 422, "VALIDATION_FAILED").hasField(name)
			}
		}
	}
	for query, field := range map[string]string{
		"region=%zz&status=PENDING": "region", "region=a;x=1": "region", "Region=a": "Region", "status=PENDING&status=PENDING": "status", "limit=%2": "limit",
		"%zz=1": "%zz", "=1": "", "limit=1&region": "", "region;x": "region;x", "limit=1&%6Cimit=2": "limit", "q=%": "q", "limit =1": "limit ",
	} {
		query = strings.ReplaceAll(query, " ", "+")
		r := w.call("GET", "/v1/admin/dispatches?"+query, key, "")
		if query == "limit=1&region" {
			r.want(200)
			continue
		}
		w.refused(query, r, 422, "VALIDATION_FAILED").hasField(field)
	}
	for _, query := range []string{"", "&", "limit=1&", "&&limit=1", "q=%3B", "q=a+b", "%6Cimit=1"} {
		w.call("GET", "/v1/admin/dispatches?"+query, key, "").want(200)
	}
	w.refused("a stranger", w.call("GET", "/v1/me?no_such=1", "x", ""), 401, "UNAUTHENTICATED")
	w.call("GET", "/livez?no_such=1", "", "").want(200)
}

// TestOtherOrigins: scripts of allowed origins may call the driver API and read its answers, and nobody else anything.
func TestOtherOrigins(t *testing.T) {
	const app = "capacitor://localhost"
	allowed := []string{app, "https://app.example.com"}
	w := newWorld(t, func(a *API) { a.AllowedOrigins = allowed })
	closed := newWorld(t)
	ask := func(of *world, method, path, origin string) http.Header {
		r := request(t.Context(), method, path, "", "", "Origin", origin, "Access-Control-Request-Method", "PUT", "Access-Control-Request-Headers", "authorization")
		rec := httptest.NewRecorder()
		of.api.ServeHTTP(rec, r)
		return rec.Header()
	}
	const granted = "Access-Control-Allow-Origin"
	for _, path := range []string{"/v1/me", "/v1/me/offers", "/v1/me/devices/x", "/v1/stream", "/v1/dispatches/dsp_x/accept"} {
		for _, method := range []string{"OPTIONS", "GET", "POST"} { // all of them 401, 404 or 405
			for _, origin := range allowed {
				got := ask(w, method, path, origin)
				if got.Get(granted) != origin || got.Get("Access-Control-Allow-Credentials") != "" || !slices.Contains(got.Values("Vary"), "Origin") {
					t.Errorf("%s %s from %s: %v", method, path, origin, got)
				}
				want := map[string][]string{"Access-Control-Expose-Headers": {"Retry-After", "ETag", "X-Request-Id"}}
				if method == "OPTIONS" {
					want = map[string][]string{
						"Access-Control-Allow-Methods": {"GET", "POST", "PUT", "DELETE"},
						"Access-Control-Allow-Headers": {
							"Authorization", "Content-Type", "If-Match", "If-None-Match", "Idempotency-Key", "X-Request-Id", "Last-Event-ID", "X-App-Version",
						},
					}
				}
				for name, values := range want {
					for _, v := range values {
						if !slices.Contains(strings.Split(got.Get(name), ","), v) {
							t.Errorf("%s %s: %s lacks %s: %q", method, path, name, v, got.Get(name))
						}
					}
				}
			}
			for _, origin := range []string{"", "null", "*", "http://app.example.com", "https://app.example.com.evil.example", "https://x.app.example.com", "CAPACITOR://localhost"} {
				if got := ask(w, method, path, origin); got.Get(granted) != "" {
					t.Errorf("%s %s from %q: %v", method, path, origin, got)
				}
			}
			if got := ask(closed, method, path, app); got.Get(granted) != "" || got.Get("Vary") != "" {
				t.Errorf("without the setting: %v", got)
			}
		}
	}
	for _, path := range []string{"/v1/admin/dispatches", "/v1/session", "/v1/sign-in", "/console/", "/v1/metrics", "/openapi.json", "/readyz"} {
		for _, method := range []string{"OPTIONS", "GET"} {
			if got := ask(w, method, path, app); got.Get(granted) != "" {
				t.Errorf("%s %s: %v", method, path, got)
			}
		}
	}
	for want, r := range map[int]reply{
		401: w.call("GET", "/v1/me", "x", "", "Origin", app), 404: w.call("GET", "/v1/me/nothing", "", "", "Origin", app),
		405: w.call("DELETE", "/v1/me", "", "", "Origin", app),
	} {
		r.want(want).wantHeader(granted, app)
	}
	starting := httptest.NewRecorder()
	NewMigrating(slog.New(slog.DiscardHandler), allowed).ServeHTTP(starting, request(t.Context(), "GET", "/v1/me", "x", "", "Origin", app))
	if starting.Code != 503 || starting.Header().Get(granted) != app {
		t.Errorf("while the service starts: %d %v", starting.Code, starting.Header())
	}
	live := newLiveAPI(t, stream.Options{}, func(a *API) { a.AllowedOrigins = allowed })
	_, answer := live.dialStream("GET /v1/stream HTTP/1.1\r\nOrigin: "+app, live.drivers(1)[0].token)
	live.hub.Close() // otherwise the body has no end
	answer.Body.Close()
	if answer.StatusCode != 200 || answer.Header.Get(granted) != app {
		t.Errorf("a stream: %s %v", answer.Status, answer.Header)
	}
}
