package dispatch

import "time"

// MaxUnseen is the number up to which unseen dispatches are counted.
const MaxUnseen = 1000

// Board has the counts on an operator's dashboard.
type Board struct {
	// Counts has every state. Final states count the dispatches that reached them after Since.
	Counts map[Status]int
	Since  time.Time
	// Unseen counts the dispatches that have been open for a minute and that no app has shown, up to MaxUnseen: then there may be more.
	Unseen int
	// UnseenIDs are those of the counted ones that opened first, a few hundred at most.
	UnseenIDs []ID
	Regions   []Supply // by name
	Now       time.Time
}

// Supply counts the drivers on duty and the open dispatches in a region.
type Supply struct {
	At     time.Time
	Region string // "" for all regions
	OnDuty int
	Open   int
}

// Preview counts the drivers who would be offered work on some terms.
type Preview struct {
	Eligible  int // and free
	Reachable int // of the eligible: with a device that takes pushes
	Busy      int // eligible but for work that overlaps
	// NotEligible counts drivers with at least one reason. A driver counts under each of theirs.
	NotEligible int
	Reasons     map[IneligibleReason]int
}
