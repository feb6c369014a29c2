package handler

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/service"
)

// holder returns whose key it is. A stranger is let look within what strangers may do from that address.
func (h *handler) holder(c echo.Context, key string, door service.Door) (dispatch.Key, error) {
	from := address(c)
	var wait time.Duration
	var entered bool
	found, err := h.Keys.Holder(c.Request().Context(), key, func() bool {
		wait, entered = h.SignIns.Enter(door, from)
		return entered
	})
	switch {
	case errors.Is(err, service.ErrUnauthenticated):
		if !entered {
			h.SignIns.Enter(door, from) // a key that was in force until now
		}
		h.SignIns.Done(door, from, service.SignInFailed)
	case errors.Is(err, service.ErrTooManyFailures):
		h.SignIns.Done(door, from, service.SignInLimited)
		return dispatch.Key{}, fmt.Errorf("%w: %w", tooMany(c, wait), err)
	case entered:
		h.SignIns.Back(door, from)
	}
	return found, err
}

// noDriver is what to tell whose token proves nothing: at the limit no longer that it does. A token that has ended is none
// that somebody tries, and many have one at once who wake up in the morning.
func (h *handler) noDriver(c echo.Context, err error) error {
	if !errors.Is(err, service.ErrUnauthenticated) || errors.Is(err, service.ErrTokenOver) {
		return err
	}
	from := address(c)
	if wait, ok := h.SignIns.Enter(service.DoorToken, from); !ok {
		h.SignIns.Done(service.DoorToken, from, service.SignInLimited)
		return tooMany(c, wait)
	}
	h.SignIns.Done(service.DoorToken, from, service.SignInFailed)
	return err
}

// address is where the connection comes from: a proxy's, where there is one. Of IPv6 it is the network, within which a host
// may have any address.
func address(c echo.Context) string {
	ip, err := netip.ParseAddr(c.RealIP())
	switch {
	case err != nil:
		return "none"
	case ip.Unmap().Is4():
		return ip.Unmap().String()
	}
	return netip.PrefixFrom(ip.WithZone(""), 64).Masked().String()
}
