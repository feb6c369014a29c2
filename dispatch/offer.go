package dispatch

import "time"

// OfferStatus is where an offer stands: one dispatch, as one driver sees it in one round.
type OfferStatus string

// The states of an offer.
const (
	OfferPending   OfferStatus = "PENDING"   // no push service has taken a push of it yet
	OfferSent      OfferStatus = "SENT"      // pushed
	OfferSeen      OfferStatus = "SEEN"      // the driver's app has shown it
	OfferAccepted  OfferStatus = "ACCEPTED"  // the driver has it, or has done it
	OfferDeclined  OfferStatus = "DECLINED"  // the driver does not want it, and may accept all the same while it is open
	OfferTaken     OfferStatus = "TAKEN"     // somebody else has it
	OfferExpired   OfferStatus = "EXPIRED"   // nobody took it in time
	OfferRevoked   OfferStatus = "REVOKED"   // it was canceled, or taken back, or its terms have changed
	OfferWithdrawn OfferStatus = "WITHDRAWN" // the driver gave it back
)

// Contact is what is known of one driver and one round of a dispatch.
type Contact struct {
	Driver DriverID
	Round  int
	// Claim is what became of the driver's claim in the round, "" if there was none.
	Claim Outcome
	// GaveBack says that the driver has withdrawn from an earlier round.
	GaveBack bool
	// Ended is how a round that is over came to its end: OfferTaken, OfferExpired or OfferRevoked. The current round's end
	// is the dispatch's own, and "" here.
	Ended         OfferStatus
	ToldAt        *time.Time // a push was written for them
	SentAt        *time.Time // the push service took it
	SeenAt        *time.Time
	DeclinedAt    *time.Time
	DeclineReason string
	TappedAt      *time.Time // the first tap on Accept that was on this offer
}

// Offered is a dispatch and what is known of a driver's offer of it.
type Offered struct {
	Dispatch
	Contact Contact
}

// OfferStatus decides where the offer stands. What the driver did counts for more than what was done to them: their
// claim, then that they gave it back and have not come back to it, then that they declined, unless they tapped
// afterwards. Then it is what became of the round, and last how far the offer got.
func (o Offered) OfferStatus() OfferStatus {
	c := &o.Contact
	ended := o.ended()
	switch {
	case c.Claim == Withdrawn:
		return OfferWithdrawn
	case c.Claim == Won || c.Round == o.Round && o.HeldBy(c.Driver) && o.Status != Canceled:
		return OfferAccepted
	case c.Claim != "":
		return OfferRevoked
	case c.GaveBack && c.SeenAt == nil && c.DeclinedAt == nil && c.TappedAt == nil:
		return OfferWithdrawn
	case c.declined(ended != ""):
		return OfferDeclined
	case ended != "":
		return ended
	case c.SeenAt != nil:
		return OfferSeen
	case c.SentAt != nil:
		return OfferSent
	}
	return OfferPending
}

// declined: in an open round it is the last word, whatever was tapped in vain; in one that is over, whoever tapped
// afterwards was in the race.
func (c *Contact) declined(over bool) bool {
	return c.DeclinedAt != nil && (!over || c.TappedAt == nil || c.TappedAt.Before(*c.DeclinedAt))
}

// ended is how the contact's round came to its end for whoever did not win it, "" if it has not.
func (o *Offered) ended() OfferStatus {
	if o.Contact.Round < o.Round {
		if o.Contact.Ended == "" {
			return OfferRevoked
		}
		return o.Contact.Ended
	}
	switch o.Status {
	case Accepted, InProgress, Completed:
		return OfferTaken
	case Expired:
		return OfferExpired
	case Canceled:
		return OfferRevoked
	case Scheduled, Pending:
	}
	return ""
}

// Decline returns the event of a driver who does not want the offer of that round, 0 for the current one. It changes
// nothing of the dispatch, whose version stays as it is. No event for what is no longer open. ErrInvalidState for who has
// it, ErrOfferStale for a round that has not been.
func (d *Dispatch) Decline(driver DriverID, round int, reason string, now time.Time) ([]Event, error) {
	switch {
	case d.HeldBy(driver):
		return nil, &StateError{Status: d.Status}
	case round > d.Round:
		return nil, ErrOfferStale
	case round != 0 && round < d.Round, d.Status != Scheduled && d.Status != Pending:
		return nil, nil
	}
	e := d.event(EventDeclined, string(driver), reason, now)
	e.Driver = driver
	return []Event{e}, nil
}
