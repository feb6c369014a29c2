package handler

import (
	"cmp"
	"slices"
	"time"

	"firsttap/dispatch"
)

// patchRequest changes a dispatch. Its fields have the meaning that they have for a new dispatch.
type patchRequest struct {
	Region            patchField[string]     `json:"region"`
	VehicleClass      patchField[string]     `json:"vehicle_class"`
	MinWorkingHeightM patchField[float64]    `json:"min_working_height_m"`
	SiteAddress       patchField[string]     `json:"site_address"`
	SiteLat           patchField[float64]    `json:"site_lat"`
	SiteLng           patchField[float64]    `json:"site_lng"`
	WorkStartsAt      patchField[time.Time]  `json:"work_starts_at"`
	WorkEndsAt        patchField[time.Time]  `json:"work_ends_at"`
	Fee               patchField[feeRequest] `json:"fee"`
	Note              patchField[string]     `json:"note"`
	OpensAt           patchField[time.Time]  `json:"opens_at"`
	ExpiresAt         patchField[time.Time]  `json:"expires_at"`
}

// check refuses null for required fields.
func (p *patchRequest) check() error {
	invalid := &validationError{}
	for field, null := range map[string]bool{
		"region": p.Region.null, "vehicle_class": p.VehicleClass.null, "site_address": p.SiteAddress.null,
		"work_starts_at": p.WorkStartsAt.null, "work_ends_at": p.WorkEndsAt.null, "fee": p.Fee.null,
		"opens_at": p.OpensAt.null, "expires_at": p.ExpiresAt.null,
	} {
		if null {
			invalid.fields = append(invalid.fields, fieldError{field, "must not be null"})
		}
	}
	if p.SiteLat.given && p.SiteLng.given && p.SiteLat.null != p.SiteLng.null {
		invalid.fields = append(invalid.fields, fieldError{"site_lat", "must be null when site_lng is, and only then"})
	}
	if len(invalid.fields) == 0 {
		return nil
	}
	slices.SortFunc(invalid.fields, func(a, b fieldError) int { return cmp.Compare(a.Field, b.Field) })
	return invalid
}

// applyTo returns the changed dispatch as a request for a new one, validated as such.
func (p *patchRequest) applyTo(d dispatch.Dispatch) (createDispatchRequest, error) {
	r := asRequest(d)
	p.Region.set(&r.Region)
	p.VehicleClass.set(&r.VehicleClass)
	p.MinWorkingHeightM.setOptional(&r.MinWorkingHeightM)
	p.SiteAddress.set(&r.SiteAddress)
	p.SiteLat.setOptional(&r.SiteLat)
	p.SiteLng.setOptional(&r.SiteLng)
	p.WorkStartsAt.set(&r.WorkStartsAt)
	p.WorkEndsAt.set(&r.WorkEndsAt)
	p.Fee.set(&r.Fee)
	p.Note.set(&r.Note)
	p.OpensAt.setOptional(&r.OpensAt)
	p.ExpiresAt.setOptional(&r.ExpiresAt)
	if p.SiteLat.null || p.SiteLng.null {
		r.SiteLat, r.SiteLng = nil, nil
	}
	r.WorkStartsAt, r.WorkEndsAt = keepIfShown(r.WorkStartsAt, d.WorkStartsAt), keepIfShown(r.WorkEndsAt, d.WorkEndsAt)
	*r.OpensAt, *r.ExpiresAt = keepIfShown(*r.OpensAt, d.OpensAt), keepIfShown(*r.ExpiresAt, d.ExpiresAt)
	if err := validate(r); err != nil {
		return r, err
	}
	return r, r.checkYears()
}

// asRequest returns a request for a dispatch like d.
func asRequest(d dispatch.Dispatch) createDispatchRequest {
	opens, expires := d.OpensAt, d.ExpiresAt
	r := createDispatchRequest{
		Region: d.Region, VehicleClass: d.VehicleClass, MinWorkingHeightM: d.MinWorkingHeightM,
		SiteAddress: d.Site.Address, SiteLat: d.Site.Lat, SiteLng: d.Site.Lng,
		WorkStartsAt: d.WorkStartsAt, WorkEndsAt: d.WorkEndsAt, Note: d.Note, OpensAt: &opens, ExpiresAt: &expires,
	}
	r.Fee = feeRequest{Amount: &d.Fee.Amount, Currency: d.Fee.Currency}
	return r
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
