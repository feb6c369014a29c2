package outbox

import (
	"time"

	"firsttap/dispatch"
)

// Status is the state of a notification.
type Status string

// A notification is PENDING until it is SENT, DEAD until an operator redrives it, or DROPPED because it became useless.
const (
	Pending Status = "PENDING"
	Sent    Status = "SENT"
	Dead    Status = "DEAD"
	Dropped Status = "DROPPED"
)

// Notification is one row of the outbox as operators see it.
type Notification struct {
	ID          dispatch.NotificationID
	Event       dispatch.EventID
	Type        dispatch.EventType
	Dispatch    dispatch.ID
	Round       int
	Driver      dispatch.DriverID // "" for a topic
	Device      dispatch.DeviceID
	Topic       string
	Silent      bool
	Status      Status
	Attempts    int
	Result      string    // of the last attempt
	Reason      string    // the push service's words
	EventAt     time.Time // when its event happened
	CreatedAt   time.Time
	NextAt      *time.Time // the next attempt, or the end of the lease
	SentAt      *time.Time // when the push service accepted it
	UsefulUntil time.Time  // when it becomes useless
}

// Funnel counts drivers in one round of a dispatch.
type Funnel struct {
	Notified     int // a push of the offer was written for the driver
	PushAccepted int // the push service accepted it
	Seen         int // the app showed it
	Tapped       int // the driver tapped Accept
	Won          int
}
