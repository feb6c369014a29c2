package handler

import (
	"context"
	"errors"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/internal/auth"
)

// profileStore stores drivers' own profiles.
type profileStore interface {
	Driver(ctx context.Context, id dispatch.DriverID) (dispatch.Driver, error)
	SetDuty(ctx context.Context, id dispatch.DriverID, onDuty bool) (v dispatch.Driver, changed bool, err error)
}

func (h *handler) me(c echo.Context, me dispatch.DriverID) error {
	v, err := h.Stores.Profiles.Driver(c.Request().Context(), me)
	return respond(c, 200, viewDriver(v), unauthenticatedIfGone(err))
}

// unauthenticatedIfGone turns ErrDriverNotFound into ErrUnauthenticated: a valid token of a driver that does not exist is not
// accepted.
func unauthenticatedIfGone(err error) error {
	if errors.Is(err, dispatch.ErrDriverNotFound) {
		return auth.ErrUnauthenticated
	}
	return err
}

type dutyRequest struct {
	OnDuty *bool `json:"on_duty" validate:"required"`
}

func (h *handler) setDuty(c echo.Context, me dispatch.DriverID) error {
	req, err := read[dutyRequest](c, maxSmallBody)
	if err != nil {
		return err
	}
	v, changed, err := h.Stores.Profiles.SetDuty(c.Request().Context(), me, *req.OnDuty)
	if changed {
		h.Streams.DriverChanged(v)
	}
	return respond(c, 200, viewDriver(v), unauthenticatedIfGone(err))
}

func (h *handler) myDispatches(c echo.Context, me dispatch.DriverID) error {
	in := &query{c: c}
	q := dispatch.Query{Driver: me, Status: status(in, "dispatch", dispatch.Status.Valid), Page: in.page(maxDriverLimit)}
	return list(h, in, viewClaimed, func(ctx context.Context) ([]dispatch.Dispatch, string, error) {
		if _, err := h.Stores.Profiles.Driver(ctx, me); err != nil {
			return nil, "", unauthenticatedIfGone(err)
		}
		return h.Stores.Dispatches.List(ctx, q)
	})
}

type reasonRequest struct {
	ReasonCode string `json:"reason_code" validate:"max=64"`
}

// roundRequest names the round that a request is about.
type roundRequest struct {
	Round *int `json:"round" validate:"omitempty,min=1,max=2147483647"`
}

type roundReasonRequest struct {
	ReasonCode string `json:"reason_code" validate:"max=64"`
	Round      *int   `json:"round"       validate:"omitempty,min=1,max=2147483647"`
}

// roundOf returns the round of a request, 0 for the current one.
func roundOf(round *int) int {
	if round == nil {
		return 0
	}
	return *round
}

func (h *handler) withdraw(c echo.Context, me dispatch.DriverID, id dispatch.ID) error {
	req, err := read[roundReasonRequest](c, maxSmallBody)
	if err != nil {
		return err
	}
	d, err := h.DriverService.Withdraw(c.Request().Context(), me, id, roundOf(req.Round), req.ReasonCode)
	return respond(c, 200, viewDispatch(d), unauthenticatedIfGone(err))
}

func (h *handler) start(c echo.Context, me dispatch.DriverID, id dispatch.ID) error {
	return inRound(c, me, id, h.DriverService.Start)
}

func (h *handler) complete(c echo.Context, me dispatch.DriverID, id dispatch.ID) error {
	return inRound(c, me, id, h.DriverService.Complete)
}

// inRound calls change with the round of the request, 0 for the current one.
func inRound(c echo.Context, me dispatch.DriverID, id dispatch.ID,
	change func(context.Context, dispatch.DriverID, dispatch.ID, int) (dispatch.Dispatch, error),
) error {
	req, err := readOptional[roundRequest](c)
	if err != nil {
		return err
	}
	d, err := change(c.Request().Context(), me, id, roundOf(req.Round))
	return respond(c, 200, viewDispatch(d), unauthenticatedIfGone(err))
}
