package app

import (
	"log/slog"
	"net/http"
	"testing"

	"firsttap/config"
)

// TestUsualPatience is bounded in every respect.
func TestUsualPatience(t *testing.T) {
	s := newServer(config.Config{}, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if s.ReadHeaderTimeout != defaultHeaders || s.ReadTimeout != defaultRequest || s.WriteTimeout != defaultAnswer || s.IdleTimeout != defaultIdle {
		t.Errorf("%+v", s)
	}
}
