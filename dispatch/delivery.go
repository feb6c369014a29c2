package dispatch

import "time"

// Audience is a group of drivers who are told the same of an event.
type Audience int

// The audiences.
const (
	// ToClaimant is the driver whom the event is about.
	ToClaimant Audience = iota + 1
	// ToTold is everyone else who was pushed the offer of that round.
	ToTold
	// ToEligible is everyone who could take the dispatch now.
	ToEligible
)

// Delivery is what an event is to one audience. A driver who belongs to several hears the first.
type Delivery struct {
	To Audience
	// Type is the event's name to them: who lost hears dispatch.taken of a dispatch.accepted.
	Type EventType
	// Silent tells the app and not its user.
	Silent bool
}

// EventReminder is pushed to who has a dispatch, some time before the work starts.
const EventReminder EventType = "dispatch.reminder"

// Deliveries returns what is pushed of the event, and to whom. The end of what nobody has closed is not: it is written at
// night, and the work is long over. Nor is a change that leaves everybody the offer they have.
func (e Event) Deliveries() []Delivery {
	switch {
	case e.Actor == System && e.ReasonCode == ReasonOverdue:
		return nil
	case e.Type == EventUpdated && (e.ReasonCode == ReasonWindowChanged || e.ReasonCode == ReasonExtended):
		return nil
	}
	return e.Type.Deliveries()
}

// Deliveries returns what is told of an event, and to whom; nothing of most.
func (t EventType) Deliveries() []Delivery {
	switch t {
	case EventCreated, EventOpened:
		return []Delivery{{To: ToEligible, Type: EventOpened}}
	case EventReopened, EventUpdated:
		return []Delivery{{To: ToEligible, Type: t}}
	case EventAccepted:
		return []Delivery{{To: ToClaimant, Type: EventAccepted}, {To: ToTold, Type: EventTaken, Silent: true}}
	case EventUnassigned, EventReminder:
		return []Delivery{{To: ToClaimant, Type: t}}
	case EventCanceled:
		return []Delivery{{To: ToClaimant, Type: t}, {To: ToTold, Type: t, Silent: true}}
	case EventExpired:
		return []Delivery{{To: ToTold, Type: t, Silent: true}}
	}
	return nil
}

// IsOffer reports whether who hears it may accept.
func (t EventType) IsOffer() bool {
	switch t {
	case EventOpened, EventReopened, EventUpdated:
		return true
	}
	return false
}

// endedNoticeFor is how long an app is told that an offer is over: by itself it forgets the offer when it ends.
const endedNoticeFor = 10 * time.Minute

// DeliverUntil returns when telling t of the dispatch is of no use any more.
func (d *Dispatch) DeliverUntil(t Delivery, at time.Time) time.Time {
	end := d.ExpiresAt
	switch {
	case t.Type.IsOffer():
		return end
	case t.Type == EventReminder:
		return d.WorkStartsAt
	case t.Silent:
		at = at.Add(endedNoticeFor)
	default:
		end, at = d.WorkEndsAt, at.Add(time.Hour)
	}
	if end.Before(at) {
		return at
	}
	return end
}

// Superseded reports whether telling driver t about the given round has been overtaken by what became of the dispatch.
func (d *Dispatch) Superseded(t EventType, silent bool, driver DriverID, round int) bool {
	switch {
	case t.IsOffer():
		return d.Round != round || d.Status != Pending && d.Status != Scheduled
	case t == EventReminder:
		return d.Round != round || d.Status != Accepted || !d.HeldBy(driver)
	case t == EventAccepted:
		return d.Round != round || !d.HeldBy(driver) || d.Status == Canceled
	case silent:
		return d.Round != round // the offer stands again
	}
	return false
}
