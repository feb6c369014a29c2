package handler

import (
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

type driverPatch struct {
	Name           patchField[string]   `json:"name"`
	Phone          patchField[string]   `json:"phone"`
	Regions        patchField[[]string] `json:"regions"`
	VehicleClass   patchField[string]   `json:"vehicle_class"`
	WorkingHeightM patchField[float64]  `json:"working_height_m"`
	FirebaseUID    patchField[string]   `json:"firebase_uid"`
	Locale         patchField[string]   `json:"locale"`
	OnDuty         patchField[bool]     `json:"on_duty"`
	UniquePhone    bool                 `json:"unique_phone"`
}

// driverEdit collects the fields that a PATCH gives, by their Go names, and the errors in them.
type driverEdit struct {
	to     driverRequest
	fields []string
	wrong  []fieldError
	apply  []func(*dispatch.Driver)
}

// addField adds a field to e if it is given. Null clears the field if clears is set, and is an error otherwise.
func addField[T any](e *driverEdit, field, name string, from patchField[T], clears bool, set func(T), apply func(*dispatch.Driver)) {
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

// edit returns the given fields, validated like those of a new driver.
func (p *driverPatch) edit() (*driverEdit, error) {
	e := &driverEdit{}
	to := &e.to
	addField(e, "Name", "name", p.Name, false, func(s string) { to.Name = s }, func(v *dispatch.Driver) { v.Name = to.Name })
	addField(e, "Phone", "phone", p.Phone, false, func(s string) { to.Phone = s },
		func(v *dispatch.Driver) { v.Phone, v.OwnPhone = to.Phone, p.UniquePhone })
	addField(e, "Regions", "regions", p.Regions, false, func(s []string) { to.Regions = s },
		func(v *dispatch.Driver) { v.Regions = slices.Clone(to.Regions) })
	addField(e, "VehicleClass", "vehicle_class", p.VehicleClass, false, func(s string) { to.VehicleClass = s },
		func(v *dispatch.Driver) { v.VehicleClass = to.VehicleClass })
	addField(e, "WorkingHeightM", "working_height_m", p.WorkingHeightM, true, func(m float64) { to.WorkingHeightM = &m },
		func(v *dispatch.Driver) { v.WorkingHeightM = to.WorkingHeightM })
	addField(e, "FirebaseUID", "firebase_uid", p.FirebaseUID, true, func(s string) { to.FirebaseUID = s },
		func(v *dispatch.Driver) { v.FirebaseUID = to.FirebaseUID })
	addField(e, "Locale", "locale", p.Locale, true, func(s string) { to.Locale = s }, func(v *dispatch.Driver) { v.Locale = to.Locale })
	addField(e, "OnDuty", "on_duty", p.OnDuty, false, func(on bool) { to.OnDuty = on }, func(v *dispatch.Driver) { v.OnDuty = to.OnDuty })
	if len(e.wrong) > 0 {
		return nil, &validationError{fields: e.wrong}
	}
	if len(e.fields) == 0 {
		return e, nil
	}
	return e, asValidationError(validation.StructPartial(e.to, e.fields...))
}

func (h *handler) patchDriver(c echo.Context, _ string) error {
	req, err := read[driverPatch](c, maxBody)
	if err != nil {
		return err
	}
	edit, err := req.edit()
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
