package handler

import (
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

type driverPatch struct {
	Name           edited[string]   `json:"name"`
	Phone          edited[string]   `json:"phone"`
	Regions        edited[[]string] `json:"regions"`
	VehicleClass   edited[string]   `json:"vehicle_class"`
	WorkingHeightM edited[float64]  `json:"working_height_m"`
	FirebaseUID    edited[string]   `json:"firebase_uid"`
	Locale         edited[string]   `json:"locale"`
	OnDuty         edited[bool]     `json:"on_duty"`
}

// driverEdit gathers what a PATCH gives: the fields by their names here, and what is wrong.
type driverEdit struct {
	to     driverRequest
	fields []string
	wrong  []fieldError
	apply  []func(*dispatch.Driver)
}

// given notes a field that is given. Only some may be null, which clears them.
func given[T any](e *driverEdit, field, name string, from edited[T], clears bool, set func(T), apply func(*dispatch.Driver)) {
	if !from.given {
		return
	}
	if from.null && !clears {
		e.wrong = append(e.wrong, fieldError{Field: name, Message: "must not be null"})
		return
	}
	e.apply = append(e.apply, apply)
	if !from.null {
		e.fields = append(e.fields, field)
		set(from.value)
	}
}

// read gathers what p gives, by the rules of a new driver.
func (p *driverPatch) read() (*driverEdit, error) {
	e := &driverEdit{}
	to := &e.to
	given(e, "Name", "name", p.Name, false, func(s string) { to.Name = s }, func(v *dispatch.Driver) { v.Name = to.Name })
	given(e, "Phone", "phone", p.Phone, false, func(s string) { to.Phone = s }, func(v *dispatch.Driver) { v.Phone = to.Phone })
	given(e, "Regions", "regions", p.Regions, false, func(s []string) { to.Regions = s },
		func(v *dispatch.Driver) { v.Regions = slices.Clone(to.Regions) })
	given(e, "VehicleClass", "vehicle_class", p.VehicleClass, false, func(s string) { to.VehicleClass = s },
		func(v *dispatch.Driver) { v.VehicleClass = to.VehicleClass })
	given(e, "WorkingHeightM", "working_height_m", p.WorkingHeightM, true, func(m float64) { to.WorkingHeightM = &m },
		func(v *dispatch.Driver) { v.WorkingHeightM = to.WorkingHeightM })
	given(e, "FirebaseUID", "firebase_uid", p.FirebaseUID, true, func(s string) { to.FirebaseUID = s },
		func(v *dispatch.Driver) { v.FirebaseUID = to.FirebaseUID })
	given(e, "Locale", "locale", p.Locale, true, func(s string) { to.Locale = s }, func(v *dispatch.Driver) { v.Locale = to.Locale })
	given(e, "OnDuty", "on_duty", p.OnDuty, false, func(on bool) { to.OnDuty = on }, func(v *dispatch.Driver) { v.OnDuty = to.OnDuty })
	if len(e.wrong) > 0 {
		return nil, &validationError{fields: e.wrong}
	}
	if len(e.fields) == 0 {
		return e, nil
	}
	return e, explain(validation.StructPartial(e.to, e.fields...))
}

func (h *handler) patchDriver(c echo.Context, _ string) error {
	req, err := read[driverPatch](c, maxBody)
	if err != nil {
		return err
	}
	edit, err := req.read()
	if err != nil {
		return err
	}
	return h.onDriver(c, dispatch.DriverChange{
		Action: dispatch.AuditDriverUpdate,
		Apply: func(v *dispatch.Driver, _ time.Time) error {
			for _, apply := range edit.apply {
				apply(v)
			}
			return nil
		},
	})
}
