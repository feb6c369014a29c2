package dispatch

import "time"

// Audience is a group of drivers who get the same notification of an event.
type Audience int

// The audiences.
const (
	// AudienceClaimant is the event's driver.
	AudienceClaimant Audience = iota + 1
	// AudienceOffered is every other driver to whom the offer of the round was pushed.
	AudienceOffered
	// AudienceEligible is every driver who could accept the dispatch now.
	AudienceEligible
)

// Delivery is the notification of an event to one audience. A driver in several audiences gets the first.
type Delivery struct {
	Audience Audience
	// Type is the event as the audience sees it: a dispatch.accepted is a dispatch.taken to the other drivers.
	Type EventType
	// Silent notifies the app without alerting its user.
	Silent bool
}

// EventReminder is pushed to a dispatch's holder some time before the work starts.
const EventReminder EventType = "dispatch.reminder"

// Deliveries returns the notifications of the event. There are none for an overdue dispatch, which a job closes at night when
// the work is long over, nor for a change that keeps the round.
func (e Event) Deliveries() []Delivery {
	switch {
	case e.Actor == System && e.ReasonCode == ReasonOverdue:
		return nil
	case e.Type == EventUpdated && (e.ReasonCode == ReasonWindowChanged || e.ReasonCode == ReasonExtended):
		return nil
	}
	return e.Type.Deliveries()
}

// Deliveries returns the notifications of that type of event.
func (t EventType) Deliveries() []Delivery {
	switch t {
	case EventCreated, EventOpened:
		return []Delivery{{Audience: AudienceEligible, Type: EventOpened}}
	case EventReopened, EventUpdated:
		return []Delivery{{Audience: AudienceEligible, Type: t}}
	case EventAccepted:
		return []Delivery{{Audience: AudienceClaimant, Type: EventAccepted}, {Audience: AudienceOffered, Type: EventTaken, Silent: true}}
	case EventUnassigned, EventReminder:
		return []Delivery{{Audience: AudienceClaimant, Type: t}}
	case EventCanceled:
		return []Delivery{{Audience: AudienceClaimant, Type: t}, {Audience: AudienceOffered, Type: t, Silent: true}}
	case EventExpired:
		return []Delivery{{Audience: AudienceOffered, Type: t, Silent: true}}
	}
	return nil
}

// IsOffer reports whether the notification is an offer to accept.
func (t EventType) IsOffer() bool {
	switch t {
	case EventOpened, EventReopened, EventUpdated:
		return true
	}
	return false
}

// endedNoticeFor is how long the end of an offer is worth a push: the app drops an expired offer by itself.
const endedNoticeFor = 10 * time.Minute

// DeliverUntil returns when a push of t becomes useless.
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

// Superseded reports whether the dispatch's later state makes a push of t about that round to the driver wrong.
func (d *Dispatch) Superseded(t EventType, silent bool, driver DriverID, round int) bool {
	switch {
	case t.IsOffer():
		return d.Round != round || d.Status != Pending && d.Status != Scheduled
	case t == EventReminder:
		return d.Round != round || d.Status != Accepted || !d.HeldBy(driver)
	case t == EventAccepted:
		return d.Round != round || !d.HeldBy(driver) || d.Status == Canceled
	case t == EventUnassigned:
		return d.Round > round && d.HeldBy(driver) && d.Status != Canceled // the driver has got it back
	case silent:
		return d.Round != round // a later round is open
	}
	return false
}
