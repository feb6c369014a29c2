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
