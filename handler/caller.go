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

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/limit"
	"firsttap/service"
)

// asDriver lets a driver's token in, within the driver's rate.
func (h *handler) asDriver(next func(c echo.Context, me dispatch.DriverID) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		token, err := bearer(c)
		if err != nil {
			return err
		}
		me, err := h.Tokens.Caller(c.Request().Context(), token)
		if err != nil {
			return h.noDriver(c, err)
		}
		if err := allow(c, h.DriverLimit, string(me), h.Now()); err != nil {
			return err
		}
		c.SetRequest(c.Request().WithContext(calledBy(c, string(me))))
		return next(c, me)
	}
}

// asAdmin lets an admin's key in that has at least the role, within the key's rate.
func (h *handler) asAdmin(role dispatch.Role, next func(c echo.Context, actor string) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		key, with, err := h.admin(c)
		if err != nil {
			return err
		}
		if key.Role < role {
			return errForbidden
		}
		c.SetRequest(c.Request().WithContext(calledBy(c, key.ID)))
		return h.once(c, key.ID, with.key, next)
	}
}

// admin returns whose key a request is made with, and how it came.
func (h *handler) admin(c echo.Context) (dispatch.Key, session, error) {
	with, err := h.sessionOf(c)
	if err != nil {
		return dispatch.Key{}, session{}, err
	}
	key, err := h.holder(c, with.key, service.DoorKey)
	if err != nil {
		return dispatch.Key{}, session{}, err
	}
	return key, with, allow(c, h.AdminLimit, key.ID, h.Now())
}

func calledBy(c echo.Context, actor string) context.Context {
	return dispatch.WithCaller(c.Request().Context(), dispatch.Caller{Actor: actor, Request: requestID(c)})
}

func bearer(c echo.Context) (string, error) {
	headers := c.Request().Header.Values(echo.HeaderAuthorization)
	if len(headers) != 1 {
		return "", service.ErrUnauthenticated // of two, a proxy may have looked at the other
	}
	scheme, token, ok := strings.Cut(headers[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", service.ErrUnauthenticated
	}
	return token, nil
}

func allow(c echo.Context, l *limit.Limiter, caller string, now time.Time) error {
	wait, ok := l.Allow(c.Request().Context(), caller, now)
	if ok {
		return nil
	}
	return tooMany(c, wait)
}

// tooMany says when to try again.
func tooMany(c echo.Context, wait time.Duration) error {
	c.Response().Header().Set(echo.HeaderRetryAfter, seconds(wait))
	return errRateLimited
}

// seconds is a wait as Retry-After has it.
func seconds(wait time.Duration) string { return strconv.Itoa(max(1, int(math.Ceil(wait.Seconds())))) }

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
		c.Request().Pattern = c.Path() // for whoever is around the router
		h.partWhenDraining(c)
		if err := h.survive(next, c); err != nil {
			c.Error(err)
		}
		took := time.Since(started)
		if h.Answered != nil {
			h.Answered(c.Request().Method, c.Path(), c.Response().Status, took)
		}
		level := slog.LevelDebug
		if c.Response().Status < 300 && c.Request().Method != "GET" {
			level = slog.LevelInfo
		}
		if h.Log.Enabled(context.Background(), level) {
			h.Log.Log(c.Request().Context(), level, "request", "method", c.Request().Method, "path", c.Request().URL.Path,
				"status", c.Response().Status, "took_us", took.Microseconds(), "request_id", id)
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
