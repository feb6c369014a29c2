package dispatch

import "time"

// EventType names what happened; the same names go to the audit trail, the streams and the pushes.
type EventType string

// The events of a dispatch's life.
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

// Event is one thing that happened to a dispatch. It is written in the transaction that made it happen.
type Event struct {
	ID         EventID
	Type       EventType
	Dispatch   ID
	Round      int
	Driver     DriverID // whom it is about, if anyone
	Actor      string   // who did it: a driver's or a key's identifier, or "system"
	ReasonCode string
	Request    string // the id of the request that made it happen, "" if none did
	At         time.Time
	// TellAt is when it is pushed, if that is later than At. It is not kept with the event.
	TellAt time.Time
}

// System is the actor of what the service does by itself.
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
