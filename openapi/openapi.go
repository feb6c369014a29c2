// Package openapi has the OpenAPI 3.1 document of the HTTP API, and a page that shows it.
//
// The document is written by hand in api/*.yaml. openapi.json is generated from these files and committed, so that the program
// does not read YAML.
package openapi

import (
	"bytes"
	"embed"
	"encoding/json"

	"firsttap/asset"
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

//go:embed page
var page embed.FS

// PagePolicy is the page's Content-Security-Policy. It allows nothing from other hosts, and no inline scripts.
const PagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// PageFiles returns the page's files by name. index.html must be served one level above the others, which it loads from docs/.
func PageFiles() (map[string]asset.File, error) { return asset.Load(page, "page") }
