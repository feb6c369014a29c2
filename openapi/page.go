package openapi

import (
	"embed"

	"firsttap/asset"
)

//go:embed page
var page embed.FS

// PagePolicy is the page's Content-Security-Policy: nothing from another host, and no script but what is served.
const PagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Page returns the page's files by name. index.html is the page itself, to be served one level above the others, which
// it looks for under docs/.
func Page() (map[string]asset.File, error) { return asset.Load(page, "page") }
