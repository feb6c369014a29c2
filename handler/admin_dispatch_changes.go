package handler

import (
	"errors"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

// change is an admin's change to the dispatch in the path, at the version in If-Match.
type change struct {
	id      dispatch.ID
	version int
	actor   string
}

// changeDispatch reads the request and answers 200 with the dispatch that do returns.
func changeDispatch[T any](c echo.Context, actor string, do func(to change, req T) (dispatch.Dispatch, error)) error {
	id, err := dispatchID(c)
	if err != nil {
		return err
	}
	req, err := read[T](c, maxBody)
	if err != nil {
		return err
	}
	v, err := version(c)
	if err != nil {
		return err
	}
	d, err := do(change{id, v, actor}, req)
	if err != nil {
		return timeError(err)
	}
	return writeVersioned(c, 200, d)
}

// timeError turns an error about one of a dispatch's times into an error of that field.
func timeError(err error) error {
	if wrong := (*dispatch.TimeError)(nil); errors.As(err, &wrong) {
		return invalidField(wrong.Field, wrong.Must)
	}
	return err
}

func (h *handler) patchDispatch(c echo.Context, actor string) error {
	return changeDispatch(c, actor, func(to change, patch patchRequest) (d dispatch.Dispatch, err error) {
		if err := patch.check(); err != nil {
			return d, err
		}
		ctx := c.Request().Context()
		// Update refuses any other version: if it makes the change, the dispatch is still as it is read here.
		if d, err = h.Stores.Dispatches.Dispatch(ctx, to.id); err != nil {
			return d, err
		}
		if d.Version != to.version {
			return d, dispatch.ErrVersionConflict
		}
		req, err := patch.applyTo(d)
		if err != nil {
			return d, err
		}
		window := dispatch.Window{OpensAt: *req.OpensAt, ExpiresAt: *req.ExpiresAt}
		return h.Backoffice.Update(ctx, to.id, to.version, req.order().Terms, window, to.actor)
	})
}

type windowRequest struct {
	OpensAt   *time.Time `json:"opens_at"`
	ExpiresAt *time.Time `json:"expires_at"`
}

func (h *handler) reopenDispatch(c echo.Context, actor string) error {
	return changeDispatch(c, actor, func(to change, req windowRequest) (dispatch.Dispatch, error) {
		if err := checkYears(map[string]*time.Time{"opens_at": req.OpensAt, "expires_at": req.ExpiresAt}); err != nil {
			return dispatch.Dispatch{}, err
		}
		return h.Backoffice.Reopen(c.Request().Context(), to.id, to.version, toMicroseconds(req.OpensAt), toMicroseconds(req.ExpiresAt), to.actor)
	})
}

type extendRequest struct {
	ExpiresAt *time.Time `json:"expires_at" validate:"required"`
}

func (h *handler) extendDispatch(c echo.Context, actor string) error {
	return changeDispatch(c, actor, func(to change, req extendRequest) (dispatch.Dispatch, error) {
		if err := checkYears(map[string]*time.Time{"expires_at": req.ExpiresAt}); err != nil {
			return dispatch.Dispatch{}, err
		}
		return h.Backoffice.Extend(c.Request().Context(), to.id, to.version, *toMicroseconds(req.ExpiresAt), to.actor)
	})
}

type assignRequest struct {
	DriverID string `json:"driver_id" validate:"required"`
}

func (h *handler) assignDispatch(c echo.Context, actor string) error {
	return changeDispatch(c, actor, func(to change, req assignRequest) (dispatch.Dispatch, error) {
		driver, err := dispatch.ParseDriverID(req.DriverID)
		if err != nil {
			return dispatch.Dispatch{}, err
		}
		d, err := h.Backoffice.Assign(c.Request().Context(), to.id, to.version, driver, to.actor)
		if errors.Is(err, dispatch.ErrDriverBusy) || errors.Is(err, dispatch.ErrNotEligible) {
			err = assignError{err}
		}
		return d, err
	})
}

func (h *handler) unassignDispatch(c echo.Context, actor string) error {
	return changeDispatch(c, actor, func(to change, req reasonRequest) (dispatch.Dispatch, error) {
		return h.Backoffice.Unassign(c.Request().Context(), to.id, to.version, to.actor, req.ReasonCode)
	})
}

func (h *handler) cancelDispatch(c echo.Context, actor string) error {
	id, err := dispatchID(c)
	if err != nil {
		return err
	}
	req, err := read[reasonRequest](c, maxSmallBody)
	if err != nil {
		return err
	}
	v, err := version(c)
	if err != nil {
		return err
	}
	d, err := h.Backoffice.Cancel(c.Request().Context(), id, v, actor, req.ReasonCode)
	if err != nil {
		return err
	}
	return writeVersioned(c, 200, d)
}

// assignError marks an error about a driver that goes to an admin. The detail of the answer is the error's own text, because the
// detail in the table addresses the driver.
type assignError struct{ error }

func (e assignError) Unwrap() error { return e.error }
