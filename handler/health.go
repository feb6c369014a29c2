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

func (h *handler) livez(c echo.Context) error {
	return c.JSON(200, map[string]string{"status": "ok"})
}

// readyz is 503 without a database that takes writes, and while the instance is about to end; without Redis it is 200 and
// says so. Anybody may ask, as often as they like: it costs no statement.
func (h *handler) readyz(c echo.Context) error {
	if h.draining() {
		return c.JSON(503, map[string]string{"status": "draining"})
	}
	answer := map[string]string{"status": "ok", "database": "ok"}
	if h.RedisDegraded != nil {
		answer["redis"] = "ok"
		if h.RedisDegraded() {
			answer["status"], answer["redis"] = "degraded", "degraded"
		}
	}
	if h.DatabaseUp != nil && !h.DatabaseUp() {
		answer["status"], answer["database"] = "unavailable", "unavailable"
		return c.JSON(503, answer)
	}
	return c.JSON(200, answer)
}

func (h *handler) draining() bool { return h.Draining != nil && h.Draining() }
