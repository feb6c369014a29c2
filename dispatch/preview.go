package dispatch

import "time"

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
