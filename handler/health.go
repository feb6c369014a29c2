package handler

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

// NewMigrating returns the handler that serves while the database is being migrated. The process is alive and not ready; other
// requests are answered with 503, which pages of the allowed origins can read.
func NewMigrating(log *slog.Logger, allowedOrigins []string) http.Handler {
	api := API{Log: log, Now: time.Now}
	api.setDefaults()
	h := &handler{API: api}
	e := echo.New()
	e.HTTPErrorHandler = func(_ error, c echo.Context) { // no other route exists
		h.writeProblem(describe(dispatch.ErrUnavailable, c.Request().URL.Path), c)
	}
	e.Use(securityHeaders(), h.observe, crossOrigin(allowedOrigins))
	get(e, "/livez", livez)
	get(e, "/readyz", func(c echo.Context) error {
		return c.JSON(http.StatusServiceUnavailable, map[string]string{"status": "migrating"})
	})
	return e
}

func livez(c echo.Context) error {
	return c.JSON(200, map[string]string{"status": "ok"})
}

// readyz answers 503 while the database takes no writes, and while the instance is about to stop. Without Redis, or with jobs
// that are blocked, it answers 200 and says so. It is open to everybody, as it runs no statement.
func (h *handler) readyz(c echo.Context) error {
	if h.Draining() {
		return c.JSON(503, map[string]string{"status": "draining"})
	}
	answer := map[string]string{"status": "ok", "database": "ok"}
	if h.RedisDegraded != nil {
		if answer["redis"] = "ok"; h.RedisDegraded() {
			answer["status"], answer["redis"] = "degraded", "degraded"
		}
	}
	if h.JobsBlocked() {
		answer["jobs"] = "blocked"
	}
	if !h.DatabaseUp() {
		answer["status"], answer["database"] = "unavailable", "unavailable"
		return c.JSON(503, answer)
	}
	return c.JSON(200, answer)
}
