package dispatch

import "time"

// Revocation ends the tokens that a driver has.
type Revocation struct {
	Driver DriverID
	// Generation is that of the tokens that are issued afterwards; those of a smaller one have ended. It counts up, so that no
	// clock can bring a token back or keep a new one out.
	Generation int
	// At is when it was, for the tokens of others, which know no generation.
	At time.Time
}
