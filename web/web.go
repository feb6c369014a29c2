// Package web has two pages for the browser, the backoffice and the driver's phone. They use the public API only, and need no
// build: the browser loads the modules as they are. vendor/build.sh makes the third-party files in static/assets.
package web

import (
	"embed"

	"firsttap/web/asset"
)

//go:embed static/*/*.html static/*/*.css static/*/*.js static/*/*.svg static/*/*.png static/*/*.txt static/*/*.webmanifest
var static embed.FS

// Policy returns the pages' Content-Security-Policy: nothing from other hosts, no inline scripts, no inline styles. The page may
// connect to the given hosts too.
func Policy(hosts ...string) string {
	connect := "'self'"
	for _, h := range hosts {
		connect += " " + h
	}
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; manifest-src 'self'; worker-src 'self'; " +
		"connect-src " + connect + "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// Files returns the files of a folder by name. The folders are console and driver, whose index.html is the page, and assets,
// which both pages load.
func Files(folder string) (map[string]asset.File, error) { return asset.Load(static, "static/"+folder) }
