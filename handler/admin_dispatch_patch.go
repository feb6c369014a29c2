package handler

import (
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

func (h *handler) patchDispatch(c echo.Context, actor string, id dispatch.ID) error {
	patch, err := readPatch[dispatchRequest](c, "min_working_height_m", "site_lat", "site_lng", "note")
	switch {
	case err != nil:
		return err
	case patch.given["external_id"] != nil:
		return invalidField("external_id", "is not a field of this request")
	case patch.null("site_lat") != patch.null("site_lng") && patch.given["site_lat"] != nil && patch.given["site_lng"] != nil:
		return invalidField("site_lat", "must be null when site_lng is, and only then")
	}
	version, err := ifMatch(c, true, dispatch.ErrVersionConflict)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	// Update refuses any other version: if it makes the change, the dispatch is still as it is read here.
	present, err := h.Stores.Dispatches.Dispatch(ctx, id)
	if err != nil {
		return err
	}
	if present.Version != version {
		return dispatch.ErrVersionConflict
	}
	req := patch.onto(asRequest(present))
	if patch.null("site_lat") || patch.null("site_lng") {
		req.SiteLat, req.SiteLng = nil, nil
	}
	req.WorkStartsAt, req.WorkEndsAt = keepIfShown(req.WorkStartsAt, present.WorkStartsAt), keepIfShown(req.WorkEndsAt, present.WorkEndsAt)
	*req.OpensAt, *req.ExpiresAt = keepIfShown(*req.OpensAt, present.OpensAt), keepIfShown(*req.ExpiresAt, present.ExpiresAt)
	if err := validate(req); err != nil {
		return err
	}
	window := dispatch.Window{OpensAt: *req.OpensAt, ExpiresAt: *req.ExpiresAt}
	return h.changeDispatch(c, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.Update(version, req.terms(), window, actor, now)
	})
}

// asRequest returns a request for a dispatch like d.
func asRequest(d dispatch.Dispatch) dispatchRequest {
	return dispatchRequest{
		Region: d.Region, VehicleClass: d.VehicleClass, MinWorkingHeightM: d.MinWorkingHeightM,
		SiteAddress: d.Site.Address, SiteLat: d.Site.Lat, SiteLng: d.Site.Lng,
		WorkStartsAt: d.WorkStartsAt, WorkEndsAt: d.WorkEndsAt, Note: d.Note, OpensAt: &d.OpensAt, ExpiresAt: &d.ExpiresAt,
		Fee: feeRequest{Amount: &d.Fee.Amount, Currency: d.Fee.Currency},
	}
}

// keepIfShown returns wanted, or present if wanted is what the API shows of it, in milliseconds: a client that sends back what it
// was shown changes nothing.
func keepIfShown(wanted, present time.Time) time.Time {
	if wanted.Equal(present.Truncate(time.Millisecond)) {
		return present
	}
	return *toMicroseconds(&wanted)
}

// toMicroseconds returns the time as the databases store it.
func toMicroseconds(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	us := t.Truncate(time.Microsecond)
	return &us
}
