package handler

import (
	"context"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/dispatch/idempotency"
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

func respondDriver(c echo.Context, status int, v dispatch.DriverRecord, err error) error {
	return respondVersion(c, status, v.Version, viewDriverRecord(v), err)
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
	v := dispatch.Driver{ID: idempotency.DriverID(ctx, now, n), Version: 1}
	r.applyTo(&v)
	return v
}

// applyTo makes the driver as the request says.
func (r *driverRequest) applyTo(v *dispatch.Driver) {
	v.Name, v.Phone, v.OwnPhone, v.Regions, v.VehicleClass = r.Name, r.Phone, r.UniquePhone, slices.Clone(r.Regions), r.VehicleClass
	v.WorkingHeightM, v.FirebaseUID, v.Locale, v.OnDuty = r.WorkingHeightM, r.FirebaseUID, r.Locale, r.OnDuty
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
	view := viewDriverRecord(v)
	view.SamePhone = h.samePhones(c, []dispatch.Driver{v.Driver})[0]
	return respondVersion(c, 201, v.Version, view, nil)
}

func (h *handler) listDrivers(c echo.Context, _ string) error {
	in := &query{c: c}
	erased := in.flag("erased")
	q := dispatch.DriverQuery{
		Text: in.text("q"), Region: in.text("region"), VehicleClass: in.text("vehicle_class"),
		OnDuty: in.flag("on_duty"), Suspended: in.flag("suspended"), Erased: erased != nil && *erased, Page: in.page(maxLimit),
	}
	if phone, wrong := phoneForm(q.Text); wrong == "" && len(phone) >= len("+82212345678") { // less may be the end of a number
		q.Text = phone
	}
	return list(h, in, viewDriverRecord, func(ctx context.Context) ([]dispatch.DriverRecord, string, error) {
		return h.Stores.Drivers.Drivers(ctx, q)
	})
}

func (h *handler) getDriver(c echo.Context, _ string, id dispatch.DriverID) error {
	v, err := h.Stores.Drivers.DriverRecord(c.Request().Context(), id)
	return respondDriver(c, 200, v, err)
}

// changeDriver applies change to the driver, at the version in If-Match if there is one, updates the driver's streams, and answers 200 with
// the driver.
func (h *handler) changeDriver(c echo.Context, id dispatch.DriverID, change dispatch.DriverChange) (err error) {
	if change.Version, err = ifMatch(c, false, dispatch.ErrDriverVersionConflict); err != nil {
		return err
	}
	v, err := h.Stores.Drivers.ChangeDriver(c.Request().Context(), id, change)
	if err == nil {
		h.Streams.DriverChanged(v.Driver)
	}
	return respondDriver(c, 200, v, err)
}

func (h *handler) patchDriver(c echo.Context, _ string, id dispatch.DriverID) error {
	patch, err := readPatch[driverRequest](c, "working_height_m", "firebase_uid", "locale", "unique_phone")
	if err != nil {
		return err
	}
	if err := patch.check(); err != nil {
		return err
	}
	return h.changeDriver(c, id, dispatch.DriverChange{
		Action: dispatch.AuditDriverUpdate,
		Apply: func(v *dispatch.Driver, _ time.Time) error {
			req := patch.onto(driverRequest{
				Name: v.Name, Phone: v.Phone, Regions: v.Regions, VehicleClass: v.VehicleClass, WorkingHeightM: v.WorkingHeightM,
				FirebaseUID: v.FirebaseUID, Locale: v.Locale, OnDuty: v.OnDuty,
			})
			req.applyTo(v)
			return nil
		},
	})
}

type suspendRequest struct {
	Until      *time.Time `json:"until"`
	ReasonCode string     `json:"reason_code" validate:"max=64"`
}

func (h *handler) suspendDriver(c echo.Context, _ string, id dispatch.DriverID) error {
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
	return h.changeDriver(c, id, dispatch.DriverChange{
		Action: dispatch.AuditDriverSuspend, Detail: detail,
		Apply: func(v *dispatch.Driver, now time.Time) error { return v.Suspend(until, now) },
	})
}

func (h *handler) reinstateDriver(c echo.Context, _ string, id dispatch.DriverID) error {
	if err := readNothing(c); err != nil {
		return err
	}
	return h.changeDriver(c, id, dispatch.DriverChange{
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

func viewDriverDevice(v dispatch.Device) driverDeviceView {
	return driverDeviceView{viewDevice(v), optionalTimestamp(v.SuspectedAt), optionalTimestamp(v.QuarantinedAt)}
}

func (h *handler) driverDevices(c echo.Context, _ string, id dispatch.DriverID) error {
	in := &query{c: c}
	page := in.page(maxLimit)
	return list(h, in, viewDriverDevice, func(ctx context.Context) ([]dispatch.Device, string, error) {
		return h.Stores.Devices.Devices(ctx, id, page)
	})
}

func (h *handler) removeDevice(c echo.Context, _ string, id dispatch.DriverID) error {
	installation, err := installationID(c)
	if err != nil {
		return err
	}
	return done(c, 204, h.Stores.Devices.DeleteDevice(c.Request().Context(), id, installation))
}
