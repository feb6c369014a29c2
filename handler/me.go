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
	if err != nil {
		return unauthenticatedIfGone(err)
	}
	return writeJSON(c, 200, viewDriver(v))
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
	if err != nil {
		return unauthenticatedIfGone(err)
	}
	if changed {
		h.Streams.DriverChanged(v)
	}
	return writeJSON(c, 200, viewDriver(v))
}

func (h *handler) myDispatches(c echo.Context, me dispatch.DriverID) error {
	p, err := pageUpTo(c, maxDriverLimit)
	if err != nil {
		return err
	}
	s, err := status(c)
	if err != nil {
		return err
	}
	if _, err := h.Stores.Profiles.Driver(c.Request().Context(), me); err != nil {
		return unauthenticatedIfGone(err)
	}
	items, next, err := h.Stores.Dispatches.List(c.Request().Context(), dispatch.Query{Driver: me, Status: s, Page: p})
	if err != nil {
		return err
	}
	return writeJSON(c, 200, viewList(items, next, h.Now(), viewClaimed))
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

func (h *handler) withdraw(c echo.Context, me dispatch.DriverID) error {
	req, err := read[roundReasonRequest](c, maxSmallBody)
	if err != nil {
		return err
	}
	return h.onDispatch(c, func(ctx context.Context, id dispatch.ID) (any, error) {
		d, err := h.DriverService.Withdraw(ctx, me, id, roundOf(req.Round), req.ReasonCode)
		return viewDispatch(d), err
	})
}

func (h *handler) start(c echo.Context, me dispatch.DriverID) error {
	return h.inRound(c, me, h.DriverService.Start)
}

func (h *handler) complete(c echo.Context, me dispatch.DriverID) error {
	return h.inRound(c, me, h.DriverService.Complete)
}

// inRound calls change with the round of the request, 0 for the current one.
func (h *handler) inRound(c echo.Context, me dispatch.DriverID,
	change func(context.Context, dispatch.DriverID, dispatch.ID, int) (dispatch.Dispatch, error)) error {
	req, err := readOptional[roundRequest](c)
	if err != nil {
		return err
	}
	return h.onDispatch(c, func(ctx context.Context, id dispatch.ID) (any, error) {
		d, err := change(ctx, me, id, roundOf(req.Round))
		return viewDispatch(d), err
	})
}

// onDispatch calls do with the dispatch's id in the path, and answers 200 with the view that do returns.
func (h *handler) onDispatch(c echo.Context, do func(ctx context.Context, id dispatch.ID) (any, error)) error {
	id, err := dispatchID(c)
	if err != nil {
		return err
	}
	view, err := do(c.Request().Context(), id)
	if err != nil {
		return unauthenticatedIfGone(err)
	}
	return writeJSON(c, 200, view)
}
