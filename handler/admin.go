package handler

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/idempotency"
	"firsttap/service"
)

type createDispatchRequest struct {
	ExternalID        string     `json:"external_id" validate:"max=128,tidy"`
	Region            string     `json:"region" validate:"required,max=64,tidy"`
	VehicleClass      string     `json:"vehicle_class" validate:"required,max=64,tidy"`
	MinWorkingHeightM *float64   `json:"min_working_height_m" validate:"omitempty,gt=0,lte=200"`
	SiteAddress       string     `json:"site_address" validate:"required,max=500,tidy"`
	SiteLat           *float64   `json:"site_lat" validate:"required_with=SiteLng,omitempty,min=-90,max=90"`
	SiteLng           *float64   `json:"site_lng" validate:"required_with=SiteLat,omitempty,min=-180,max=180"`
	WorkStartsAt      time.Time  `json:"work_starts_at" validate:"required"`
	WorkEndsAt        time.Time  `json:"work_ends_at" validate:"required,gtfield=WorkStartsAt"`
	Fee               feeRequest `json:"fee" validate:"required"`
	Note              string     `json:"note" validate:"max=2000"`
	OpensAt           *time.Time `json:"opens_at"`
	ExpiresAt         *time.Time `json:"expires_at"`
}

// feeRequest has an amount that a browser can hold: beyond 2^53-1 it would show, and send back, another one.
type feeRequest struct {
	Amount   int64  `json:"amount" validate:"min=0,max=9007199254740991"`
	Currency string `json:"currency" validate:"required,iso4217"`
}

func (r *createDispatchRequest) order() service.Order {
	return service.Order{
		ExternalID: r.ExternalID,
		Terms: dispatch.Terms{
			Region: r.Region, VehicleClass: r.VehicleClass, MinWorkingHeightM: r.MinWorkingHeightM,
			Site:         dispatch.Site{Address: r.SiteAddress, Lat: r.SiteLat, Lng: r.SiteLng},
			WorkStartsAt: r.WorkStartsAt, WorkEndsAt: r.WorkEndsAt,
			Fee: dispatch.Money{Amount: r.Fee.Amount, Currency: r.Fee.Currency}, Note: r.Note,
		},
		OpensAt: r.OpensAt, ExpiresAt: r.ExpiresAt,
	}
}

// checkYears keeps what follows from the times within the four digits that RFC 3339 has for a year.
func (r *createDispatchRequest) checkYears() error {
	expires := r.ExpiresAt
	if expires == nil && r.OpensAt != nil {
		byDefault := r.OpensAt.Add(dispatch.DefaultWindow)
		expires = &byDefault
	}
	return checkYears(map[string]*time.Time{
		"work_starts_at": &r.WorkStartsAt, "work_ends_at": &r.WorkEndsAt, "opens_at": r.OpensAt, "expires_at": expires,
	})
}

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
	d, err := h.Dispatcher.Create(c.Request().Context(), req.order(), actor)
	if err != nil {
		return windowError(err)
	}
	c.Response().Header().Set(echo.HeaderLocation, "/v1/admin/dispatches/"+string(d.ID))
	return writeVersioned(c, 201, d)
}

func (h *handler) listDispatches(c echo.Context, actor string) error {
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
	var items []dispatch.Dispatch
	var next string
	list := func() (err error) {
		items, next, err = h.Store.List(c.Request().Context(), q)
		return err
	}
	if err := h.searches.forText(c, actor, q.Text, list); err != nil {
		return err
	}
	return writeJSON(c, 200, viewList(items, next, h.Now(), viewForAdmin))
}

