package openapi

import (
	"embed"

	"firsttap/asset"
)

//go:embed page
var page embed.FS

// PagePolicy is the page's Content-Security-Policy. It allows nothing from other hosts, and no inline scripts.
const PagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// PageFiles returns the page's files by name. index.html must be served one level above the others, which it loads from docs/.
func PageFiles() (map[string]asset.File, error) { return asset.Load(page, "page") }
