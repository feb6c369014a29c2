package dispatch

import (
	"errors"
	"time"
)

// Forever is the end of a suspension that has none.
var Forever = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

var (
	// ErrDriverMoved says that the driver is no longer at the version that the change was made for.
	ErrDriverMoved = errors.New("the driver has changed meanwhile")
	// ErrSuspensionOver says that a suspension would be over before it begins.
	ErrSuspensionOver = errors.New("a suspension must end in the future")
)

// DriverRecord is a driver as the backoffice sees them.
type DriverRecord struct {
	Driver
	CreatedAt time.Time
	UpdatedAt time.Time
}

// DriverQuery selects drivers for a list.
type DriverQuery struct {
	Text         string // in the id, the name, the phone or the firebase_uid; "" for any
	Region       string // "" for any
	VehicleClass string // "" for any
	OnDuty       *bool
	Suspended    *bool // as of now
	Page
}

// DriverChange is what is to become of a driver.
type DriverChange struct {
	Action AuditAction
	// Version is the one that the change is made for; 0 for whichever is current.
	Version int
	// Detail is a JSON object for the audit trail.
	Detail map[string]any
	// Apply changes the driver. It may be called again.
	Apply func(v *Driver, now time.Time) error
}

// Suspend keeps the driver from work until then. ErrSuspensionOver.
func (v *Driver) Suspend(until, now time.Time) error {
	if !until.After(now) {
		return ErrSuspensionOver
	}
	v.SuspendedUntil = &until
	return nil
}

// Reinstate ends a suspension.
func (v *Driver) Reinstate() { v.SuspendedUntil = nil }
