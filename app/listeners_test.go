package app

import (
	"log/slog"
	"net/http"
	"testing"

	"firsttap/config"
)

// TestDefaultTimeouts: every timeout of the API's server has a default.
func TestDefaultTimeouts(t *testing.T) {
	s := newServer(config.Config{}, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if s.ReadHeaderTimeout != defaultHeaders || s.ReadTimeout != defaultRequest || s.WriteTimeout != defaultAnswer || s.IdleTimeout != defaultIdle {
		t.Errorf("%+v", s)
	}
}
