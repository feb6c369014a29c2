package handler

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// reply is what the API answered to a request.
type reply struct {
	t       testing.TB
	request string // for failure messages
	status  int
	header  http.Header
	raw     string
	json    map[string]any
}

// replyTo is the recorded answer to a request with that body.
func replyTo(t testing.TB, req *http.Request, body string, rec *httptest.ResponseRecorder) reply {
	r := reply{
		t: t, request: fmt.Sprintf("%s %.200s %v %.100q", req.Method, req.URL, req.Header, body),
		status: rec.Code, header: rec.Header(), raw: rec.Body.String(),
	}
	json.Unmarshal(rec.Body.Bytes(), &r.json) // not every answer is JSON
	return r
}

func (r reply) code() string { s, _ := r.json["code"].(string); return s }

func (r reply) at(path ...string) any { return at(r.json, path...) }

// text is the member as it is printed: fmt's text of a list or a number, <nil> where there is none.
func (r reply) text(path ...string) string { return fmt.Sprint(r.at(path...)) }

func at(v any, path ...string) any {
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	return v
}

// want fails the test unless the reply has that status and these members, name and value: want(200, "dispatch.round", 2.0).
// A value of nil stands for null or no member.
func (r reply) want(status int, members ...any) reply {
	r.t.Helper()
	if r.status != status {
		r.t.Errorf("%s: got %d %.2000s, want %d", r.request, r.status, r.raw, status)
		return r
	}
	wantMembers(r.t, r.request, r.json, members...)
	return r
}

// wantMembers fails the test unless the object has these members, name and value: wantMembers(t, "the claim", claim, "round", 1.0).
// A name may lead to an inner object's member, "fee.amount". A value of nil stands for null or no member.
func wantMembers(t testing.TB, what string, object map[string]any, members ...any) {
	t.Helper()
	for i := 0; i < len(members); i += 2 {
		name := members[i].(string)
		if got := at(object, strings.Split(name, ".")...); !reflect.DeepEqual(got, members[i+1]) {
			t.Errorf("%s: %s is %v, want %v in %.2000v", what, name, got, members[i+1], object)
		}
	}
}

// wantHeader fails the test unless the reply has that header.
func (r reply) wantHeader(name, value string) reply {
	r.t.Helper()
	if got := r.header.Get(name); got != value {
		r.t.Errorf("%s: the header %s is %q, want %q", r.request, name, got, value)
	}
	return r
}

// hasHeader fails the test unless the reply has that header, with any value.
func (r reply) hasHeader(name string) {
	r.t.Helper()
	if r.header.Get(name) == "" {
		r.t.Errorf("%s: no header %s: %d %.2000s", r.request, name, r.status, r.raw)
	}
}

// hasField fails the test unless the reply is a problem that names that field of the request.
func (r reply) hasField(name string) {
	r.t.Helper()
	if !strings.Contains(r.raw, fmt.Sprintf(`"field":%q`, name)) {
		r.t.Errorf("%s: does not name the field %s: %d %.2000s", r.request, name, r.status, r.raw)
	}
}

// wantBody fails the test unless the reply has exactly that body.
func (r reply) wantBody(body string) reply {
	r.t.Helper()
	if r.raw != body {
		r.t.Errorf("%s: got %d %.2000s, want %.2000s", r.request, r.status, r.raw, body)
	}
	return r
}

// wantItems fails the test unless the reply is a list of n items.
func (r reply) wantItems(n int) reply {
	r.t.Helper()
	if got := len(items(r)); got != n {
		r.t.Errorf("%s: %d items, want %d: %.2000s", r.request, got, n, r.raw)
	}
	return r
}

// items are the objects of a list.
func items(r reply) (all []map[string]any) {
	list, _ := r.at("items").([]any)
	for _, item := range list {
		all = append(all, item.(map[string]any))
	}
	return all
}

// item is the only object of a list.
func (r reply) item() map[string]any {
	r.t.Helper()
	if r.wantItems(1); len(items(r)) != 1 {
		r.t.FailNow()
	}
	return items(r)[0]
}

// pages are the objects of a list, page by page; the path has a query.
func (w *world) pages(path, token string) (pages [][]map[string]any) {
	w.t.Helper()
	for cursor, more := "", true; more; {
		r := w.call("GET", path+"&cursor="+cursor, token, "").want(200)
		if pages = append(pages, items(r)); r.status != 200 || len(pages) > 20 {
			w.t.Fatalf("%s has no last page", path)
		}
		cursor, more = r.at("next_cursor").(string)
	}
	return pages
}

// pagesOf fails the test unless the key's list of n objects comes on as few pages of that size as may be, and each object once.
func (w *world) pagesOf(path string, size, n int) {
	w.t.Helper()
	pages, seen := w.pages(path, key), map[any]bool{}
	for _, o := range slices.Concat(pages...) {
		seen[o["id"]] = true
	}
	if len(seen) != n || len(slices.Concat(pages...)) != n || len(pages) != (n+size-1)/size {
		w.t.Errorf("%s: %d of %d on %d pages", path, len(seen), n, len(pages))
	}
}

// time is the member as a time, in the only form that the API has.
func (r reply) time(path ...string) time.Time {
	r.t.Helper()
	at, err := time.Parse(shownTime, r.text(path...))
	if err != nil {
		r.t.Errorf("%s: %v", r.request, err)
	}
	return at
}

const shownTime = "2006-01-02T15:04:05.000Z"

func shown(t time.Time) string { return t.UTC().Format(shownTime) }

// refused checks that r is a problem of that status and code, complete.
func (w *world) refused(what string, r reply, status int, code string) reply {
	w.t.Helper()
	if r.status != status || r.code() != code {
		w.t.Errorf("%s: got %d %s, want %d %s", what, r.status, r.raw, status, code)
		return r
	}
	if ct := r.header.Get("Content-Type"); ct != "application/problem+json" {
		w.t.Errorf("%s: content type %q", what, ct)
	}
	for _, member := range []string{"type", "title", "detail", "instance"} {
		if s, _ := r.json[member].(string); s == "" {
			w.t.Errorf("%s: no %s in %s", what, member, r.raw)
		}
	}
	if r.json["status"] != float64(status) || r.header.Get("X-Request-Id") == "" {
		w.t.Errorf("%s: %s, request id %q", what, r.raw, r.header.Get("X-Request-Id"))
	}
	return r
}

// ours fails the test unless r is a whole problem of 4xx.
func (w *world) ours(what string, r reply) {
	w.t.Helper()
	if r.status < 400 || r.status > 499 {
		w.t.Errorf("%s: %d %.300s", what, r.status, r.raw)
		return
	}
	w.refused(what, r, r.status, r.code())
	if r.code() == "" || r.at("type") != "urn:firsttap:problem:"+r.code() || !strings.HasPrefix(fmt.Sprint(r.at("instance")), "/") {
		w.t.Errorf("%s: %s", what, r.raw)
	}
}

// noErrorLogged fails the test if the log has an error of ours.
func (w *world) noErrorLogged() {
	w.t.Helper()
	if strings.Contains(w.log.String(), "level=ERROR") {
		w.t.Errorf("an error of ours: %s", w.log)
	}
}

// noError ends the test if something failed that the test needs and does not examine.
func noError(t interface {
	Helper()
	Fatal(args ...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must is v, which a test needs; an error is the test's own fault.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
