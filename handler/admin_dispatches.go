package handler

import (
	"context"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/service"
)

// dispatchStore reads dispatches, and commits changes for which nothing else has to be known.
type dispatchStore interface {
	Dispatch(ctx context.Context, id dispatch.ID) (dispatch.Dispatch, error)
	List(ctx context.Context, q dispatch.Query) ([]dispatch.Dispatch, string, error)
	Update(
		ctx context.Context, id dispatch.ID, change func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error),
	) (dispatch.Dispatch, error)
}

// eventStore reads the events of dispatches.
type eventStore interface {
	Events(ctx context.Context, id dispatch.ID, page dispatch.Page) ([]dispatch.Event, string, error)
}

// dispatchRequest describes a dispatch that is to be made, or as a change leaves it.
type dispatchRequest struct {
	ExternalID        string     `json:"external_id"          validate:"max=128"`
	Region            string     `json:"region"               validate:"required,max=64"`
	VehicleClass      string     `json:"vehicle_class"        validate:"required,max=64"`
	MinWorkingHeightM *float64   `json:"min_working_height_m" validate:"omitempty,gt=0,lte=200"`
	SiteAddress       string     `json:"site_address"         validate:"required,max=500"`
	SiteLat           *float64   `json:"site_lat"             validate:"required_with=SiteLng,omitempty,min=-90,max=90"`
	SiteLng           *float64   `json:"site_lng"             validate:"required_with=SiteLat,omitempty,min=-180,max=180"`
	WorkStartsAt      time.Time  `json:"work_starts_at"       validate:"required,years"`
	WorkEndsAt        time.Time  `json:"work_ends_at"         validate:"required,gtfield=WorkStartsAt,years"`
	Fee               feeRequest `json:"fee"                  validate:"required"`
	Note              string     `json:"note"                 validate:"max=2000"`
	OpensAt           *time.Time `json:"opens_at"             validate:"omitempty,years"`
	ExpiresAt         *time.Time `json:"expires_at"           validate:"omitempty,years"`
}

// feeRequest limits the amount to 2^53-1, the largest integer that JavaScript shows and sends back unchanged.
type feeRequest struct {
	Amount   *int64 `json:"amount"   validate:"required,min=0,max=9007199254740991"`
	Currency string `json:"currency" validate:"required,iso4217"`
}

func (r *dispatchRequest) order() service.DispatchRequest {
	return service.DispatchRequest{ExternalID: r.ExternalID, Terms: r.terms(), OpensAt: r.OpensAt, ExpiresAt: r.ExpiresAt}
}

func (r *dispatchRequest) terms() dispatch.Terms {
	return dispatch.Terms{
		Region: r.Region, VehicleClass: r.VehicleClass, MinWorkingHeightM: r.MinWorkingHeightM,
		Site:         dispatch.Site{Address: r.SiteAddress, Lat: r.SiteLat, Lng: r.SiteLng},
		WorkStartsAt: r.WorkStartsAt, WorkEndsAt: r.WorkEndsAt,
		Fee: dispatch.Money{Amount: *r.Fee.Amount, Currency: r.Fee.Currency}, Note: r.Note,
	}
}

func (h *handler) createDispatch(c echo.Context, actor string) error {
	req, err := read[dispatchRequest](c, maxBody)
	if err != nil {
		return err
	}
	d, err := h.Backoffice.Create(c.Request().Context(), req.order(), actor)
	if err == nil {
		c.Response().Header().Set(echo.HeaderLocation, "/v1/admin/dispatches/"+string(d.ID))
	}
	return respondDispatch(c, 201, d, err)
}

type previewView struct {
	Eligible    int                               `json:"eligible"`
	Reachable   int                               `json:"reachable"`
	Busy        int                               `json:"busy"`
	NotEligible int                               `json:"not_eligible"`
	Reasons     map[dispatch.IneligibleReason]int `json:"reasons"`
}

func (h *handler) previewDispatch(c echo.Context, actor string) error {
	req, err := read[dispatchRequest](c, maxBody)
	if err != nil {
		return err
	}
	var p dispatch.Preview
	err = h.previews.run(c, actor, func() (err error) {
		p, err = h.Backoffice.Preview(c.Request().Context(), req.order())
		return err
	})
	return respond(c, 200, previewView(p), err)
}

func (h *handler) listDispatches(c echo.Context, _ string) error {
	in := &query{c: c}
	q := dispatch.Query{
		Status: status(in, "dispatch", dispatch.Status.Valid), Region: in.text("region"), Text: in.text("q"), Page: in.page(maxLimit),
	}
	return list(h, in, viewForAdmin, func(ctx context.Context) ([]dispatch.Dispatch, string, error) {
		return h.Stores.Dispatches.List(ctx, q)
	})
}

func (h *handler) getDispatch(c echo.Context, _ string, id dispatch.ID) error {
	d, err := h.Stores.Dispatches.Dispatch(c.Request().Context(), id)
	return respondDispatch(c, 200, d, err)
}

type eventView struct {
	ID         dispatch.EventID   `json:"id"`
	Type       dispatch.EventType `json:"type"`
	Round      int                `json:"round"`
	DriverID   *string            `json:"driver_id"`
	Actor      string             `json:"actor"`
	ReasonCode *string            `json:"reason_code"`
	RequestID  *string            `json:"request_id"`
	At         timestamp          `json:"at"`
}

func viewEvent(e dispatch.Event) eventView {
	return eventView{
		ID: e.ID, Type: e.Type, Round: e.Round, DriverID: nullable(string(e.Driver)), Actor: e.Actor,
		ReasonCode: nullable(e.ReasonCode), RequestID: nullable(e.Request), At: timestamp(e.At),
	}
}

func (h *handler) dispatchEvents(c echo.Context, _ string, id dispatch.ID) error {
	in := &query{c: c}
	page := in.page(maxLimit)
	return list(h, in, viewEvent, func(ctx context.Context) ([]dispatch.Event, string, error) {
		return h.Stores.Events.Events(ctx, id, page)
	})
}
