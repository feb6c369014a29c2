package handler

import (
	"compress/gzip"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

// observe gives each request an id, turns a panic into an error, and logs the request: successful changes at info, the rest at
// debug. Failures are logged where they are answered.
func (h *handler) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		started := time.Now()
		id := c.Request().Header.Get(echo.HeaderXRequestID)
		if !validRequestID(id) {
			id = newRequestID()
		}
		c.Response().Header().Set(echo.HeaderXRequestID, id)
		c.Request().Pattern = c.Path() // for the middleware around the router
		h.closeWhenDraining(c)
		if c.Request().URL.RawPath != "" {
			plainParams(c)
		}
		if err := h.recovered(next, c); err != nil {
			c.Error(err)
		}
		if c.Get(outlived) == nil {
			h.finish(c.Request().Context(), servedBy(c, started))
		}
		return nil
	}
}

// outlived is a key in a request's context. A handler sets it if its answer goes on after it has returned. The code that sends that answer
// then calls finish at the answer's end.
const outlived = "outlived"

// served is what is counted and logged of a request that was answered.
type served struct {
	method, route, path, requestID string
	status                         int
	started                        time.Time
}

func servedBy(c echo.Context, started time.Time) served {
	return served{
		method: c.Request().Method, route: c.Path(), path: c.Request().URL.Path, requestID: requestID(c),
		status: c.Response().Status, started: started,
	}
}

// finish counts and logs the answer.
func (h *handler) finish(ctx context.Context, a served) {
	took := time.Since(a.started)
	h.ObserveRequest(a.method, a.route, a.status, took)
	level := slog.LevelDebug
	if a.status < 300 && a.method != http.MethodGet && a.method != http.MethodHead {
		level = slog.LevelInfo
	}
	if h.Log.Enabled(context.Background(), level) {
		h.Log.Log(ctx, level, "request", "method", a.method, "path", a.path, "status", a.status,
			"took_us", took.Microseconds(), "request_id", a.requestID)
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
	return id != "" && len(id) <= maxRequestID && isGraphic(id)
}

// newRequestID returns an id that is unlikely to repeat. It need not be secret.
func newRequestID() string { return strconv.FormatUint(rand.Uint64(), 36) }

func requestID(c echo.Context) string { return c.Response().Header().Get(echo.HeaderXRequestID) }

// closeWhenDraining makes the client open a new connection for its next request, to another instance. A connection that the
// server closes later may be closed while a request is on its way.
func (h *handler) closeWhenDraining(c echo.Context) {
	if h.Draining() {
		c.Response().Header().Set(echo.HeaderConnection, "close")
	}
}

// securityHeaders sets the headers that keep a browser from interpreting, embedding or caching an answer. Handlers of pages and
// of cacheable answers overwrite them.
func securityHeaders() echo.MiddlewareFunc {
	// All answers share the slices: a header's values are replaced or appended to, never changed.
	shared := http.Header{
		echo.HeaderXContentTypeOptions:   {"nosniff"},
		echo.HeaderContentSecurityPolicy: {"default-src 'none'; frame-ancestors 'none'"},
		echo.HeaderReferrerPolicy:        {"no-referrer"},
		echo.HeaderCacheControl:          {"no-store"},
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc { // Echo calls it for each request
		return func(c echo.Context) error {
			h := c.Response().Header()
			maps.Copy(h, shared)
			if overTLS(c) {
				h.Set(echo.HeaderStrictTransportSecurity, "max-age=31536000")
			}
			return next(c)
		}
	}
}

// crossOrigin lets the scripts of pages of these origins call the driver API and read its answers, errors included. It sends no cookies:
// the driver API takes none.
func crossOrigin(origins []string) echo.MiddlewareFunc {
	if len(origins) == 0 {
		return func(next echo.HandlerFunc) echo.HandlerFunc { return next }
	}
	return middleware.CORSWithConfig(middleware.CORSConfig{
		Skipper: func(c echo.Context) bool {
			path := c.Request().URL.Path
			return path != "/v1/me" && path != "/v1/stream" && !strings.HasPrefix(path, "/v1/me/") &&
				!strings.HasPrefix(path, "/v1/dispatches/")
		},
		AllowOriginFunc: func(origin string) (bool, error) { return slices.Contains(origins, origin), nil },
		AllowMethods:    []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete},
		AllowHeaders: []string{
			echo.HeaderAuthorization, echo.HeaderContentType, "If-Match", "If-None-Match", idempotencyKey, echo.HeaderXRequestID,
			"Last-Event-ID",
			appVersionHeader,
		},
		ExposeHeaders: []string{echo.HeaderRetryAfter, "ETag", echo.HeaderXRequestID, echo.HeaderWWWAuthenticate},
		MaxAge:        int(time.Hour / time.Second),
	})
}

// needless matches the escapes of letters that need none in a path.
var needless = regexp.MustCompile(`%(?:2[DdEe]|3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa]|5[Ff]|7[Ee])`)

// plainParams makes the identifiers in a path what they are, also if a client escapes letters that need no escape.
func plainParams(c echo.Context) {
	values := slices.Clone(c.ParamValues())
	for i, v := range values {
		values[i] = needless.ReplaceAllStringFunc(v, func(escape string) string {
			letter, _ := url.PathUnescape(escape)
			return letter
		})
	}
	c.SetParamValues(values...)
}

// overTLS reports whether the client uses TLS, to this server or to a proxy. A client that forges the header gains nothing: over
// plain HTTP browsers ignore HSTS and Secure cookies.
func overTLS(c echo.Context) bool {
	first, _, _ := strings.Cut(c.Request().Header.Get(echo.HeaderXForwardedProto), ",") // the outermost proxy
	return c.IsTLS() || strings.EqualFold(strings.TrimSpace(first), "https")
}

// compressed compresses answers that do not fit into one packet: a page of 200 dispatches is 130 KB. It must not be used for
// answers that contain a secret and text of the caller's choice: their length could reveal the secret.
func compressed() echo.MiddlewareFunc {
	return middleware.GzipWithConfig(middleware.GzipConfig{Level: gzip.BestSpeed, MinLength: 1400})
}

// acceptsGzip reports whether an Accept-Encoding header allows gzip.
func acceptsGzip(accept string) bool {
	for coding := range strings.SplitSeq(accept, ",") {
		name, quality, weighed := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";q=")
		if q, err := strconv.ParseFloat(quality, 64); strings.EqualFold(name, "gzip") && (!weighed || err == nil && q > 0) {
			return true
		}
	}
	return false
}
