package app

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"firsttap/config"
)

const (
	usualHeaders = 5 * time.Second
	usualRequest = 15 * time.Second
	usualAnswer  = 30 * time.Second
	usualIdle    = 2 * time.Minute
	// maxHeaders is less by what net/http adds to it, 4 KiB.
	maxHeaders = 12 << 10
)

// newServer returns the API's server. Live streams set write deadlines of their own.
func newServer(c config.Config, api http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Addr: c.Addr, Handler: api, MaxHeaderBytes: maxHeaders,
		ReadHeaderTimeout: cmp.Or(c.Patience.Headers, usualHeaders), ReadTimeout: cmp.Or(c.Patience.Request, usualRequest),
		WriteTimeout: cmp.Or(c.Patience.Answer, usualAnswer), IdleTimeout: cmp.Or(c.Patience.Idle, usualIdle),
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
