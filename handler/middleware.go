package handler

import (
	"compress/gzip"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

// observe gives each request an id, survives a panic, and logs: changes at info, failures where they are answered,
// the rest at debug.
func (h *handler) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		started := time.Now()
		id := c.Request().Header.Get(echo.HeaderXRequestID)
		if !validRequestID(id) {
			id = newRequestID()
		}
		c.Response().Header().Set(echo.HeaderXRequestID, id)
		c.Request().Pattern = c.Path() // for whoever is around the router
		h.closeWhenDraining(c)
		if err := h.recovered(next, c); err != nil {
			c.Error(err)
		}
		took := time.Since(started)
		h.Answered(c.Request().Method, c.Path(), c.Response().Status, took)
		level := slog.LevelDebug
		if m := c.Request().Method; c.Response().Status < 300 && m != http.MethodGet && m != http.MethodHead {
			level = slog.LevelInfo
		}
		if h.Log.Enabled(context.Background(), level) {
			h.Log.Log(c.Request().Context(), level, "request", "method", c.Request().Method, "path", c.Request().URL.Path,
				"status", c.Response().Status, "took_us", took.Microseconds(), "request_id", id)
		}
		return nil
	}
}

func (h *handler) recovered(next echo.HandlerFunc, c echo.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return next(c)
}

const maxRequestID = 128

func validRequestID(id string) bool {
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= maxRequestID
}

// newRequestID need not be secret, only unlikely to repeat.
func newRequestID() string { return strconv.FormatUint(rand.Uint64(), 36) }

func requestID(c echo.Context) string { return c.Response().Header().Get(echo.HeaderXRequestID) }

// closeWhenDraining has the client open its next connection, which another instance gets: a connection that is kept until
// the server closes it may be closed just when a request is on its way.
func (h *handler) closeWhenDraining(c echo.Context) {
	if h.Draining() {
		c.Response().Header().Set(echo.HeaderConnection, "close")
	}
}

// securityHeaders gives each answer the headers that keep a browser from making something else of it. A handler that answers with a
// page, or with what may be kept, sets its own.
func securityHeaders(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set(echo.HeaderXContentTypeOptions, "nosniff")
		h.Set(echo.HeaderContentSecurityPolicy, "default-src 'none'; frame-ancestors 'none'")
		h.Set(echo.HeaderReferrerPolicy, "no-referrer")
		h.Set(echo.HeaderCacheControl, "no-store")
		if overTLS(c) {
			h.Set(echo.HeaderStrictTransportSecurity, "max-age=31536000")
		}
		return next(c)
	}
}

// overTLS reports whether the client speaks TLS, to a proxy maybe. Whoever lies about it lies to themselves: over plain HTTP
// browsers heed neither HSTS nor a Secure cookie.
func overTLS(c echo.Context) bool {
	first, _, _ := strings.Cut(c.Request().Header.Get(echo.HeaderXForwardedProto), ",") // the proxy that the client speaks to
	return c.IsTLS() || strings.EqualFold(strings.TrimSpace(first), "https")
}

// compressed sends what does not fit into a packet compressed, to who can read that: a page of 200 dispatches is 130 KB. It is
// for answers that hold no secret beside what the caller can choose, as their length could tell it.
func compressed() echo.MiddlewareFunc {
	return middleware.GzipWithConfig(middleware.GzipConfig{Level: gzip.BestSpeed, MinLength: 1400})
}

// acceptsGzip reports whether a client has said that it can read gzip.
func acceptsGzip(accept string) bool {
	for coding := range strings.SplitSeq(accept, ",") {
		name, quality, weighed := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";q=")
		if q, err := strconv.ParseFloat(quality, 64); strings.EqualFold(name, "gzip") && (!weighed || err == nil && q > 0) {
			return true
		}
	}
	return false
}
