package dispatch

import "time"

// Push is one event to be told to one device, or to a topic of many.
type Push struct {
	ID       NotificationID
	Event    EventID
	Type     EventType
	Silent   bool
	Round    int
	Dispatch Dispatch  // as it was at Read
	Read     time.Time // by this process's clock
	Driver   DriverID  // "" for a topic
	Device   Device    // of a topic: none
	Topic    string    // "" for a device
	// Attempts counts those that failed.
	Attempts int
	// At is when what it tells of happened, Until when it is of no use any more.
	At, Until time.Time
	// Leased is when the right to send it ends.
	Leased time.Time
}

// Reread has p be about the dispatch as it is now. What offers it is of use for as long as it is open, which may have
// changed since the push was written.
func (p *Push) Reread(d Dispatch) {
	p.Dispatch = d
	if p.Type.Offers() && p.Round == d.Round {
		p.Until = d.ExpiresAt
	}
}

// Told is what expanding an event into pushes has come to.
type Told struct {
	Dispatch Dispatch
	Event    Event
	// Pushes are leased by who expanded it, Left are due for whoever leases them first.
	Pushes []Push
	Left   int
	// Dropped counts the pushes that were overtaken before anybody sent them.
	Dropped int
	// More says that this was not all of it.
	More bool
}

// Settled is what became of one push that was leased.
type Settled struct {
	ID NotificationID
	// Status is PENDING for one that is to be tried again, After from now.
	Status   NotificationStatus
	After    time.Duration
	Attempts int
	Result   string
	Reason   string
}

// Topic is a large audience that is told together that an offer is over.
type Topic struct {
	Name string
	// Ended says that its members are to be unsubscribed; until then, subscribed.
	Ended bool
}

// TopicOf names the audience of a dispatch.
func TopicOf(id ID) string { return "dispatch-" + string(id) }
