package handler

import (
	"context"
	"strings"
	"testing"

	"firsttap/repository"
)

// TestReadyDoesNotQueryTheDatabase: unauthenticated probes of any number cost the database nothing.
func TestReadyDoesNotQueryTheDatabase(t *testing.T) {
	up := true
	w := newWorld(t, func(a *API) { a.DatabaseUp = func() bool { return up } })
	asked := 0
	w.observe(func(ctx context.Context, _ repository.Statement) (context.Context, func(error)) {
		asked++
		return ctx, func(error) {}
	})
	for _, up = range []bool{true, false} {
		if r := w.call("GET", "/readyz", "", ""); (r.status == 200) != up {
			t.Errorf("up %v: %d %s", up, r.status, r.raw)
		}
	}
	if asked > 0 {
		t.Errorf("%d statements", asked)
	}
}

func TestReady(t *testing.T) {
	down := false
	w := newWorld(t, func(a *API) { a.RedisDegraded = func() bool { return down } })
	for _, c := range []struct {
		down   bool
		status string
		redis  string
	}{{false, "ok", "ok"}, {true, "degraded", "degraded"}} {
		down = c.down
		w.call("GET", "/readyz", "", "").want(200, "status", c.status, "redis", c.redis, "database", "ok")
	}
	noError(t, w.store.Close())
	if r := w.call("GET", "/readyz", "", ""); r.status != 503 || r.at("status") != "unavailable" || r.at("database") != "unavailable" || strings.Contains(r.raw, "closed") {
		t.Errorf("%d %s", r.status, r.raw)
	}
	for _, route := range []string{"POST /v1/admin/dispatches", "GET /v1/admin/dispatches"} {
		method, path, _ := strings.Cut(route, " ")
		w.refused(route, w.call(method, path, key, order(1)), 503, "UNAVAILABLE").hasHeader("Retry-After")
	}
}
