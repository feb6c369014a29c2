// Package openapi has the OpenAPI 3.1 document of the HTTP API, and a page that shows it.
//
// The document is written by hand in api/*.yaml. openapi.json is generated from these files and committed, so that the program
// does not read YAML.
package openapi

import (
	"bytes"
	"embed"
	"encoding/json"
	"strings"
	"sync"

	"firsttap/web/asset"
)

//go:generate go run ./generate

//go:embed openapi.json
var document []byte

// generatedVersion is the API's version in openapi.json, which Document replaces.
const generatedVersion = `"version":"dev"`

// Document returns the document as JSON, with version as the API's version, or dev for "".
func Document(version string) ([]byte, error) {
	if version == "" {
		return bytes.Clone(document), nil
	}
	name, err := json.Marshal(version)
	if err != nil {
		return nil, err
	}
	return bytes.Replace(document, []byte(generatedVersion), append([]byte(`"version":`), name...), 1), nil
}

// QueryParameters returns the names of the query parameters of each operation that has any, by method and path: "GET /v1/me/dispatches". In
// the path a parameter is :id, as the router writes it.
var QueryParameters = sync.OnceValue(func() map[string][]string {
	type parameter struct {
		Ref      string `json:"$ref"`
		In, Name string
	}
	var described struct {
		Paths      map[string]map[string]struct{ Parameters []parameter }
		Components struct{ Parameters map[string]parameter }
	}
	if err := json.Unmarshal(document, &described); err != nil {
		panic(err) // the document is embedded, and a test reads it
	}
	names := map[string][]string{}
	for path, operations := range described.Paths {
		path = strings.NewReplacer("{", ":", "}", "").Replace(path)
		for method, o := range operations {
			for _, p := range o.Parameters {
				if shared, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
					p = described.Components.Parameters[shared]
				}
				if route := strings.ToUpper(method) + " " + path; p.In == "query" {
					names[route] = append(names[route], p.Name)
				}
			}
		}
	}
	return names
})

//go:embed page
var page embed.FS

// PagePolicy is the page's Content-Security-Policy. It allows nothing from other hosts, and no inline scripts.
const PagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// PageFiles returns the page's files by name. index.html must be served one level above the others, which it loads from docs/.
func PageFiles() (map[string]asset.File, error) { return asset.Load(page, "page") }
