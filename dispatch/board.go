package dispatch

import "time"

// Board counts what an operator looks at.
type Board struct {
	// Counts has every state; of those that are ends, what got there since Since.
	Counts map[Status]int
	Since  time.Time
	// Unseen counts what has been open for a minute and nobody's app has shown.
	Unseen int
	// UnseenIDs are the first of these to have opened, a few hundred at most.
	UnseenIDs []ID
	Regions   []Supply // by name
	Now       time.Time
}

// Supply is how many drivers were on duty in a region, and how many dispatches were open there.
type Supply struct {
	At     time.Time
	Region string // "" for all together
	OnDuty int
	Open   int
}

// Preview is who would be offered work on some terms, counted.
type Preview struct {
	Eligible  int // and free
	Reachable int // of those: with a device that takes pushes
	Busy      int // eligible, but for work that overlaps
	// NotEligible drivers have one of the reasons or more, and count under each of theirs.
	NotEligible int
	Reasons     map[Reason]int
}

// NewPreview returns a preview of nobody, with every reason.
func NewPreview() Preview {
	return Preview{Reasons: map[Reason]int{OffDuty: 0, Suspended: 0, WrongRegion: 0, WrongVehicleClass: 0, TooLow: 0}}
}

// Count counts one driver, who is reachable or not.
func (p *Preview) Count(c Candidate, reachable bool, terms Terms, now time.Time) {
	reasons := c.Ineligible(terms, now)
	for _, r := range reasons {
		p.Reasons[r]++
	}
	switch {
	case len(reasons) > 0:
		p.NotEligible++
	case c.Busy:
		p.Busy++
	case reachable:
		p.Reachable++
		fallthrough
	default:
		p.Eligible++
	}
}
