package handler

import (
	"net/http"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"

	"firsttap/openapi"
)

// docs serves the OpenAPI document and the page to read it with. Both are made when somebody first asks for one.
type docs struct {
	document func() (openapi.File, error)
	page     func() (map[string]openapi.File, error)
}

func newDocs(version string) *docs {
	return &docs{
		document: sync.OnceValues(func() (openapi.File, error) {
			document, err := openapi.Document(version)
			if err != nil {
				return openapi.File{}, err
			}
			return openapi.NewFile(echo.MIMEApplicationJSON, document)
		}),
		page: sync.OnceValues(openapi.Page),
	}
}

// routes are open to everybody.
func (d *docs) routes(e *echo.Echo) {
	e.GET("/openapi.json", func(c echo.Context) error {
		f, err := d.document()
		if err != nil {
			return err
		}
		return serveFile(c, f)
	})
	e.GET("/docs", func(c echo.Context) error { return d.serve(c, "index.html") })
	e.GET("/docs/:file", func(c echo.Context) error { return d.serve(c, c.Param("file")) })
}

func (d *docs) serve(c echo.Context, name string) error {
	files, err := d.page()
	if err != nil {
		return err
	}
	f, ok := files[name]
	if !ok {
		return echo.ErrNotFound
	}
	header := c.Response().Header()
	header.Set("Content-Security-Policy", openapi.PagePolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	return serveFile(c, f)
}

// serveFile answers 304 to who has it, and otherwise compressed to who can read that. It is asked for again each time,
// as the next release may have another.
func serveFile(c echo.Context, f openapi.File) error {
	header := c.Response().Header()
	header.Set("ETag", f.Tag)
	header.Set(echo.HeaderCacheControl, "no-cache")
	header.Set(echo.HeaderVary, echo.HeaderAcceptEncoding)
	if strings.Contains(c.Request().Header.Get("If-None-Match"), f.Tag) {
		return c.NoContent(http.StatusNotModified)
	}
	body := f.Body
	if strings.Contains(c.Request().Header.Get(echo.HeaderAcceptEncoding), "gzip") {
		header.Set(echo.HeaderContentEncoding, "gzip")
		body = f.Gzip
	}
	return c.Blob(http.StatusOK, f.Type, body)
}
