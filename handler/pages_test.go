package handler

import (
	"compress/gzip"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"firsttap/web"
)

var folders = []string{"assets", "console", "driver"}

// wantPolicy repeats the policy, so that it is not changed by accident.
func wantPolicy(hosts string) string {
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; manifest-src 'self'; worker-src 'self'; " +
		"connect-src 'self'" + hosts + "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// page checks the answer with a page's file, and that a client that has the file gets 304.
func (w *world) page(address, kind, policy string) reply {
	w.t.Helper()
	r := w.call("GET", address, "", "").want(200).wantHeader("Content-Security-Policy", policy).wantHeader("X-Content-Type-Options", "nosniff").
		wantHeader("Cache-Control", "no-cache").wantHeader("Vary", "Accept-Encoding")
	got, _, err := mime.ParseMediaType(r.header.Get("Content-Type"))
	tag := r.header.Get("Etag")
	if err != nil || got != kind || r.raw == "" || tag == "" {
		w.t.Errorf("%s: %v", address, r.header)
	}
	w.call("GET", address, "", "", "If-None-Match", tag).want(304).wantHeader("Etag", tag).wantBody("")
	w.call("GET", address, "", "", "If-None-Match", `"another"`).want(200)
	small := w.call("GET", address, "", "", "Accept-Encoding", "gzip, br")
	if small.header.Get("Content-Encoding") != "gzip" || unzipped(w.t, small.raw) != r.raw {
		w.t.Errorf("%s, compressed: %v", address, small.header)
	}
	w.call("GET", address, "", "", "Accept-Encoding", "br, gzip;q=0").want(200).wantHeader("Content-Encoding", "").wantBody(r.raw)
	return r
}

// TestPages: every file of the pages is served with its content type.
func TestPages(t *testing.T) {
	w := newWorld(t)
	kinds := map[string]string{
		".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".txt": "text/plain", ".svg": "image/svg+xml", ".png": "image/png",
		".webmanifest": "application/manifest+json",
	}
	for _, folder := range folders {
		files, err := web.Files(folder)
		if err != nil || len(files) < 2 {
			t.Fatalf("%s: %d files, %v", folder, len(files), err)
		}
		for name := range files {
			w.page("/"+folder+"/"+name, kinds[path.Ext(name)], wantPolicy(""))
		}
	}
}

var link = regexp.MustCompile(`(?:href|src)="([^"#]+)"`)

// TestLinksOfThePages: each link exists on this host, and the pages have nothing inline, which browsers would ignore.
func TestLinksOfThePages(t *testing.T) {
	w := newWorld(t)
	for _, folder := range []string{"console", "driver"} {
		r := w.page("/"+folder+"/", "text/html", wantPolicy(""))
		named := link.FindAllStringSubmatch(r.raw, -1)
		if len(named) < 3 {
			t.Errorf("/%s/ names %v", folder, named)
		}
		for _, name := range named {
			if strings.Contains(name[1], ":") {
				t.Errorf("/%s/: %s is somewhere else", folder, name[1])
				continue
			}
			address := name[1]
			if !strings.HasPrefix(address, "/") {
				address = path.Join("/"+folder, address)
			}
			w.call("GET", address, "", "").want(200)
		}
		if inline := regexp.MustCompile(`(?i)<script>|<style| style=| on[a-z]+=`).FindString(r.raw); inline != "" {
			t.Errorf("/%s/ has %s", folder, inline)
		}
		w.call("GET", "/"+folder, "", "").want(308).wantHeader("Location", "/"+folder+"/")
	}
}

// TestUnknownPages: other addresses get a problem, never a listing.
func TestUnknownPages(t *testing.T) {
	w := newWorld(t)
	for _, address := range []string{
		"/assets", "/assets/", "/assets/none.js", "/console/none", "/console/assets/preact.js", "/driver/../console/main.js", "/console/%2e%2e",
		"/console/..%2fassets%2fpreact.js", "/driver/pages.js", "/console//main.js", "/CONSOLE/", "/console/Main.js", "/console/main.js/", "/web/console/main.js",
	} {
		w.refused(address, w.call("GET", address, "", ""), 404, "NOT_FOUND")
	}
	w.refused("a change", w.call("POST", "/console/", "", ""), 405, "METHOD_NOT_ALLOWED")
}

// TestHead: HEAD is answered as GET, without the body.
func TestHead(t *testing.T) {
	down := false
	w := newWorld(t, func(a *API) { a.DatabaseUp = func() bool { return !down } })
	api, starting := httptest.NewServer(w.api), httptest.NewServer(NewMigrating(slog.New(slog.DiscardHandler), nil))
	defer api.Close()
	defer starting.Close()
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	ask := func(method, address, encoding, tag string) (int, http.Header, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, address, nil)
		noError(t, err)
		req.Header = http.Header{"Accept-Encoding": {encoding}, "If-None-Match": {tag}, "X-Request-Id": {"r"}}
		r, err := client.Do(req)
		noError(t, err)
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		noError(t, err)
		r.Header.Del("Date")
		if r.Header.Get("Content-Length") == "0" { // the server leaves it out of an answer to HEAD
			r.Header.Del("Content-Length")
		}
		return r.StatusCode, r.Header, string(body)
	}
	compare := func(address, tag string, want int) {
		t.Helper()
		for _, encoding := range []string{"identity", "gzip"} {
			got, header, body := ask("GET", address, encoding, tag)
			headGot, headHeader, headBody := ask("HEAD", address, encoding, tag)
			if got != want || headGot != want || headBody != "" {
				t.Errorf("%s: GET %d, HEAD %d with %d bytes, want %d", address, got, headGot, len(headBody), want)
			}
			if diff := cmp.Diff(header, headHeader); diff != "" {
				t.Errorf("%s: the headers of GET and HEAD differ: %s", address, diff)
			}
			if want == 200 && header.Get("Content-Length") != strconv.Itoa(len(body)) {
				t.Errorf("%s: %d bytes, %v", address, len(body), header)
			}
		}
	}
	for _, page := range []string{
		"/console/", "/console/main.js", "/driver/", "/driver/main.js", "/assets/preact.js", "/docs", "/docs/docs.js", "/openapi.json",
		"/livez", "/readyz",
	} {
		compare(api.URL+page, "none", 200)
	}
	_, header, _ := ask("GET", api.URL+"/openapi.json", "identity", "none")
	compare(api.URL+"/openapi.json", header.Get("ETag"), 304)
	compare(api.URL+"/console", "none", 308)
	compare(api.URL+"/console/none.js", "none", 404)
	compare(starting.URL+"/livez", "none", 200)
	compare(starting.URL+"/readyz", "none", 503)
	down = true
	compare(api.URL+"/readyz", "none", 503)
	if status, _, _ := ask("HEAD", api.URL+"/v1/sign-in", "identity", "none"); status != 405 {
		t.Errorf("HEAD of the API: %d", status)
	}
	if strings.Contains(w.log.String(), "method=HEAD") {
		t.Errorf("a HEAD is logged as a change: %s", w.log)
	}
}

