package handler

import (
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

// Starting answers as long as the API can't, since the database is being migrated: the process lives and is not ready, and
// everything else is to be asked again.
func Starting(log *slog.Logger) http.Handler {
	h := &handler{API: API{Log: log}}
	e := echo.New()
	e.HTTPErrorHandler = func(_ error, c echo.Context) { // there is no other route
		h.writeProblem(describe(dispatch.ErrUnavailable, c.Request().URL.Path), c)
	}
	e.Use(guard, h.observe)
	e.GET("/livez", h.livez)
	e.GET("/readyz", func(c echo.Context) error {
		return c.JSON(http.StatusServiceUnavailable, map[string]string{"status": "migrating"})
	})
	return e
}
