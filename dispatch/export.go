package dispatch

import "time"

// DriversClaim is a claim as the export of a driver's data has it.
type DriversClaim struct {
	PastClaim
	Dispatch ID
}

// OfferMarks is what became of an offer with a driver, as the export of the driver's data has it.
type OfferMarks struct {
	Dispatch   ID
	Round      int
	SeenAt     *time.Time
	DeclinedAt *time.Time
	// DeclineReason is the code that the app sent; "" for none.
	DeclineReason string
}
