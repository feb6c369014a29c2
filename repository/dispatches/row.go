package dispatches

import (
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
)

// Row is a row of the table dispatches.
type Row struct {
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

// TableName implements gorm.Tabler.
func (Row) TableName() string { return "dispatches" }

// RowOf returns the row of a dispatch.
func RowOf(d dispatch.Dispatch) Row {
	row := Row{
		ID: d.ID, ExternalID: database.Nullable(d.ExternalID), Region: d.Region, VehicleClass: d.VehicleClass,
		MinWorkingHeightM: d.MinWorkingHeightM,
		SiteAddress:       d.Site.Address, SiteLat: d.Site.Lat, SiteLng: d.Site.Lng,
		WorkStartsAt: database.Micros(d.WorkStartsAt), WorkEndsAt: database.Micros(d.WorkEndsAt),
		FeeAmount: d.Fee.Amount, FeeCurrency: d.Fee.Currency, Note: d.Note,
		OpensAt: database.Micros(d.OpensAt), ExpiresAt: database.Micros(d.ExpiresAt),
		Status: storedStatus(d.Status), Round: d.Round, Version: d.Version,
		CreatedAt: database.Micros(d.CreatedAt), UpdatedAt: database.Micros(d.UpdatedAt),
	}
	if c := d.Claim; c != nil {
		at := database.Micros(c.AcceptedAt)
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

// NotBefore returns the database's time now, or the first time after the dispatch's last change if that is later: after a failover the
// database's clock may be behind. So what was open does not read as SCHEDULED again, and events, which sort by their times, stay in order.
func NotBefore(now, updatedAt time.Time) time.Time {
	if first := updatedAt.Add(3 * time.Microsecond); now.Before(first) { // after the second event of a reopening, and declines
		return first
	}
	return now
}

// At returns the dispatch with its state at now, by NotBefore.
func (row *Row) At(now time.Time) dispatch.Dispatch {
	d := dispatch.Dispatch{
		ID: row.ID, ExternalID: database.StringOrEmpty(row.ExternalID),
		Terms: dispatch.Terms{
			Region: row.Region, VehicleClass: row.VehicleClass, MinWorkingHeightM: row.MinWorkingHeightM,
			Site:         dispatch.Site{Address: row.SiteAddress, Lat: row.SiteLat, Lng: row.SiteLng},
			WorkStartsAt: database.Time(row.WorkStartsAt), WorkEndsAt: database.Time(row.WorkEndsAt),
			Fee: dispatch.Money{Amount: row.FeeAmount, Currency: row.FeeCurrency}, Note: row.Note,
		},
		Window: dispatch.Window{OpensAt: database.Time(row.OpensAt), ExpiresAt: database.Time(row.ExpiresAt)},
		Round:  row.Round, Version: row.Version,
		CreatedAt: database.Time(row.CreatedAt), UpdatedAt: database.Time(row.UpdatedAt),
	}
	if row.ClaimID != nil && row.AcceptedBy != nil && row.AcceptedAt != nil {
		d.Claim = &dispatch.Claim{
			ID: *row.ClaimID, Driver: *row.AcceptedBy, Round: row.Round, AcceptedAt: database.Time(*row.AcceptedAt),
		}
	}
	return d.At(row.Status, NotBefore(now, d.UpdatedAt))
}

// ClaimRow is a row of the table claims.
type ClaimRow struct {
	ID         dispatch.ClaimID `gorm:"primaryKey"`
	DispatchID dispatch.ID
	Round      int
	DriverID   dispatch.DriverID
	DriverSeq  int
	Outcome    dispatch.Outcome
	AcceptedAt int64
	EndedAt    *int64
}

// TableName implements gorm.Tabler.
func (ClaimRow) TableName() string { return "claims" }
