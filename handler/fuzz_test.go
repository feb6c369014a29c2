package handler

import (
	"context"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/lock"
)

// of is the world as one of several tests of it.
func (w *world) of(t testing.TB) *world {
	its := *w
	its.t = t
	return &its
}

// answered fails the test unless r is an answer of ours: one that went well, or a problem with a code, and never our fault.
func (w *world) answered(t testing.TB, what string, r reply) {
	t.Helper()
	if r.status >= 500 || r.status < 200 {
		t.Errorf("%s: %d %.300s", what, r.status, r.raw)
	}
	if r.status >= 400 && (r.code() == "" || r.header.Get("Content-Type") != "application/problem+json") {
		t.Errorf("%s: %d %.300s is no problem of ours", what, r.status, r.raw)
	}
}

// send is call with the fuzzer's text, escaped, in the place of {} in the path.
func (w *world) send(method, path, text, token, body string, headers ...string) reply {
	return w.call(method, strings.ReplaceAll(path, "{}", url.PathEscape(text)), token, body, headers...)
}

// tryKey sends a request twice with any text as its Idempotency-Key.
func (w *world) tryKey(t testing.TB, name string) {
	t.Helper()
	if strings.ContainsAny(name, "\r\n\x00") { // no client can send these
		return
	}
	body := `{"name":"k","role":"viewer"}`
	first := w.post("/v1/admin/api-keys", body, name)
	w.answered(t, name, first)
	again := w.post("/v1/admin/api-keys", body, name)
	if again.status != first.status || first.status == 201 && again.raw != first.raw {
		t.Errorf("%q: %d %s, then %d %s", name, first.status, first.raw, again.status, again.raw)
	}
	w.answered(t, name, w.post("/v1/admin/drivers", body, name))
}

// tryBody sends any text as a body to every operation that reads one.
func (w *world) tryBody(t testing.TB, d caller, id, body string) {
	t.Helper()
	for _, call := range [][3]string{
		{"POST", "/v1/dispatches/" + id + "/accept", d.token}, {"POST", "/v1/dispatches/" + id + "/withdraw", d.token},
		{"POST", "/v1/admin/dispatches", key}, {"POST", "/v1/admin/drivers", key}, {"PATCH", "/v1/admin/drivers/" + d.id, key},
		{"POST", "/v1/admin/drivers/" + d.id + "/suspend", key}, {"POST", "/v1/admin/drivers/bulk", key}, {"POST", "/v1/admin/api-keys", key},
	} {
		r := w.call(call[0], call[1], call[2], body)
		w.answered(t, call[0]+" "+call[1], r)
		if r.status == 201 && r.json["id"] == nil {
			t.Errorf("%s %q: %s", call[1], body, r.raw)
		}
	}
}

// tryCursor sends any text as a cursor to every list.
func (w *world) tryCursor(t testing.TB, d caller, id, cursor string) {
	t.Helper()
	hook := w.anyWebhook()
	for _, op := range documented().operations {
		if !slices.ContainsFunc(op.parameters(documented()), func(p map[string]any) bool { return p["name"] == "cursor" }) {
			continue
		}
		of := id
		switch {
		case strings.Contains(op.path, "/drivers/"):
			of = d.id
		case strings.Contains(op.path, "/webhooks/"):
			of = hook
		}
		path := strings.NewReplacer("{id}", of, "{name}", "tidy").Replace(op.path)
		r := w.call(op.method, path+"?cursor="+url.QueryEscape(cursor), w.callerOf(op, d), "")
		w.answered(t, path, r)
		if _, ok := r.json["items"]; r.status == 200 && !ok {
			t.Errorf("%s: %s", path, r.raw)
		}
	}
}

// callerOf returns a token that the operation accepts.
func (w *world) callerOf(op *operation, d caller) string {
	if strings.HasPrefix(op.path, "/v1/admin/") {
		return key
	}
	return d.token
}

// tryID sends any text as an identifier, and searches for it.
func (w *world) tryID(t testing.TB, d caller, id string) {
	t.Helper()
	if id == "" || id == "." || id == ".." || strings.Contains(id, "/") { // another path
		return
	}
	for _, op := range documented().operations {
		if path := pathParameter.ReplaceAllString(op.path, "{}"); path != op.path {
			w.answered(t, op.route(), w.send(op.method, path, id, w.callerOf(op, d), "", "If-Match", `"1"`))
		}
	}
	for _, list := range []string{
		"audit?target=", "audit?actor=", "drivers?q=", "drivers?region=", "drivers?vehicle_class=", "dispatches?q=", "dispatches?region=",
	} {
		w.answered(t, list, w.call("GET", "/v1/admin/"+list+url.QueryEscape(id), key, ""))
	}
}

var pathParameter = regexp.MustCompile(`{[a-z_]+}`)

