package dispatch

import "time"

// OfferStatus is the state of an offer: one dispatch in one round, for one driver.
type OfferStatus string

// The states of an offer.
const (
	OfferPending   OfferStatus = "PENDING"   // not pushed yet
	OfferSent      OfferStatus = "SENT"      // the push service has accepted a push
	OfferSeen      OfferStatus = "SEEN"      // the driver's app has shown it
	OfferAccepted  OfferStatus = "ACCEPTED"  // the driver has the dispatch, or has completed it
	OfferDeclined  OfferStatus = "DECLINED"  // the driver does not want it, but may accept it while it is open
	OfferTaken     OfferStatus = "TAKEN"     // another driver has it
	OfferExpired   OfferStatus = "EXPIRED"   // no driver accepted it in time
	OfferRevoked   OfferStatus = "REVOKED"   // it was canceled or unassigned, or its terms have changed
	OfferWithdrawn OfferStatus = "WITHDRAWN" // the driver has withdrawn
)

// OfferHistory is the history of one driver with one round of a dispatch.
type OfferHistory struct {
	Driver DriverID
	Round  int
	// Claim is the outcome of the driver's claim in the round, "" for none.
	Claim Outcome
	// Withdrew says that the driver has withdrawn from an earlier round.
	Withdrew bool
	// Ended is how an earlier round ended: OfferTaken, OfferExpired or OfferRevoked. It is "" for the current round.
	Ended         OfferStatus
	NotifiedAt    *time.Time // a push was written to the outbox
	SentAt        *time.Time // the push service accepted it
	SeenAt        *time.Time
	DeclinedAt    *time.Time
	DeclineReason string
	TappedAt      *time.Time // the first tap on Accept on this offer
}

// Offered is a dispatch with a driver's history of its offer.
type Offered struct {
	Dispatch
	Contact OfferHistory
}

// OfferStatus returns the offer's state. The driver's own actions come first: the claim, then a withdrawal without a later
// action, then a decline without a later tap. Then comes the end of the round, and last the progress of the push.
func (o Offered) OfferStatus() OfferStatus {
	c := &o.Contact
	ended := o.ended()
	switch {
	case c.Claim == OutcomeWithdrawn:
		return OfferWithdrawn
	case c.Claim == OutcomeWon || c.Round == o.Round && o.HeldBy(c.Driver) && o.Status != Canceled:
		return OfferAccepted
	case c.Claim != "":
		return OfferRevoked
	case c.Withdrew && c.SeenAt == nil && c.DeclinedAt == nil && c.TappedAt == nil:
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

// declined reports whether a decline is the driver's last action. In an open round it is, even after taps that failed; in a
// round that is over, a later tap was in the race.
func (c *OfferHistory) declined(over bool) bool {
	return c.DeclinedAt != nil && (!over || c.TappedAt == nil || c.TappedAt.Before(*c.DeclinedAt))
}

// ended returns how the contact's round ended for a driver who did not win it, "" if it is open.
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

// Decline returns the event that the driver does not want the offer of that round, 0 for the current one. It does not change
// the dispatch or its version. No event for a closed offer. ErrInvalidState for the dispatch's holder, ErrOfferStale for a
// round that does not exist yet.
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
