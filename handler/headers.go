package handler

import (
	"compress/gzip"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

// guard gives each answer the headers that keep a browser from making something else of it. A handler that answers with a
// page, or with what may be kept, sets its own.
func guard(next echo.HandlerFunc) echo.HandlerFunc {
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

// takesGzip reports whether a client has said that it can read gzip.
func takesGzip(accept string) bool {
	for coding := range strings.SplitSeq(accept, ",") {
		name, quality, weighed := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";q=")
		if q, err := strconv.ParseFloat(quality, 64); strings.EqualFold(name, "gzip") && (!weighed || err == nil && q > 0) {
			return true
		}
	}
	return false
}
