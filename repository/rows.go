package repository

import (
	"encoding/json"
	"fmt"
	"time"

	"firsttap/dispatch"
)

type dispatchRow struct {
	ID                dispatch.ID `gorm:"primaryKey"`
	ExternalID        *string
	Region            string
	VehicleClass      string
	MinWorkingHeightM *float64
	SiteAddress       string
	SiteLat           *float64
	SiteLng           *float64
	WorkStartsAt      int64
	WorkEndsAt        int64
	FeeAmount         int64
	FeeCurrency       string
	Note              string
	OpensAt           int64
	ExpiresAt         int64
	Status            dispatch.Status
	Round             int
	Version           int
	ClaimID           *dispatch.ClaimID
	AcceptedBy        *dispatch.DriverID
	AcceptedAt        *int64
	// The domain sets the times: gorm must not.
	CreatedAt int64 `gorm:"autoCreateTime:false"`
	UpdatedAt int64 `gorm:"autoUpdateTime:false"`
}

func (dispatchRow) TableName() string { return "dispatches" }

func toDispatchRow(d dispatch.Dispatch) dispatchRow {
	row := dispatchRow{
		ID: d.ID, ExternalID: nullable(d.ExternalID), Region: d.Region, VehicleClass: d.VehicleClass,
		MinWorkingHeightM: d.MinWorkingHeightM,
		SiteAddress:       d.Site.Address, SiteLat: d.Site.Lat, SiteLng: d.Site.Lng,
		WorkStartsAt: micros(d.WorkStartsAt), WorkEndsAt: micros(d.WorkEndsAt),
		FeeAmount: d.Fee.Amount, FeeCurrency: d.Fee.Currency, Note: d.Note,
		OpensAt: micros(d.OpensAt), ExpiresAt: micros(d.ExpiresAt),
		Status: storedStatus(d.Status), Round: d.Round, Version: d.Version,
		CreatedAt: micros(d.CreatedAt), UpdatedAt: micros(d.UpdatedAt),
	}
	if c := d.Claim; c != nil {
		at := micros(c.AcceptedAt)
		row.ClaimID, row.AcceptedBy, row.AcceptedAt = &c.ID, &c.Driver, &at
	}
	return row
}

// storedStatus is the status as the row has it: SCHEDULED is PENDING before its window.
func storedStatus(s dispatch.Status) dispatch.Status {
	if s == dispatch.Scheduled {
		return dispatch.Pending
	}
	return s
}

// notBefore returns the database's time now, or the first time after the dispatch's last change if that is later: after a failover the
// database's clock may be behind. So what was open does not read as SCHEDULED again, and events, which sort by their times, stay in order.
func notBefore(now, updatedAt time.Time) time.Time {
	if first := updatedAt.Add(3 * time.Microsecond); now.Before(first) { // after the second event of a reopening, and declines
		return first
	}
	return now
}

// at returns the dispatch with its state at now, by notBefore.
func (row *dispatchRow) at(now time.Time) dispatch.Dispatch {
	d := dispatch.Dispatch{
		ID: row.ID, ExternalID: stringOrEmpty(row.ExternalID),
		Terms: dispatch.Terms{
			Region: row.Region, VehicleClass: row.VehicleClass, MinWorkingHeightM: row.MinWorkingHeightM,
			Site:         dispatch.Site{Address: row.SiteAddress, Lat: row.SiteLat, Lng: row.SiteLng},
			WorkStartsAt: fromMicros(row.WorkStartsAt), WorkEndsAt: fromMicros(row.WorkEndsAt),
			Fee: dispatch.Money{Amount: row.FeeAmount, Currency: row.FeeCurrency}, Note: row.Note,
		},
		Window: dispatch.Window{OpensAt: fromMicros(row.OpensAt), ExpiresAt: fromMicros(row.ExpiresAt)},
		Round:  row.Round, Version: row.Version,
		CreatedAt: fromMicros(row.CreatedAt), UpdatedAt: fromMicros(row.UpdatedAt),
	}
	if row.ClaimID != nil && row.AcceptedBy != nil && row.AcceptedAt != nil {
		d.Claim = &dispatch.Claim{
			ID: *row.ClaimID, Driver: *row.AcceptedBy, Round: row.Round, AcceptedAt: fromMicros(*row.AcceptedAt),
		}
	}
	return d.At(row.Status, notBefore(now, d.UpdatedAt))
}

type driverRow struct {
	ID             dispatch.DriverID `gorm:"primaryKey"`
	Name           string
	Phone          string
	Regions        string
	VehicleClass   string
	WorkingHeightM *float64
	FirebaseUID    *string `gorm:"column:firebase_uid"`
	Locale         string
	OnDuty         bool
	SuspendedUntil *int64
	Version        int
	CreatedAt      int64 `gorm:"autoCreateTime:false"`
	UpdatedAt      int64 `gorm:"autoUpdateTime:false"`
	// Only RevokeTokens writes these.
	TokenGeneration int    `gorm:"->"`
	TokensRevokedAt *int64 `gorm:"->"`
	// Only EraseDriver writes it.
	ErasedAt *int64 `gorm:"->"`
}

func (driverRow) TableName() string { return "drivers" }

func toDriverRow(v dispatch.Driver, now time.Time) (driverRow, error) {
	regions, err := json.Marshal(v.Regions)
	if err != nil {
		return driverRow{}, fmt.Errorf("regions of %s: %w", v.ID, err)
	}
	return driverRow{
		ID: v.ID, Name: v.Name, Phone: v.Phone, Regions: string(regions), VehicleClass: v.VehicleClass,
		WorkingHeightM: v.WorkingHeightM, FirebaseUID: nullable(v.FirebaseUID), Locale: v.Locale, OnDuty: v.OnDuty,
		SuspendedUntil: optionalMicros(v.SuspendedUntil), Version: v.Version,
		CreatedAt: micros(now), UpdatedAt: micros(now),
	}, nil
}

func (row *driverRow) driver() (dispatch.Driver, error) {
	v := dispatch.Driver{
		ID: row.ID, Name: row.Name, Phone: row.Phone, VehicleClass: row.VehicleClass,
		WorkingHeightM: row.WorkingHeightM, FirebaseUID: stringOrEmpty(row.FirebaseUID), Locale: row.Locale,
		OnDuty: row.OnDuty, SuspendedUntil: fromOptionalMicros(row.SuspendedUntil), Version: row.Version,
	}
	if err := json.Unmarshal([]byte(row.Regions), &v.Regions); err != nil {
		return v, fmt.Errorf("regions of %s: %w", row.ID, err)
	}
	return v, nil
}

type claimRow struct {
	ID         dispatch.ClaimID `gorm:"primaryKey"`
	DispatchID dispatch.ID
	Round      int
	DriverID   dispatch.DriverID
	DriverSeq  int
	Outcome    dispatch.Outcome
	AcceptedAt int64
	EndedAt    *int64
}

func (claimRow) TableName() string { return "claims" }

// nullable is s, or NULL if s is empty.
func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func stringOrEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
