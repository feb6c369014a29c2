package main

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"
)

// Patience is how long a client may take. Whoever takes longer loses the connection, and nobody else waits meanwhile.
//
// The number of connections is not bounded: a bound that somebody fills keeps every driver out, where an idle or a slow
// connection costs a few kilobytes until its time is over. How many one address may open is for the proxy to say, which
// sees it.
type Patience struct {
	Headers, Request, Answer, Idle time.Duration
}

const (
	usualHeaders = 5 * time.Second
	usualRequest = 15 * time.Second
	usualAnswer  = 30 * time.Second
	usualIdle    = 2 * time.Minute
	// maxHeaders is less by what net/http adds to it, 4 KiB.
	maxHeaders = 12 << 10
)

// newServer returns the API's server. Live streams set write deadlines of their own.
func newServer(c Config, api http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Addr: c.Addr, Handler: api, MaxHeaderBytes: maxHeaders,
		ReadHeaderTimeout: cmp.Or(c.Patience.Headers, usualHeaders), ReadTimeout: cmp.Or(c.Patience.Request, usualRequest),
		WriteTimeout: cmp.Or(c.Patience.Answer, usualAnswer), IdleTimeout: cmp.Or(c.Patience.Idle, usualIdle),
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
