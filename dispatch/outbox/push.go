// Package outbox holds the types of the outbox: pushes, the result of an expansion, notifications as operators see them, and
// priorities. Package repository stores the rows, and package notify sends the pushes.
package outbox

import (
	"time"

	"firsttap/dispatch"
)

// Push notifies one device, or a topic of many, of an event.
type Push struct {
	ID       dispatch.NotificationID
	Event    dispatch.EventID
	Type     dispatch.EventType
	Silent   bool
	Round    int
	Dispatch dispatch.Dispatch // its state at ReadAt
	ReadAt   time.Time         // by this process's clock
	Driver   dispatch.DriverID // "" for a topic
	Device   dispatch.Device   // zero for a topic
	Topic    string            // "" for a device
	// Unwanted says of an offer that the driver has declined it, or is off duty or suspended, since it was written.
	Unwanted bool
	// Attempts counts failed attempts. Tried is also set if the push service was asked without an attempt being counted.
	Attempts int
	Tried    bool
	// EventAt is when the event happened, UsefulUntil when the push becomes useless.
	EventAt, UsefulUntil time.Time
	// LeasedUntil is when the lease ends.
	LeasedUntil time.Time
}

// Refresh replaces the dispatch of p by its state now. An offer is useful while the dispatch is open, a time that may have
// changed since the push was written.
func (p *Push) Refresh(d dispatch.Dispatch) {
	p.Dispatch = d
	if p.Type.IsOffer() && p.Round == d.Round {
		p.UsefulUntil = d.ExpiresAt
	}
}

// Expansion is the result of expanding events into pushes.
type Expansion struct {
	// Events are those that were expanded, or a part of them.
	Events []Expanded
	// Rest are events that were not tried.
	Rest []dispatch.EventID
	// Pushes are leased by the caller. Unleased counts the others, which are due for any process.
	Pushes   []Push
	Unleased int
	// Dropped counts earlier pushes that the events superseded before they were sent.
	Dropped int
}

// Expanded is an event that was expanded, and its dispatch as it was then. The caller still leases it. If More pushes of it are to be
// written, it has to be expanded again; otherwise it is to be completed.
type Expanded struct {
	Event    dispatch.Event
	Dispatch dispatch.Dispatch
	More     bool
}

// SendResult is the result of one leased push.
type SendResult struct {
	ID dispatch.NotificationID
	// Status is PENDING for a push that is to be retried after RetryAfter.
	Status     Status
	RetryAfter time.Duration
	Attempts   int
	Result     string
	Reason     string
}

// Verdict is what the push service's answers say about a device's token.
type Verdict string

// A token is Trusted when a push was accepted, Suspected when it is called dead, and Quarantined when it is called so again later.
const (
	Trusted     Verdict = "trusted"
	Suspected   Verdict = "suspected"
	Quarantined Verdict = "quarantined"
)

// Topic is a large audience that one push notifies of the end of an offer.
type Topic struct {
	Name string
	// Ended says that its members are to be unsubscribed; before, they are to be subscribed.
	Ended bool
}

// TopicOf returns the name of a dispatch's topic.
func TopicOf(id dispatch.ID) string { return "dispatch-" + string(id) }
