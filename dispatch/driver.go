package dispatch

import (
	"errors"
	"slices"
	"time"
)

// Driver is one who may be offered work.
type Driver struct {
	ID             DriverID
	Name           string
	Phone          string // E.164
	Regions        []string
	VehicleClass   string
	WorkingHeightM *float64
	FirebaseUID    string
	Locale         string
	OnDuty         bool
	SuspendedUntil *time.Time
	// Version moves with every change, so that a decision made on one version can be refused on the next.
	Version int
}

// Reason is why a driver is not eligible.
type Reason string

// The reasons, in the order in which they are reported.
const (
	OffDuty           Reason = "OFF_DUTY"
	Suspended         Reason = "SUSPENDED"
	WrongRegion       Reason = "REGION"
	WrongVehicleClass Reason = "VEHICLE_CLASS"
	TooLow            Reason = "WORKING_HEIGHT"
)

// Ineligible returns every reason why the driver can't take work on these terms now; none means eligible.
func (v Driver) Ineligible(t Terms, now time.Time) []Reason {
	var reasons []Reason
	if !v.OnDuty {
		reasons = append(reasons, OffDuty)
	}
	if v.Suspended(now) {
		reasons = append(reasons, Suspended)
	}
	return append(reasons, v.mismatches(t)...)
}

// Suspended reports whether the driver is suspended now.
func (v Driver) Suspended(now time.Time) bool {
	return v.SuspendedUntil != nil && now.Before(*v.SuspendedUntil)
}

// MaySee reports whether the driver could ever be offered work on these terms: on duty or not, suspended or not.
func (v Driver) MaySee(t Terms) bool { return len(v.mismatches(t)) == 0 }

func (v Driver) mismatches(t Terms) []Reason {
	var reasons []Reason
	if !slices.Contains(v.Regions, t.Region) {
		reasons = append(reasons, WrongRegion)
	}
	if v.VehicleClass != t.VehicleClass {
		reasons = append(reasons, WrongVehicleClass)
	}
	if t.MinWorkingHeightM != nil && (v.WorkingHeightM == nil || *v.WorkingHeightM < *t.MinWorkingHeightM) {
		reasons = append(reasons, TooLow)
	}
	return reasons
}

// Candidate is a driver at the moment of a tap on Accept.
type Candidate struct {
	Driver
	// Busy says that work the driver has claimed overlaps with the dispatch.
	Busy bool
	// GaveBack says that the driver has had this dispatch in an earlier round and no longer has.
	GaveBack bool
}

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

// Platform is what a device runs.
type Platform string

// The platforms.
const (
	Android Platform = "android"
	IOS     Platform = "ios"
	Web     Platform = "web"
)

// Device is one installation of the driver's app, and where to push to it.
type Device struct {
	ID           DeviceID
	Driver       DriverID
	Installation string // the app's own identifier of it
	Platform     Platform
	PushToken    string // belongs to one driver at a time, the newest
	AppVersion   string
	Locale       string // BCP 47; "" is the driver's
	// GoodAt is when the push service last took a push to this token, to within a day or so.
	GoodAt *time.Time
	// SuspectedAt is when the push service said that the token is dead, if it has not taken a push to it since.
	SuspectedAt *time.Time
	// QuarantinedAt is when it had said so twice, and was believed. Nothing is pushed to the device until the app
	// registers it again.
	QuarantinedAt *time.Time
	UpdatedAt     time.Time
}

// Revocation ends the tokens that a driver has.
type Revocation struct {
	Driver DriverID
	// Generation is that of the tokens that are issued afterwards; those of a smaller one have ended. It counts up, so that no
	// clock can bring a token back or keep a new one out.
	Generation int
	// At is when it was, for the tokens of others, which know no generation.
	At time.Time
}
