package handler

import (
	"compress/gzip"

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
	return c.IsTLS() || c.Request().Header.Get(echo.HeaderXForwardedProto) == "https"
}

// compressed sends what does not fit into a packet compressed, to who can read that: a page of 200 dispatches is 130 KB. It is
// for answers that hold no secret beside what the caller can choose, as their length could tell it.
func compressed() echo.MiddlewareFunc {
	return middleware.GzipWithConfig(middleware.GzipConfig{Level: gzip.BestSpeed, MinLength: 1400})
}