// TestSignInWays: the ways in which drivers sign in, and the hosts that the driver's page, and no other, may connect to for it.
func TestSignInWays(t *testing.T) {
	seoul, err := time.LoadLocation("Asia/Seoul")
	noError(t, err)
	for hosts, c := range map[string]struct {
		firebase *FirebaseSignIn
		want     string
	}{
		"": {nil, `{"timezone":"Asia/Seoul","firebase":null}`},
		" https://identitytoolkit.googleapis.com https://securetoken.googleapis.com": {
			&FirebaseSignIn{Project: "p", APIKey: "AIza"}, `{"timezone":"Asia/Seoul","firebase":{"project":"p","api_key":"AIza","emulator":null}}`,
		},
		" http://127.0.0.1:9099": {
			&FirebaseSignIn{Project: "p", APIKey: "emulator", Emulator: "http://127.0.0.1:9099"},
			`{"timezone":"Asia/Seoul","firebase":{"project":"p","api_key":"emulator","emulator":"http://127.0.0.1:9099"}}`,
		},
	} {
		w := newWorld(t, func(a *API) { a.Firebase, a.Zone = c.firebase, seoul })
		if r := w.call("GET", "/v1/sign-in", "", "").want(200); strings.TrimSpace(r.raw) != c.want {
			t.Errorf("%s, want %s", r.raw, c.want)
		}
		for address, more := range map[string]string{
			"/driver/": hosts, "/driver/index.html": hosts, "/driver/main.js": hosts, "/console/": "", "/assets/preact.js": "",
		} {
			w.call("GET", address, "", "").wantHeader("Content-Security-Policy", wantPolicy(more))
		}
		w.refused("a change", w.call("DELETE", "/v1/sign-in", "", ""), 405, "METHOD_NOT_ALLOWED")
	}
}

func unzipped(t testing.TB, small string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(small))
	noError(t, err)
	whole, err := io.ReadAll(z)
	noError(t, err)
	return string(whole)
}
