package handler

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/internal/auth"
	"firsttap/internal/limit"
)

// asDriver authenticates a driver's token and applies the driver's rate limit.
func (h *handler) asDriver(next func(c echo.Context, me dispatch.DriverID) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		me, err := h.authenticateDriver(c)
		if err != nil {
			return err
		}
		c.SetRequest(c.Request().WithContext(withCaller(c, string(me))))
		return next(c, me)
	}
}

// authenticateDriver returns the driver of the request's token, within the driver's rate limit. It checks the query.
func (h *handler) authenticateDriver(c echo.Context) (dispatch.DriverID, error) {
	token, err := bearer(c)
	if err != nil {
		return "", err
	}
	me, err := h.Tokens.Authenticate(c.Request().Context(), token)
	if err != nil {
		return "", h.reject(c, auth.ByToken, err)
	}
	if err := allow(c, h.DriverLimit, string(me), h.Now()); err != nil {
		return me, err
	}
	return me, h.checkQuery(c)
}

// asAdmin authenticates an admin's key, requires at least the role, and applies the key's rate limit.
func (h *handler) asAdmin(role dispatch.Role, next func(c echo.Context, actor string) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		key, with, err := h.authenticateAdmin(c)
		if err != nil {
			return err
		}
		if key.Role < role {
			return errForbidden
		}
		c.SetRequest(c.Request().WithContext(withCaller(c, key.ID)))
		return h.idempotent(c, key.ID, with.key, next)
	}
}

// authenticateAdmin returns the key that the request is made with, and the session that carried it. It checks the query.
func (h *handler) authenticateAdmin(c echo.Context) (dispatch.Key, session, error) {
	with, err := h.credentials(c)
	if err != nil {
		return dispatch.Key{}, session{}, err
	}
	key, err := h.authenticateKey(c, with.key, auth.ByKey)
	if err == nil {
		err = h.checkQuery(c)
	}
	return key, with, err
}

func withCaller(c echo.Context, actor string) context.Context {
	return dispatch.WithCaller(c.Request().Context(), dispatch.Caller{Actor: actor, Request: requestID(c)})
}

func bearer(c echo.Context) (string, error) {
	headers := c.Request().Header.Values(echo.HeaderAuthorization)
	if len(headers) != 1 {
		return "", auth.ErrUnauthenticated // with two headers, a proxy may have checked the other one
	}
	scheme, token, ok := strings.Cut(headers[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", auth.ErrUnauthenticated
	}
	return token, nil
}

// authenticateKey returns the key with this secret, within the key's rate limit. A known key above its limit costs no statement. The keys
// are read anew for an unknown secret only within the limits on failed sign-ins from the client's network.
func (h *handler) authenticateKey(c echo.Context, key string, by auth.Method) (dispatch.Key, error) {
	id, known := h.Keys.KnownID(key)
	if known {
		if err := allow(c, h.AdminLimit, id, h.Now()); err != nil {
			return dispatch.Key{}, err
		}
	}
	wait := h.SignIns.Wait(by, clientNetwork(c))
	found, err := h.Keys.Authenticate(c.Request().Context(), key, wait == 0)
	if err != nil {
		if err = h.reject(c, by, err); wait > 0 && errors.Is(err, auth.ErrUnauthenticated) {
			err = rateLimited(c, max(wait, time.Second)) // an old list does not say that there is no such key
		}
		return dispatch.Key{}, err
	}
	if !known {
		err = allow(c, h.AdminLimit, found.ID, h.Now())
	}
	return found, err
}

// reject returns the error for credentials that were refused with err, and counts the failure. Above the limit it does not say
// that they are wrong. An expired token is not counted: nobody guesses one, and in the morning many drivers send one at once.
func (h *handler) reject(c echo.Context, by auth.Method, err error) error {
	if !errors.Is(err, auth.ErrUnauthenticated) || errors.Is(err, auth.ErrTokenEnded) {
		return err
	}
	if wait := h.SignIns.Fail(by, clientNetwork(c)); wait > 0 {
		return rateLimited(c, wait)
	}
	return err
}

// clientNetwork returns the IPv4 address or the IPv6 /64 network that the connection comes from, which is the proxy's behind a
// proxy. An IPv6 host can take any address of its network.
func clientNetwork(c echo.Context) string {
	ip, err := netip.ParseAddr(c.RealIP())
	switch {
	case err != nil:
		return "none"
	case ip.Unmap().Is4():
		return ip.Unmap().String()
	}
	return netip.PrefixFrom(ip.WithZone(""), 64).Masked().String()
}

func allow(c echo.Context, l *limit.Limiter, caller string, now time.Time) error {
	wait, ok := l.Allow(c.Request().Context(), caller, now)
	if ok {
		return nil
	}
	return rateLimited(c, wait)
}

// rateLimited sets Retry-After and returns errRateLimited.
func rateLimited(c echo.Context, wait time.Duration) error {
	c.Response().Header().Set(echo.HeaderRetryAfter, retryAfterSeconds(wait))
	return errRateLimited
}

// retryAfterSeconds formats a wait for Retry-After: whole seconds, at least one.
func retryAfterSeconds(wait time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(wait.Seconds()))))
}
