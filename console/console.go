// Package console has the backoffice and the driver's phone: two pages for the browser that stand on nothing but the
// public API. There is nothing to build: the browser reads the modules as they are. What is not ours is in web/assets,
// made by vendor/build.sh.
package console

import (
	"embed"

	"firsttap/asset"
)

//go:embed web
var web embed.FS

// Policy is the pages' Content-Security-Policy: nothing from another host, no script and no style but what is served.
// A host that is put into connect-src is one that the page may talk to besides.
func Policy(hosts ...string) string {
	connect := "'self'"
	for _, h := range hosts {
		connect += " " + h
	}
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; manifest-src 'self'; worker-src 'self'; " +
		"connect-src " + connect + "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// Files returns the files of a folder by name: console and driver, whose index.html is the page itself, and assets, which both
// need.
func Files(folder string) (map[string]asset.File, error) { return asset.Load(web, "web/"+folder) }
