package handler

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/idempotency"
)

// driverStore stores drivers as the backoffice manages them.
type driverStore interface {
	CreateDriver(ctx context.Context, v dispatch.Driver) (dispatch.DriverRecord, error)
	DriverRecord(ctx context.Context, id dispatch.DriverID) (dispatch.DriverRecord, error)
	Drivers(ctx context.Context, q dispatch.DriverQuery) ([]dispatch.DriverRecord, string, error)
	ChangeDriver(ctx context.Context, id dispatch.DriverID, change dispatch.DriverChange) (dispatch.DriverRecord, error)
	SamePhones(ctx context.Context, drivers []dispatch.Driver) (map[int]dispatch.DriverID, error)
}

type driverRecordView struct {
	driverView
	Phone     *string    `json:"phone"` // null for an erased driver
	ErasedAt  *timestamp `json:"erased_at"`
	Version   int        `json:"version"`
	CreatedAt timestamp  `json:"created_at"`
	UpdatedAt timestamp  `json:"updated_at"`
}

func viewDriverRecord(v dispatch.DriverRecord) driverRecordView {
	return driverRecordView{
		driverView: viewDriver(v.Driver), Phone: nullable(v.Phone), ErasedAt: optionalTimestamp(v.ErasedAt), Version: v.Version,
		CreatedAt: timestamp(v.CreatedAt), UpdatedAt: timestamp(v.UpdatedAt),
	}
}

func writeDriver(c echo.Context, status int, v dispatch.DriverRecord) error {
	setETag(c, v)
	return writeJSON(c, status, viewDriverRecord(v))
}

func setETag(c echo.Context, v dispatch.DriverRecord) {
	c.Response().Header().Set("ETag", strconv.Quote(strconv.Itoa(v.Version)))
}

// samePhones returns, by the places of new drivers, another driver with the same phone number: the import may be a repeated one. It is a
// warning: if it can't be read, the answer does without.
func (h *handler) samePhones(c echo.Context, drivers []dispatch.Driver) map[int]dispatch.DriverID {
	others, err := h.Stores.Drivers.SamePhones(c.Request().Context(), drivers)
	if err != nil {
		h.Log.Warn("the phone numbers of new drivers were not compared with those of others; the answer names no driver", "error", err)
	}
	return others
}

type driverRequest struct {
	Name           string   `json:"name"             validate:"required,max=200"`
	Phone          string   `json:"phone"            validate:"required"`
	Regions        []string `json:"regions"          validate:"required,min=1,max=50,unique,dive,required,max=64"`
	VehicleClass   string   `json:"vehicle_class"    validate:"required,max=64"`
	WorkingHeightM *float64 `json:"working_height_m" validate:"omitempty,gt=0,lte=200"`
	FirebaseUID    string   `json:"firebase_uid"     validate:"max=128"`
	Locale         string   `json:"locale"           validate:"omitempty,language"`
	OnDuty         bool     `json:"on_duty"`
	UniquePhone    bool     `json:"unique_phone"`
}

// driver returns the nth driver that the request of ctx creates.
func (r *driverRequest) driver(ctx context.Context, now time.Time, n int) dispatch.Driver {
	return dispatch.Driver{
		ID: idempotency.DriverID(ctx, now, n), Name: r.Name, Phone: r.Phone, Regions: r.Regions, VehicleClass: r.VehicleClass,
		WorkingHeightM: r.WorkingHeightM, FirebaseUID: r.FirebaseUID, Locale: r.Locale, OnDuty: r.OnDuty, Version: 1,
		OwnPhone: r.UniquePhone,
	}
}

func (h *handler) createDriver(c echo.Context, _ string) error {
	req, err := read[driverRequest](c, maxBody)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	v, err := h.Stores.Drivers.CreateDriver(ctx, req.driver(ctx, h.Now(), 0))
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderLocation, "/v1/admin/drivers/"+string(v.ID))
	setETag(c, v)
	view := viewDriverRecord(v)
	view.SamePhone = h.samePhones(c, []dispatch.Driver{v.Driver})[0]
	return writeJSON(c, 201, view)
}

func (h *handler) listDrivers(c echo.Context, _ string) error {
	p, err := page(c)
	if err != nil {
		return err
	}
	q := dispatch.DriverQuery{Page: p}
	for name, to := range map[string]*string{"q": &q.Text, "region": &q.Region, "vehicle_class": &q.VehicleClass} {
		if *to, err = textParam(c, name); err != nil {
			return err
		}
	}
	if phone, wrong := phoneForm(q.Text); wrong == "" && len(phone) >= len("+82212345678") { // less may be the end of a number
		q.Text = phone
	}
	for name, to := range map[string]**bool{"on_duty": &q.OnDuty, "suspended": &q.Suspended} {
		if *to, err = boolParam(c, name); err != nil {
			return err
		}
	}
	erased, err := boolParam(c, "erased")
	if err != nil {
		return err
	}
	q.Erased = erased != nil && *erased
	items, next, err := h.Stores.Drivers.Drivers(c.Request().Context(), q)
	if err != nil {
		return err
	}
	return writeJSON(c, 200, viewList(items, next, h.Now(), viewDriverRecord))
}

