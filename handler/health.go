package handler

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

// NewMigrating returns the handler that serves while the database is being migrated. The process is alive and not ready; other
// requests are answered with 503, which pages of the allowed origins can read.
func NewMigrating(log *slog.Logger, allowedOrigins []string) http.Handler {
	api := API{Log: log, Now: time.Now, AllowedOrigins: allowedOrigins}
	return newProbes(api, dispatch.ErrUnavailable, func(_ *handler, c echo.Context) error {
		return c.JSON(http.StatusServiceUnavailable, map[string]string{"status": "migrating"})
	})
}

// NewWithoutAPI returns the handler of an instance that has other roles. Only the probes' fields of the API count. Other requests are
// answered with 503, as they are for another instance: after a 404 an app would take its dispatch for one that does not exist.
func NewWithoutAPI(api API) http.Handler { return newProbes(api, errNoAPI, (*handler).readyz) }

// newProbes answers the probes, and everything else with an error.
func newProbes(api API, otherwise error, readyz func(*handler, echo.Context) error) http.Handler {
	api.setDefaults()
	h := &handler{API: api}
	e := echo.New()
	e.HTTPErrorHandler = func(_ error, c echo.Context) { // no other route exists
		h.writeProblem(describe(otherwise, c.Request().URL.Path), c)
	}
	e.Use(securityHeaders(), h.observe, crossOrigin(api.AllowedOrigins))
	get(e, "/livez", livez)
	get(e, "/readyz", func(c echo.Context) error { return readyz(h, c) })
	return e
}

func livez(c echo.Context) error {
	return c.JSON(200, map[string]string{"status": "ok"})
}

// readyz answers 503 while the database takes no writes, and while the instance is about to stop. Without Redis, or with jobs
// that are blocked, it answers 200 and says so: the API is served. An instance without that is not ready when its jobs are blocked. It is
// open to everybody, as it runs no statement.
func (h *handler) readyz(c echo.Context) error {
	if h.Draining() {
		return c.JSON(503, map[string]string{"status": "draining"})
	}
	answer := map[string]string{"status": "ok", "roles": strings.Join(h.Roles, ","), "database": "ok"}
	if h.RedisDegraded != nil {
		if answer["redis"] = "ok"; h.RedisDegraded() {
			answer["status"], answer["redis"] = "degraded", "degraded"
		}
	}
	away := false
	if h.JobsBlocked() {
		answer["jobs"], away = "blocked", h.Acceptor == nil // without the API it is here for them
	}
	if !h.DatabaseUp() {
		answer["database"], away = "unavailable", true
	}
	if away {
		answer["status"] = "unavailable"
		return c.JSON(503, answer)
	}
	return c.JSON(200, answer)
}
