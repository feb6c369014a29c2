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
	if s.ReadHeaderTimeout != usualHeaders || s.ReadTimeout != usualRequest || s.WriteTimeout != usualAnswer || s.IdleTimeout != usualIdle {
		t.Errorf("%+v", s)
	}
}
