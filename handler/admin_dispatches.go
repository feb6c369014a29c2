package handler

import (
	"context"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/service"
)

// dispatchStore reads dispatches.
type dispatchStore interface {
	Dispatch(ctx context.Context, id dispatch.ID) (dispatch.Dispatch, error)
	List(ctx context.Context, q dispatch.Query) ([]dispatch.Dispatch, string, error)
}

// eventStore reads the events of dispatches.
type eventStore interface {
	Events(ctx context.Context, id dispatch.ID, page dispatch.Page) ([]dispatch.Event, string, error)
}

type createDispatchRequest struct {
	ExternalID        string     `json:"external_id"          validate:"max=128"`
	Region            string     `json:"region"               validate:"required,max=64"`
	VehicleClass      string     `json:"vehicle_class"        validate:"required,max=64"`
	MinWorkingHeightM *float64   `json:"min_working_height_m" validate:"omitempty,gt=0,lte=200"`
	SiteAddress       string     `json:"site_address"         validate:"required,max=500"`
	SiteLat           *float64   `json:"site_lat"             validate:"required_with=SiteLng,omitempty,min=-90,max=90"`
	SiteLng           *float64   `json:"site_lng"             validate:"required_with=SiteLat,omitempty,min=-180,max=180"`
	WorkStartsAt      time.Time  `json:"work_starts_at"       validate:"required"`
	WorkEndsAt        time.Time  `json:"work_ends_at"         validate:"required,gtfield=WorkStartsAt"`
	Fee               feeRequest `json:"fee"                  validate:"required"`
	Note              string     `json:"note"                 validate:"max=2000"`
	OpensAt           *time.Time `json:"opens_at"`
	ExpiresAt         *time.Time `json:"expires_at"`
}

// feeRequest limits the amount to 2^53-1, the largest integer that JavaScript shows and sends back unchanged.
type feeRequest struct {
	Amount   *int64 `json:"amount"   validate:"required,min=0,max=9007199254740991"`
	Currency string `json:"currency" validate:"required,iso4217"`
}

func (r *createDispatchRequest) order() service.DispatchRequest {
	return service.DispatchRequest{
		ExternalID: r.ExternalID,
		Terms: dispatch.Terms{
			Region: r.Region, VehicleClass: r.VehicleClass, MinWorkingHeightM: r.MinWorkingHeightM,
			Site:         dispatch.Site{Address: r.SiteAddress, Lat: r.SiteLat, Lng: r.SiteLng},
			WorkStartsAt: r.WorkStartsAt, WorkEndsAt: r.WorkEndsAt,
			Fee: dispatch.Money{Amount: *r.Fee.Amount, Currency: r.Fee.Currency}, Note: r.Note,
		},
		OpensAt: r.OpensAt, ExpiresAt: r.ExpiresAt,
	}
}

func (r *createDispatchRequest) checkYears() error {
	return checkYears(map[string]*time.Time{
		"work_starts_at": &r.WorkStartsAt, "work_ends_at": &r.WorkEndsAt, "opens_at": r.OpensAt, "expires_at": r.ExpiresAt,
	})
}

// checkYears refuses times whose year does not fit into the four digits of RFC 3339.
func checkYears(fields map[string]*time.Time) error {
	for field, t := range fields {
		if t != nil && (t.UTC().Year() < 1 || t.UTC().Year() > 9999) {
			return invalidField(field, "must be from the year 1 to 9999, in UTC")
		}
	}
	return nil
}

func (h *handler) createDispatch(c echo.Context, actor string) error {
	req, err := read[createDispatchRequest](c, maxBody)
	if err != nil {
		return err
	}
	if err := req.checkYears(); err != nil {
		return err
	}
	d, err := h.Backoffice.Create(c.Request().Context(), req.order(), actor)
	if err != nil {
		return timeError(err)
	}
	c.Response().Header().Set(echo.HeaderLocation, "/v1/admin/dispatches/"+string(d.ID))
	return writeVersioned(c, 201, d)
}

type previewView struct {
	Eligible    int                               `json:"eligible"`
	Reachable   int                               `json:"reachable"`
	Busy        int                               `json:"busy"`
	NotEligible int                               `json:"not_eligible"`
	Reasons     map[dispatch.IneligibleReason]int `json:"reasons"`
}

func (h *handler) previewDispatch(c echo.Context, actor string) error {
	req, err := read[createDispatchRequest](c, maxBody)
	if err != nil {
		return err
	}
	if err := req.checkYears(); err != nil {
		return err
	}
	var p dispatch.Preview
	err = h.previews.run(c, actor, func() (err error) {
		p, err = h.Backoffice.Preview(c.Request().Context(), req.order())
		return err
	})
	if err != nil {
		return timeError(err)
	}
	return writeJSON(c, 200, previewView(p))
}

func (h *handler) listDispatches(c echo.Context, _ string) error {
	p, err := page(c)
	if err != nil {
		return err
	}
	s, err := status(c)
	if err != nil {
		return err
	}
	q := dispatch.Query{Status: s, Page: p}
	if q.Region, err = textParam(c, "region"); err != nil {
		return err
	}
	if q.Text, err = textParam(c, "q"); err != nil {
		return err
	}
	items, next, err := h.Stores.Dispatches.List(c.Request().Context(), q)
	if err != nil {
		return err
	}
	return writeJSON(c, 200, viewList(items, next, h.Now(), viewForAdmin))
}

func (h *handler) getDispatch(c echo.Context, _ string) error {
	id, err := dispatchID(c)
	if err != nil {
		return err
	}
	d, err := h.Stores.Dispatches.Dispatch(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return writeVersioned(c, 200, d)
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

func (h *handler) dispatchEvents(c echo.Context, _ string) error {
	id, err := dispatchID(c)
	if err != nil {
		return err
	}
	p, err := page(c)
	if err != nil {
		return err
	}
	items, next, err := h.Stores.Events.Events(c.Request().Context(), id, p)
	if err != nil {
		return err
	}
	return writeJSON(c, 200, viewList(items, next, h.Now(), viewEvent))
}

// writeVersioned writes the dispatch with its version as the ETag, for the If-Match of the next change.
func writeVersioned(c echo.Context, status int, d dispatch.Dispatch) error {
	c.Response().Header().Set("ETag", strconv.Quote(strconv.Itoa(d.Version)))
	return writeJSON(c, status, viewForAdmin(d))
}
