package handler

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/labstack/echo/v4"
	"golang.org/x/time/rate"

	"firsttap/dispatch"
	"firsttap/service"
)

// asDriver lets a driver's token in, within the driver's rate.
func (h *handler) asDriver(next func(c echo.Context, me dispatch.DriverID) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		token, err := bearer(c)
		if err != nil {
			return err
		}
		me, err := h.Tokens.Driver(token)
		if err != nil {
			return err
		}
		if err := h.driverLimit.allow(c, string(me), h.Now()); err != nil {
			return err
		}
		return next(c, me)
	}
}

// asAdmin lets an admin's key in that has at least the role, within the key's rate.
func (h *handler) asAdmin(role dispatch.Role, next func(c echo.Context, actor string) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		secret, err := bearer(c)
		if err != nil {
			return err
		}
		key, err := h.Keys.Holder(c.Request().Context(), secret)
		if err != nil {
			return err
		}
		if err := h.adminLimit.allow(c, key.ID, h.Now()); err != nil {
			return err
		}
		if key.Role < role {
			return errForbidden
		}
		return next(c, key.ID)
	}
}

func bearer(c echo.Context) (string, error) {
	scheme, token, ok := strings.Cut(c.Request().Header.Get(echo.HeaderAuthorization), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", service.ErrUnauthenticated
	}
	return token, nil
}

// Rate is how many requests a second a caller may make. Twice that may come at once.
type Rate float64

// ParseRate reads "20/s".
func ParseRate(s string) (Rate, error) {
	number, ok := strings.CutSuffix(s, "/s")
	n, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(n > 0 && n <= 1e9) {
		return 0, fmt.Errorf("%q is not a rate like 20/s", s)
	}
	return Rate(n), nil
}

// limiter keeps a token bucket for each of the callers seen last.
type limiter struct {
	rate    Rate
	callers *lru.Cache[string, *rate.Limiter]
}

// maxCallers bounds the buckets. A caller whose bucket is dropped starts with a full one.
const maxCallers = 65536

func newLimiter(r Rate) *limiter {
	callers, err := lru.New[string, *rate.Limiter](maxCallers)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &limiter{rate: r, callers: callers}
}

func (l *limiter) allow(c echo.Context, caller string, now time.Time) error {
	bucket, ok := l.callers.Get(caller)
	if !ok {
		bucket = rate.NewLimiter(rate.Limit(l.rate), max(1, int(2*l.rate)))
		if first, had, _ := l.callers.PeekOrAdd(caller, bucket); had {
			bucket = first
		}
	}
	if bucket.AllowN(now, 1) {
		return nil
	}
	wait := max(1, int(math.Ceil(float64(1/l.rate))))
	c.Response().Header().Set(echo.HeaderRetryAfter, strconv.Itoa(wait))
	return errRateLimited
}

// observe gives each request an id, survives a panic, and logs: changes at info, failures where they are answered,
// the rest at debug.
func (h *handler) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		started := time.Now()
		id := c.Request().Header.Get(echo.HeaderXRequestID)
		if !usableRequestID(id) {
			id = newRequestID()
		}
		c.Response().Header().Set(echo.HeaderXRequestID, id)
		if err := h.survive(next, c); err != nil {
			c.Error(err)
		}
		level := slog.LevelDebug
		if c.Response().Status < 300 && c.Request().Method != "GET" {
			level = slog.LevelInfo
		}
		if h.Log.Enabled(context.Background(), level) {
			h.Log.Log(context.Background(), level, "request", "method", c.Request().Method, "path", c.Request().URL.Path,
				"status", c.Response().Status, "took_us", time.Since(started).Microseconds(), "request_id", id)
		}
		return nil
	}
}

func (h *handler) survive(next echo.HandlerFunc, c echo.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return next(c)
}

const maxRequestID = 128

func usableRequestID(id string) bool {
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
