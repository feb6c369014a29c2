package handler

import (
	"errors"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

// readChange reads the body of an admin's change to a dispatch, and the version in If-Match that the change is made for.
func readChange[T any](c echo.Context) (req T, version int, err error) {
	if req, err = read[T](c, maxBody); err == nil {
		version, err = ifMatch(c, true, dispatch.ErrVersionConflict)
	}
	return req, version, err
}

// changeDispatch commits what change makes of the dispatch, and answers 200 with it.
func (h *handler) changeDispatch(
	c echo.Context, id dispatch.ID, change func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error),
) error {
	d, err := h.Stores.Dispatches.Update(c.Request().Context(), id, change)
	return respondDispatch(c, 200, d, err)
}

// respondDispatch answers with the dispatch for an admin, and its version as the ETag.
func respondDispatch(c echo.Context, status int, d dispatch.Dispatch, err error) error {
	return respondVersion(c, status, d.Version, viewForAdmin(d), err)
}

type windowRequest struct {
	OpensAt   *time.Time `json:"opens_at"   validate:"omitempty,years"`
	ExpiresAt *time.Time `json:"expires_at" validate:"omitempty,years"`
}

func (h *handler) reopenDispatch(c echo.Context, actor string, id dispatch.ID) error {
	req, version, err := readChange[windowRequest](c)
	if err != nil {
		return err
	}
	opens, expires := toMicroseconds(req.OpensAt), toMicroseconds(req.ExpiresAt)
	return h.changeDispatch(c, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.Reopen(version, opens, expires, actor, now)
	})
}

type extendRequest struct {
	ExpiresAt *time.Time `json:"expires_at" validate:"required,years"`
}

func (h *handler) extendDispatch(c echo.Context, actor string, id dispatch.ID) error {
	req, version, err := readChange[extendRequest](c)
	if err != nil {
		return err
	}
	until := toMicroseconds(req.ExpiresAt)
	return h.changeDispatch(c, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.Extend(version, *until, actor, now)
	})
}

type assignRequest struct {
	DriverID string `json:"driver_id" validate:"required"`
}

func (h *handler) assignDispatch(c echo.Context, actor string, id dispatch.ID) error {
	req, version, err := readChange[assignRequest](c)
	if err != nil {
		return err
	}
	driver, err := dispatch.ParseDriverID(req.DriverID)
	if err != nil {
		return err
	}
	d, err := h.Backoffice.Assign(c.Request().Context(), id, version, driver, actor)
	if errors.Is(err, dispatch.ErrDriverBusy) || errors.Is(err, dispatch.ErrNotEligible) {
		err = assignError{err}
	}
	return respondDispatch(c, 200, d, err)
}

func (h *handler) unassignDispatch(c echo.Context, actor string, id dispatch.ID) error {
	req, version, err := readChange[reasonRequest](c)
	if err != nil {
		return err
	}
	d, err := h.Backoffice.Unassign(c.Request().Context(), id, version, actor, req.ReasonCode)
	return respondDispatch(c, 200, d, err)
}

func (h *handler) cancelDispatch(c echo.Context, actor string, id dispatch.ID) error {
	req, version, err := readChange[reasonRequest](c)
	if err != nil {
		return err
	}
	d, err := h.Backoffice.Cancel(c.Request().Context(), id, version, actor, req.ReasonCode)
	return respondDispatch(c, 200, d, err)
}

// assignError marks an error about a driver that goes to an admin. The detail of the answer is the error's own text, because the
// detail in the table addresses the driver.
type assignError struct{ error }

func (e assignError) Unwrap() error { return e.error }
