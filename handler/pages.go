package handler

import (
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"

	"firsttap/internal/openapi"
	"firsttap/web"
	"firsttap/web/asset"
)

// pages serves the files of the backoffice, of the driver's page, and of their common assets, each folder with its own
// Content-Security-Policy. They need no authentication: all data comes from the API.
func pages(e *echo.Echo, policies map[string]string) {
	for folder, policy := range policies {
		files := sync.OnceValues(func() (map[string]asset.File, error) { return web.Files(folder) })
		get(e, "/"+folder+"/:file", func(c echo.Context) error { return servePage(c, files, c.Param("file"), policy) })
		if folder == "assets" {
			continue
		}
		get(e, "/"+folder, func(c echo.Context) error { return c.Redirect(http.StatusPermanentRedirect, "/"+folder+"/") })
		get(e, "/"+folder+"/", func(c echo.Context) error { return servePage(c, files, "index.html", policy) })
	}
}

func servePage(c echo.Context, load func() (map[string]asset.File, error), name, policy string) error {
	files, err := load()
	if err != nil {
		return err
	}
	f, ok := files[name]
	if !ok {
		return echo.ErrNotFound
	}
	c.Response().Header().Set(echo.HeaderContentSecurityPolicy, policy)
	return serveFile(c, f)
}

// serveFile answers 304 if the client has the file, or else sends it, compressed if the client accepts gzip. Clients revalidate the
// file each time, as the next release may change it.
func serveFile(c echo.Context, f asset.File) error {
	header := c.Response().Header()
	header.Set("ETag", f.ETag)
	header.Set(echo.HeaderCacheControl, "no-cache")
	header.Set(echo.HeaderVary, echo.HeaderAcceptEncoding)
	if matchesETag(c.Request().Header.Values("If-None-Match"), f.ETag) {
		return c.NoContent(http.StatusNotModified)
	}
	body := f.Body
	if acceptsGzip(c.Request().Header.Get(echo.HeaderAcceptEncoding)) {
		header.Set(echo.HeaderContentEncoding, "gzip")
		body = f.Gzip
	}
	header.Set(echo.HeaderContentLength, strconv.Itoa(len(body)))
	return c.Blob(http.StatusOK, f.ContentType, body)
}

// docs serves the OpenAPI document and the page that shows it, without authentication. Both are prepared at the first request.
func docs(e *echo.Echo, version string) {
	document := sync.OnceValues(func() (asset.File, error) {
		document, err := openapi.Document(version)
		if err != nil {
			return asset.File{}, err
		}
		return asset.New(echo.MIMEApplicationJSON, document)
	})
	page := sync.OnceValues(openapi.PageFiles)
	get(e, "/openapi.json", func(c echo.Context) error {
		f, err := document()
		if err != nil {
			return err
		}
		return serveFile(c, f)
	})
	get(e, "/docs", func(c echo.Context) error { return servePage(c, page, "index.html", openapi.PagePolicy) })
	get(e, "/docs/:file", func(c echo.Context) error { return servePage(c, page, c.Param("file"), openapi.PagePolicy) })
}

// matchesETag reports whether an If-None-Match header contains the ETag or *. It assumes that ETags contain no commas.
func matchesETag(headers []string, etag string) bool {
	for _, header := range headers {
		for candidate := range strings.SplitSeq(header, ",") {
			if tag := opaqueTag(candidate); tag == "*" || tag == opaqueTag(etag) {
				return true
			}
		}
	}
	return false
}
