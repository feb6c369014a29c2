package dispatch

import "time"

// EventType names an event, as the audit trail, the streams and the pushes show it.
type EventType string

// The events of a dispatch.
const (
	EventCreated    EventType = "dispatch.created"
	EventOpened     EventType = "dispatch.opened"
	EventAccepted   EventType = "dispatch.accepted"
	EventTaken      EventType = "dispatch.taken"
	EventDeclined   EventType = "dispatch.declined"
	EventWithdrawn  EventType = "dispatch.withdrawn"
	EventReopened   EventType = "dispatch.reopened"
	EventUnassigned EventType = "dispatch.unassigned"
	EventUpdated    EventType = "dispatch.updated"
	EventExpired    EventType = "dispatch.expired"
	EventCanceled   EventType = "dispatch.canceled"
	EventStarted    EventType = "dispatch.started"
	EventCompleted  EventType = "dispatch.completed"
)

// IsEvent reports whether name is that of an event of a dispatch.
func IsEvent(name string) bool {
	switch EventType(name) {
	case EventCreated, EventOpened, EventAccepted, EventTaken, EventDeclined, EventWithdrawn, EventReopened, EventUnassigned,
		EventUpdated, EventExpired, EventCanceled, EventStarted, EventCompleted:
		return true
	}
	return false
}

// Event records a change of a dispatch, in the transaction that makes it.
type Event struct {
	ID         EventID
	Type       EventType
	Dispatch   ID
	Round      int
	Driver     DriverID // the driver that it is about, if any
	Actor      string   // a driver's or a key's identifier, or "system"
	ReasonCode string
	Request    string // the id of the request that caused it, "" for none
	At         time.Time
	// PushAt is when it is pushed, if that is later than At. It is not stored with the event.
	PushAt time.Time
}

// System is the actor of the service's own changes.
const System = "system"

func (d *Dispatch) event(t EventType, actor, reason string, now time.Time) Event {
	e := Event{
		ID: NewEventID(now), Type: t, Dispatch: d.ID, Round: d.Round,
		Actor: actor, ReasonCode: reason, At: now,
	}
	if d.Claim != nil {
		e.Driver = d.Claim.Driver
	}
	return e
}
