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
		// A proxy may end the TLS. Whoever lies about it lies to themselves: over plain HTTP browsers don't heed the header.
		if c.IsTLS() || c.Request().Header.Get(echo.HeaderXForwardedProto) == "https" {
			h.Set(echo.HeaderStrictTransportSecurity, "max-age=31536000")
		}
		return next(c)
	}
}
