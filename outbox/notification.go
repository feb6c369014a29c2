package outbox

import (
	"time"

	"firsttap/dispatch"
)

// Status is where a notification stands.
type Status string

// A notification is PENDING until it is SENT, DEAD for somebody to look at, or DROPPED because it was of no use any
// more.
const (
	Pending Status = "PENDING"
	Sent    Status = "SENT"
	Dead    Status = "DEAD"
	Dropped Status = "DROPPED"
)

// Notification is one row of the outbox as operators see it.
type Notification struct {
	ID        dispatch.NotificationID
	Event     dispatch.EventID
	Type      dispatch.EventType
	Dispatch  dispatch.ID
	Round     int
	Driver    dispatch.DriverID // "" for a topic
	Device    dispatch.DeviceID
	Topic     string
	Silent    bool
	Status    Status
	Attempts  int
	Result    string    // of the last attempt
	Reason    string    // in the push service's words
	At        time.Time // when what it tells of happened
	CreatedAt time.Time
	NextAt    *time.Time // when it is tried next, or leased until
	SentAt    *time.Time // when the push service accepted it
	Until     time.Time
}

// Funnel counts drivers in one round of a dispatch.
type Funnel struct {
	Told     int // a push of the offer was written for them
	Accepted int // the push service took it
	Seen     int // their app showed it
	Tapped   int // they tapped Accept
	Won      int
}
