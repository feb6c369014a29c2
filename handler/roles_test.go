package handler

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

// An instance without the API answers the probes, and says for whatever else is asked that another instance has it. It is not ready when its
// jobs are blocked, which with the API it is.
func TestWithoutAPI(t *testing.T) {
	var up, degraded, blocked, draining bool
	api := NewWithoutAPI(API{
		Roles: []string{"relay", "jobs"}, DatabaseUp: func() bool { return up }, RedisDegraded: func() bool { return degraded },
		JobsBlocked: func() bool { return blocked }, Draining: func() bool { return draining },
		AllowedOrigins: []string{"capacitor://localhost"}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	ask := func(method, path string) (int, map[string]any, *httptest.ResponseRecorder) {
		t.Helper()
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		r.Header.Set("Origin", "capacitor://localhost")
		api.ServeHTTP(w, r)
		var body map[string]any
		noError(t, json.Unmarshal(w.Body.Bytes(), &body))
		return w.Code, body, w
	}
	const roles = "relay,jobs"
	for _, c := range []struct {
		up, degraded, blocked, draining bool
		status                          int
		says                            map[string]any
	}{
		{true, false, false, false, 200, map[string]any{"status": "ok", "roles": roles, "database": "ok", "redis": "ok"}},
		{true, true, false, false, 200, map[string]any{"status": "degraded", "roles": roles, "database": "ok", "redis": "degraded"}},
		{true, false, true, false, 503, map[string]any{"status": "unavailable", "roles": roles, "database": "ok", "redis": "ok", "jobs": "blocked"}},
		{false, false, false, false, 503, map[string]any{"status": "unavailable", "roles": roles, "database": "unavailable", "redis": "ok"}},
		{true, false, false, true, 503, map[string]any{"status": "draining"}},
	} {
		up, degraded, blocked, draining = c.up, c.degraded, c.blocked, c.draining
		status, says, _ := ask("GET", "/readyz")
		testkit.Equal(t, "readyz", c.says, says)
		testkit.Equal(t, "its status", c.status, status)
	}
	if status, _, _ := ask("GET", "/livez"); status != 200 {
		t.Errorf("livez: %d", status)
	}
	for method, paths := range map[string][]string{
		"GET": {"/v1/me", "/v1/dispatches/dsp_1", "/console/", "/openapi.json", "/nothing"}, "POST": {"/v1/dispatches/dsp_1/accept", "/livez"},
	} {
		for _, path := range paths {
			status, body, w := ask(method, path)
			if status != 503 || body["code"] != "UNAVAILABLE" || body["instance"] != path || body["detail"] != "This instance serves no API. Ask one that has the role api." ||
				w.Header().Get("Retry-After") == "" || strings.HasPrefix(path, "/v1/") && w.Header().Get("Access-Control-Allow-Origin") == "" {
				t.Errorf("%s %s: %d %v %v", method, path, status, body, w.Header())
			}
		}
	}
}