func (h *handler) getDispatch(c echo.Context, _ string) error {
	id, err := dispatchID(c)
	if err != nil {
		return err
	}
	d, err := h.Store.Dispatch(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return writeVersioned(c, 200, d)
}

func (h *handler) cancelDispatch(c echo.Context, actor string) error {
	id, err := dispatchID(c)
	if err != nil {
		return err
	}
	req, err := read[reasonRequest](c, maxBody)
	if err != nil {
		return err
	}
	v, err := version(c)
	if err != nil {
		return err
	}
	d, err := h.Dispatcher.Cancel(c.Request().Context(), id, v, actor, req.ReasonCode)
	if err != nil {
		return err
	}
	return writeVersioned(c, 200, d)
}

// writeVersioned names the version in an ETag, for the If-Match of the next change.
func writeVersioned(c echo.Context, status int, d dispatch.Dispatch) error {
	c.Response().Header().Set("ETag", strconv.Quote(strconv.Itoa(d.Version)))
	return writeJSON(c, status, viewForAdmin(d))
}

type driverRequest struct {
	Name           string   `json:"name" validate:"required,max=200,tidy"`
	Phone          string   `json:"phone" validate:"required,e164"`
	Regions        []string `json:"regions" validate:"required,min=1,max=50,unique,dive,required,max=64,tidy"`
	VehicleClass   string   `json:"vehicle_class" validate:"required,max=64,tidy"`
	WorkingHeightM *float64 `json:"working_height_m" validate:"omitempty,gt=0,lte=200"`
	FirebaseUID    string   `json:"firebase_uid" validate:"max=128,tidy"`
	Locale         string   `json:"locale" validate:"omitempty,max=35,bcp47_language_tag"`
	OnDuty         bool     `json:"on_duty"`
}

// driver returns the nth driver that the request of ctx makes.
func (r *driverRequest) driver(ctx context.Context, now time.Time, n int) dispatch.Driver {
	return dispatch.Driver{
		ID: idempotency.DriverID(ctx, now, n), Name: r.Name, Phone: r.Phone, Regions: r.Regions, VehicleClass: r.VehicleClass,
		WorkingHeightM: r.WorkingHeightM, FirebaseUID: r.FirebaseUID, Locale: r.Locale, OnDuty: r.OnDuty, Version: 1,
	}
}

type addDriversRequest struct {
	Drivers     []driverRequest `json:"drivers" validate:"required,min=1,max=1000,dive"`
	IssueTokens bool            `json:"issue_tokens"`
}

func (h *handler) addDrivers(c echo.Context, _ string) error {
	req, err := read[addDriversRequest](c, maxBulkBody)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	drivers := make([]dispatch.Driver, len(req.Drivers))
	views := make([]driverView, len(req.Drivers))
	for i := range req.Drivers {
		drivers[i] = req.Drivers[i].driver(ctx, h.Now(), i)
		views[i] = viewDriver(drivers[i])
		if !req.IssueTokens {
			continue
		}
		if views[i].Token, _, err = h.Tokens.Issue(drivers[i].ID, 0); err != nil {
			return err
		}
	}
	add := h.Store.AddDrivers
	if req.IssueTokens {
		add = h.Store.AddDriversWithTokens
	}
	if err := add(ctx, drivers); err != nil {
		return err
	}
	return writeJSON(c, 200, map[string]any{"items": views})
}

type tokenView struct {
	Token     string    `json:"token"`
	ExpiresAt timestamp `json:"expires_at"`
}

func (h *handler) issueToken(c echo.Context, _ string) error {
	id, err := dispatch.ParseDriverID(c.Param("id"))
	if err != nil {
		return err
	}
	generation, err := h.Store.NoteToken(c.Request().Context(), id)
	if err != nil {
		return err
	}
	token, until, err := h.Tokens.Issue(id, generation)
	if err != nil {
		return err
	}
	return writeJSON(c, 201, tokenView{Token: token, ExpiresAt: timestamp(until)})
}

func (h *handler) revokeTokens(c echo.Context, _ string) error {
	id, err := driverID(c)
	if err != nil {
		return err
	}
	if err := h.Revocations.Revoke(c.Request().Context(), id); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
