package dispatch

import (
	"errors"
	"slices"
	"time"
)

// Driver is a person who may be offered work.
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
	// Version grows with every change, so that a decision based on an older version can be refused.
	Version int
	// OwnPhone asks that no other driver has the number, of a new driver or of a change. It is not stored.
	OwnPhone bool
}

// IneligibleReason is a reason why a driver is not eligible.
type IneligibleReason string

// The reasons, in the order in which they are reported.
const (
	OffDuty           IneligibleReason = "OFF_DUTY"
	Suspended         IneligibleReason = "SUSPENDED"
	WrongRegion       IneligibleReason = "REGION"
	WrongVehicleClass IneligibleReason = "VEHICLE_CLASS"
	TooLow            IneligibleReason = "WORKING_HEIGHT"
)

// Ineligible returns every reason why the driver cannot take work on these terms now; none means eligible.
func (v Driver) Ineligible(t Terms, now time.Time) []IneligibleReason {
	var reasons []IneligibleReason
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

// MatchesTerms reports whether the driver could be offered work on these terms when on duty and not suspended.
func (v Driver) MatchesTerms(t Terms) bool { return len(v.mismatches(t)) == 0 }

func (v Driver) mismatches(t Terms) []IneligibleReason {
	var reasons []IneligibleReason
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
	// Busy says that the driver's claimed work overlaps with the dispatch.
	Busy bool
	// HadIt says that the driver had this dispatch in an earlier round and no longer has it.
	HadIt bool
}

// Forever is the end of a suspension without an end.
var Forever = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

var (
	// ErrDriverVersionConflict says that the driver is no longer at the version that the change is based on.
	ErrDriverVersionConflict = errors.New("the driver has changed since that version")
	// ErrSuspensionInPast says that a suspension would end in the past.
	ErrSuspensionInPast = errors.New("a suspension must end in the future")
)

// DriverRecord is a stored driver, for the backoffice.
type DriverRecord struct {
	Driver
	CreatedAt time.Time
	UpdatedAt time.Time
	// ErasedAt is when the driver's data was erased; the name is a pseudonym then.
	ErasedAt *time.Time
}

// Pseudonym returns the name of an erased driver. It tells erased drivers apart, and nothing about the person.
func Pseudonym(id DriverID) string {
	s := string(id)
	return "Erased " + s[max(0, len(s)-6):]
}

// DriverQuery selects drivers for a list.
type DriverQuery struct {
	Text         string // in the id, the name, the phone or the firebase_uid; "" for any
	Region       string // "" for any
	VehicleClass string // "" for any
	OnDuty       *bool
	Suspended    *bool // as of now
	Erased       bool  // erased drivers only; otherwise none of them
	Page
}

// DriverChange is a change of a driver and its audit entry.
type DriverChange struct {
	Action AuditAction
	// Version is the version that the change is based on; 0 for any.
	Version int
	// Detail is a JSON object for the audit trail.
	Detail map[string]any
	// Apply changes the driver. It is called again when the transaction is retried.
	Apply func(v *Driver, now time.Time) error
}

// Suspend suspends the driver until then. ErrSuspensionInPast.
func (v *Driver) Suspend(until, now time.Time) error {
	if !until.After(now) {
		return ErrSuspensionInPast
	}
	v.SuspendedUntil = &until
	return nil
}

// Reinstate ends a suspension.
func (v *Driver) Reinstate() { v.SuspendedUntil = nil }

// Platform is a device's platform.
type Platform string

// The platforms.
const (
	Android Platform = "android"
	IOS     Platform = "ios"
	Web     Platform = "web"
)

// Device is an installation of the driver's app, with its push token.
type Device struct {
	ID           DeviceID
	Driver       DriverID
	Installation string // the app's own identifier
	Platform     Platform
	PushToken    string // belongs to one driver at a time, the newest
	AppVersion   string
	Locale       string // BCP 47; "" for the driver's
	// SuspectedAt is when the push service reported the token dead, if it has not accepted a push since.
	SuspectedAt *time.Time
	// QuarantinedAt is when a second such report was accepted. Pushes to the device stop until the app registers it again.
	QuarantinedAt *time.Time
	UpdatedAt     time.Time
}

// Revocation revokes the tokens that a driver has.
type Revocation struct {
	Driver DriverID
	// Generation is the generation of new tokens; tokens of earlier generations are revoked. It is a counter, so that a clock
	// step can neither restore a token nor refuse a new one.
	Generation int
	// At is the time of the revocation, for ID tokens, which have no generation.
	At time.Time
}