// The seeds of the fuzzers, besides those in testdata.
var (
	someKeys   = []string{"k", " ", "", "\x7f", "\xff", "한국", strings.Repeat("a", 255), strings.Repeat("a", 256), `"; DROP TABLE`, "a\tb"}
	someBodies = []string{
		driverBody, `{"drivers":[` + driverBody + `],"issue_tokens":true}`, `{"name":"n","role":"admin"}`, `{"until":"2100-01-01T00:00:00Z"}`,
		`{"name":null,"regions":null}`, `{"regions":[null]}`, `{"working_height_m":1e400}`, `{"working_height_m":5e-324}`, `[]`, `{`, `0`, `{"name":"\ud800"}`,
		`{"name":"\u0000"}`, `{"until":"9999-12-31T23:59:59+23:59"}`, `{"until":"0000-01-01T00:00:00Z"}`,
	}
	someCursors = []string{
		"key_first", "drv_0", "aud_zzzz", "x", "", "\x00", "\xff", "한국", "9223372036854775808", "-1", "' OR 1=1",
		// A letter for the list, eight bytes, and an identifier.
		"awAAAAAAAAAAa2V5X2ZpcnN0", "dgAAAAAAAAAAZHJ2XzA", "dQAAAAAAAAAAYXVkX3p6eno", "aQAAAAAAAAAAJyBPUiAxPTE",
		"bgAAAAAAAAAAbnRmXzAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAw", "bYAAAAAAAAAAbnRmXzAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAw", "ZQAAAAAAAAAAZXZ0XwA", "cv__________dGlkeQ",
	}
	someIDs = []string{
		"key_first", "drv_00000000000000000000000000", "dsp_00000000000000000000000000", "ntf_00000000000000000000000000", "x", "\x00", "\xff", "%00", "%",
		"한국", "🏗", "tidy", " ", "DRV_00000000000000000000000000", strings.Repeat("a", 300), "\\", "'", `"`,
	}
)

func FuzzIdempotencyKeys(f *testing.F) {
	w := newWorld(f)
	for _, name := range someKeys {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) { w.of(t).tryKey(t, name) })
}

func FuzzCreates(f *testing.F) {
	w := newWorld(f)
	d, id := w.drivers(1)[0], w.dispatch(1)
	for _, body := range append(someBodies, `{"round":1}`, `{"drivers":[{}]}`, order(1), order(1, `"min_working_height_m":12.5`, `"external_id":"E 1"`)) {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) { w.of(t).tryBody(t, d, id, body) })
}

// someRounds are bodies of an accept.
var someRounds = []string{
	"", " \r\n\t", `{"round":1}`, ` { "round" : 2147483647 } `, "{}", `{"round":null}`, `{"round":0}`, `{"round":01}`, `{"round":-1}`, `{"round":2147483648}`,
	`{"round":1.0}`, `{"round":1e2}`, `{"round":"1"}`, `{"Round":1}`, `{"round":1,"round":1}`, `{"round":1,}`, `{"round":1}}`, `{"round":1} {}`, `{"round" 1}`,
	`{"r\u006fund":1}`, "\ufeff{\"round\":1}", "{\"round\":1\v}", `{"round":99999999999999999999}`, `null`, `[]`, `1`, `{"round":1,"x":2}`, "{\"round\":1}\x00",
}

// FuzzRounds: what the quick reader reads, the strict one reads as the same.
func FuzzRounds(f *testing.F) {
	for _, body := range someRounds {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		quick, ok := parseRound(body)
		strict, err := decodeRound(body)
		if ok && (err != nil || quick != strict) {
			t.Errorf("%q is round %d, and strictly %d, %v", body, quick, strict, err)
		}
	})
}

func FuzzCursors(f *testing.F) {
	w := withJobs(f, lock.NewMemory())
	d, id := w.drivers(1)[0], w.dispatch(1)
	for _, cursor := range someCursors {
		f.Add(cursor)
	}
	f.Fuzz(func(t *testing.T, cursor string) { w.of(t).tryCursor(t, d, id, cursor) })
}

func FuzzIDs(f *testing.F) {
	w := withJobs(f, lock.NewMemory())
	d := w.drivers(1)[0]
	for _, id := range someIDs {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) { w.of(t).tryID(t, d, id) })
}

// TestOnServers tries the seeds of the fuzzers on databases that are stricter about text.
func TestOnServers(t *testing.T) {
	eachServerPlace(t, func(t *testing.T, p *place) {
		w := newWorldOn(t, p.url)
		d, id := w.drivers(1)[0], w.dispatch(1)
		for _, name := range someKeys {
			w.tryKey(t, name)
		}
		for _, body := range someBodies {
			w.tryBody(t, d, id, body)
		}
		for _, cursor := range someCursors {
			w.tryCursor(t, d, id, cursor)
		}
		for _, id := range someIDs {
			w.tryID(t, d, id)
		}
	})
}

// noJobs is a schedule without jobs.
type noJobs struct{}

func (noJobs) Jobs(context.Context) ([]cronjob.Job, error) { return nil, nil }

func (noJobs) HeldLocks(context.Context) ([]cronjob.HeldLock, error) { return nil, nil }

func (noJobs) Runs(context.Context, string, dispatch.Page) ([]cronjob.Run, string, error) {
	return nil, "", cronjob.ErrNotFound
}

func (noJobs) RunNow(context.Context, string, string) (cronjob.Run, error) {
	return cronjob.Run{}, cronjob.ErrNotFound
}
