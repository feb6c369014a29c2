package dispatch

import "time"

// NotificationStatus is where a notification stands.
type NotificationStatus string

// A notification is PENDING until it is SENT, DEAD for somebody to look at, or DROPPED because it was of no use any
// more.
const (
	NotificationPending NotificationStatus = "PENDING"
	NotificationSent    NotificationStatus = "SENT"
	NotificationDead    NotificationStatus = "DEAD"
	NotificationDropped NotificationStatus = "DROPPED"
)

// Notification is one row of the outbox as operators see it.
type Notification struct {
	ID        NotificationID
	Event     EventID
	Type      EventType
	Dispatch  ID
	Round     int
	Driver    DriverID // "" for a topic
	Device    DeviceID
	Topic     string
	Silent    bool
	Status    NotificationStatus
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