func driverID(c echo.Context) (dispatch.DriverID, error) {
	return dispatch.ParseDriverID(c.Param("id"))
}

func (h *handler) getDriver(c echo.Context, _ string) error {
	id, err := driverID(c)
	if err != nil {
		return err
	}
	v, err := h.Stores.Drivers.DriverRecord(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return writeDriver(c, 200, v)
}

// onDriver applies change to the driver in the path, updates the driver's streams, and answers 200 with the driver.
func (h *handler) onDriver(c echo.Context, change dispatch.DriverChange) error {
	id, err := driverID(c)
	if err != nil {
		return err
	}
	if change.Version, err = optionalVersion(c, dispatch.ErrDriverVersionConflict); err != nil {
		return err
	}
	v, err := h.Stores.Drivers.ChangeDriver(c.Request().Context(), id, change)
	if err != nil {
		return err
	}
	h.Streams.DriverChanged(v.Driver)
	return writeDriver(c, 200, v)
}

// optionalVersion returns the version in If-Match, 0 for any version if there is none. conflict is the error for what is no version.
func optionalVersion(c echo.Context, conflict error) (int, error) {
	if header := c.Request().Header.Get("If-Match"); header == "" || header == "*" {
		return 0, nil
	}
	v, err := version(c)
	if err != nil || v < 1 {
		return 0, conflict // not a version of this service
	}
	return v, nil
}

type suspendRequest struct {
	Until      *time.Time `json:"until"`
	ReasonCode string     `json:"reason_code" validate:"max=64"`
}

func (h *handler) suspendDriver(c echo.Context, _ string) error {
	req, err := read[suspendRequest](c, maxSmallBody)
	if err != nil {
		return err
	}
	until := dispatch.Forever
	if req.Until != nil {
		until = req.Until.UTC().Truncate(time.Microsecond)
	}
	if until.After(dispatch.Forever) {
		return invalidField("until", "must be before the year 10000, in UTC")
	}
	detail := map[string]any{"until": timestamp(until)}
	if req.ReasonCode != "" {
		detail["reason_code"] = req.ReasonCode
	}
	err = h.onDriver(c, dispatch.DriverChange{
		Action: dispatch.AuditDriverSuspend, Detail: detail,
		Apply: func(v *dispatch.Driver, now time.Time) error { return v.Suspend(until, now) },
	})
	if errors.Is(err, dispatch.ErrSuspensionInPast) {
		return invalidField("until", "must be in the future")
	}
	return err
}

func (h *handler) reinstateDriver(c echo.Context, _ string) error {
	if _, err := readOptional[struct{}](c); err != nil {
		return err
	}
	return h.onDriver(c, dispatch.DriverChange{
		Action: dispatch.AuditDriverReinstate,
		Apply: func(v *dispatch.Driver, _ time.Time) error {
			v.Reinstate()
			return nil
		},
	})
}

// driverDeviceView does not contain the push token, which allows sending to the device.
type driverDeviceView struct {
	deviceView
	SuspectedAt   *timestamp `json:"suspected_at"`
	QuarantinedAt *timestamp `json:"quarantined_at"`
}

func (h *handler) driverDevices(c echo.Context, _ string) error {
	id, err := driverID(c)
	if err != nil {
		return err
	}
	p, err := page(c)
	if err != nil {
		return err
	}
	items, next, err := h.Stores.Devices.Devices(c.Request().Context(), id, p)
	if err != nil {
		return err
	}
	return writeJSON(c, 200, viewList(items, next, h.Now(), viewDriverDevice))
}

func viewDriverDevice(v dispatch.Device) driverDeviceView {
	return driverDeviceView{viewDevice(v), optionalTimestamp(v.SuspectedAt), optionalTimestamp(v.QuarantinedAt)}
}

func (h *handler) removeDevice(c echo.Context, _ string) error {
	id, err := driverID(c)
	if err != nil {
		return err
	}
	installation, err := installationID(c)
	if err != nil {
		return err
	}
	if err := h.Stores.Devices.DeleteDevice(c.Request().Context(), id, installation); err != nil {
		return err
	}
	return c.NoContent(204)
}
