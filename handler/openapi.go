package handler

import (
	"sync"

	"github.com/labstack/echo/v4"

	"firsttap/asset"
	"firsttap/openapi"
)

// docs serves the OpenAPI document and the page to read it with, to everybody. Both are made when somebody first asks for
// one.
func docs(e *echo.Echo, version string) {
	document := sync.OnceValues(func() (asset.File, error) {
		document, err := openapi.Document(version)
		if err != nil {
			return asset.File{}, err
		}
		return asset.New(echo.MIMEApplicationJSON, document)
	})
	page := sync.OnceValues(openapi.Page)
	e.GET("/openapi.json", func(c echo.Context) error {
		f, err := document()
		if err != nil {
			return err
		}
		return serveFile(c, f)
	})
	e.GET("/docs", func(c echo.Context) error { return servePage(c, page, "index.html", openapi.PagePolicy) })
	e.GET("/docs/:file", func(c echo.Context) error { return servePage(c, page, c.Param("file"), openapi.PagePolicy) })
}
