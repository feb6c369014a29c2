package dispatch

import (
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
