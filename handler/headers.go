package handler

import "github.com/labstack/echo/v4"

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
