package handler

import (
	"encoding/json"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"firsttap/internal/openapi"
)

var parameter = regexp.MustCompile(`:([a-z_]+)`)

// routes returns the router's routes in the document's form: "GET /v1/dispatches/{id}".
func (w *world) routes() (all []string) {
	for _, r := range w.api.(*echo.Echo).Routes() {
		if r.Method == echo.RouteNotFound || r.Method == http.MethodHead { // a HEAD is documented as its GET
			continue
		}
		all = append(all, r.Method+" "+parameter.ReplaceAllString(r.Path, "{$1}"))
	}
	return all
}

// TestEveryRouteIsDocumented: with the names of its path parameters; and every documented route exists.
func TestEveryRouteIsDocumented(t *testing.T) {
	w, c := newWorld(t), documented()
	routes := w.routes()
	for _, route := range routes {
		if !slices.ContainsFunc(c.operations, func(op *operation) bool { return op.route() == route }) {
			t.Errorf("%s is not documented: describe it in internal/openapi/api", route)
		}
	}
	for _, op := range c.operations {
		if !slices.Contains(routes, op.route()) {
			t.Errorf("%s is documented and not here", op.route())
		}
		var named []string
		for _, p := range op.parameters(c) {
			if p["in"] == "path" {
				named = append(named, "{"+p["name"].(string)+"}")
			}
		}
		if want := pathParameter.FindAllString(op.path, -1); !slices.Equal(named, want) {
			t.Errorf("%s has the parameters %v", op.route(), named)
		}
	}
}

func (o *operation) parameters(c *contract) (all []map[string]any) {
	list, _ := o.spec["parameters"].([]any)
	for _, p := range list {
		all = append(all, c.resolve(p))
	}
	return all
}

// TestEveryCodeIsDocumented: the error table and the document's have the same codes, with the same statuses.
func TestEveryCodeIsDocumented(t *testing.T) {
	here := map[string]int{internal.code: internal.status, "CLAIM_UNAVAILABLE": 503}
	for _, k := range kinds {
		here[k.code] = k.status
	}
	said := map[string]int{}
	for name, schema := range documented().document["components"].(map[string]any)["schemas"].(map[string]any) {
		if !strings.HasSuffix(name, "Problem") {
			continue
		}
		properties := schema.(map[string]any)["properties"].(map[string]any)
		status, err := properties["status"].(map[string]any)["const"].(json.Number).Int64()
		noError(t, err)
		said[properties["code"].(map[string]any)["const"].(string)] = int(status)
	}
	if !maps.Equal(here, said) {
		t.Errorf("the error table has %v\nthe document %v", here, said)
	}
}

func TestTheDocumentIsServed(t *testing.T) {
	w := newWorld(t, func(a *API) { a.Version = "1.2.3" })
	r := w.call("GET", "/openapi.json", "", "")
	want, err := openapi.Document("1.2.3")
	noError(t, err)
	r.want(200, "info.version", "1.2.3").wantHeader("Content-Type", "application/json").wantBody(string(want))
	w.call("GET", "/openapi.json", "", "", "If-None-Match", r.header.Get("ETag")).want(304).wantBody("")
	w.call("GET", "/openapi.json", "", "", "If-None-Match", `"x"`).want(200)
}

var linked = regexp.MustCompile(`(?:src|href)="([^"]*)"`)

// TestDocs: everything that the page names is served here, with its type, and nothing else may run.
func TestDocs(t *testing.T) {
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; " +
		"form-action 'none'; frame-ancestors 'none'"
	w := newWorld(t)
	page := w.page("/docs", "text/html", policy)
	names := linked.FindAllStringSubmatch(page.raw, -1)
	if len(names) < 5 {
		t.Fatalf("%v: %s", names, page.raw)
	}
	types := map[string]string{".js": "text/javascript", ".css": "text/css", ".txt": "text/plain"}
	for _, name := range names {
		switch {
		case name[1] == "data:,":
		case strings.Contains(name[1], ":") || strings.HasPrefix(name[1], "/"):
			t.Errorf("%s is somewhere else", name[1])
		case strings.HasPrefix(name[1], "docs/"):
			w.page("/"+name[1], types[path.Ext(name[1])], policy)
		default:
			w.call("GET", "/"+name[1], "", "").want(200)
		}
	}
	// A script or a handler in the page itself would not run.
	if inline := regexp.MustCompile(`(?i)<script>|<style| style=| on[a-z]+=`).FindString(page.raw); inline != "" {
		t.Errorf("the page has %s", inline)
	}
	for _, license := range []string{"swagger-ui.LICENSE.txt", "swagger-ui.NOTICE.txt", "swagger-ui-bundle.js.LICENSE.txt"} {
		w.call("GET", "/docs/"+license, "", "").want(200)
	}
	for _, path := range []string{"/docs/", "/docs/x", "/docs/../openapi.json", "/docs/%2e%2e", "/docs/page", "/docs/a/b"} {
		w.refused(path, w.call("GET", path, "", ""), 404, "NOT_FOUND")
	}
}
