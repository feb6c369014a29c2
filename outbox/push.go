package outbox

import (
	"time"

	"firsttap/dispatch"
)

// Push is one event to be told to one device, or to a topic of many.
type Push struct {
	ID       dispatch.NotificationID
	Event    dispatch.EventID
	Type     dispatch.EventType
	Silent   bool
	Round    int
	Dispatch dispatch.Dispatch // as it was at Read
	Read     time.Time         // by this process's clock
	Driver   dispatch.DriverID // "" for a topic
	Device   dispatch.Device   // of a topic: none
	Topic    string            // "" for a device
	// Attempts counts those that failed.
	Attempts int
	// At is when what it tells of happened, Until when it is of no use any more.
	At, Until time.Time
	// Leased is when the right to send it ends.
	Leased time.Time
}

// Reread has p be about the dispatch as it is now. What offers it is of use for as long as it is open, which may have
// changed since the push was written.
func (p *Push) Reread(d dispatch.Dispatch) {
	p.Dispatch = d
	if p.Type.IsOffer() && p.Round == d.Round {
		p.Until = d.ExpiresAt
	}
}

// Expansion is what expanding an event into pushes has come to.
type Expansion struct {
	Dispatch dispatch.Dispatch
	Event    dispatch.Event
	// Pushes are leased by who expanded it, Left are due for whoever leases them first.
	Pushes []Push
	Left   int
	// Dropped counts the pushes that were overtaken before anybody sent them.
	Dropped int
	// More says that this was not all of it.
	More bool
}

// SendResult is what became of one push that was leased.
type SendResult struct {
	ID dispatch.NotificationID
	// Status is PENDING for one that is to be tried again, After from now.
	Status   Status
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
func TopicOf(id dispatch.ID) string { return "dispatch-" + string(id) }
