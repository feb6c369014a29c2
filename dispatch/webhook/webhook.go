// Package webhook holds the types and rules of webhooks: endpoints of other systems that get the events of
// dispatches, by the Standard Webhooks convention (https://www.standardwebhooks.com).
//
// A delivery is one event for one endpoint, and is made at least once. The deliveries of one dispatch to one endpoint
// are sent one after the other, in the order of their events.
package webhook

import (
	"slices"
	"time"

	"firsttap/dispatch"
)

type (
	// ID names an endpoint: whk_...
	ID string
	// DeliveryID names a delivery among those of its endpoint: whd_... It is derived from the event's identifier.
	DeliveryID string
)

// Status says whether an endpoint gets events.
type Status string

// The states of an endpoint.
const (
	Active Status = "ACTIVE"
	// Paused endpoints get no new events. Deliveries that wait are sent when the endpoint is active again.
	Paused Status = "PAUSED"
)

// PauseReason says why an endpoint is paused; "" for one that is active.
type PauseReason string

// The reasons.
const (
	PausedByAdmin PauseReason = "ADMIN"
	// PausedFailing: no delivery succeeded for PauseAfter.
	PausedFailing PauseReason = "FAILING"
	// PausedGone: the endpoint answered 410.
	PausedGone PauseReason = "GONE"
)

// PauseAfter is how long an endpoint may fail without one success before it is paused.
const PauseAfter = 72 * time.Hour

// RotationOverlap is how long the secret before a rotation still signs, beside the new one.
const RotationOverlap = 24 * time.Hour

// AllEvents as the only name subscribes to every event.
const AllEvents = "*"

// TestEvent is the type of a delivery that an admin asks for to try an endpoint. It has no dispatch.
const TestEvent dispatch.EventType = "webhook.test"

// Endpoint is a URL that gets events.
type Endpoint struct {
	ID          ID
	URL         string
	Events      []string // names of dispatch.EventType, or AllEvents alone
	Description string
	Status      Status
	PauseReason PauseReason
	// FailingSince is when the first attempt failed after the last success; nil if the last attempt succeeded.
	FailingSince         *time.Time
	Version              int
	CreatedAt, UpdatedAt time.Time
}

// Subscribes reports whether the endpoint gets events of that type.
func (e *Endpoint) Subscribes(t dispatch.EventType) bool {
	return slices.Contains(e.Events, AllEvents) || slices.Contains(e.Events, string(t))
}

// SetStatus makes the endpoint active, or pauses it as an admin does. One that has the status keeps it, with the reason.
func (e *Endpoint) SetStatus(s Status) {
	switch s {
	case e.Status:
	case Active:
		e.Status, e.PauseReason, e.FailingSince = Active, "", nil
	case Paused:
		e.Status, e.PauseReason = Paused, PausedByAdmin
	}
}

// Secrets sign an endpoint's deliveries: whsec_ and base64.
type Secrets struct {
	Current string
	// Previous signs too until PreviousUntil; "" for none.
	Previous      string
	PreviousUntil time.Time
}

// DeliveryStatus says how far a delivery is.
type DeliveryStatus string

// The states of a delivery.
const (
	Pending   DeliveryStatus = "PENDING"
	Delivered DeliveryStatus = "DELIVERED"
	// Failed deliveries had all attempts, and are sent again only if an admin says so.
	Failed DeliveryStatus = "FAILED"
)

// Delivery is one event for one endpoint.
type Delivery struct {
	ID        DeliveryID
	Endpoint  ID
	Event     dispatch.EventID // also the header webhook-id
	Dispatch  dispatch.ID      // of a test, the event's identifier
	Type      dispatch.EventType
	Status    DeliveryStatus
	Body      []byte
	Attempts  []Attempt // the last KeptAttempts, the oldest first
	CreatedAt time.Time
	NextAt    *time.Time // of the next attempt at the earliest, if it waits for one
}

// Attempt is one request for a delivery.
type Attempt struct {
	At         time.Time     `json:"at"`
	HTTPStatus int           `json:"http_status,omitempty"` // 0 if there was no answer
	Error      string        `json:"error,omitempty"`       // "" after a 2xx
	Took       time.Duration `json:"took"`                  // in nanoseconds
	Answer     string        `json:"answer,omitempty"`      // the first MaxAnswer bytes of the answer's body, as valid UTF-8
}

const (
	// KeptAttempts bounds the attempts that a delivery's log keeps.
	KeptAttempts = 16
	// MaxAnswer bounds the bytes of an answer that are read and kept.
	MaxAnswer = 1024
	// AttemptTimeout is how long an endpoint may take to answer.
	AttemptTimeout = 10 * time.Second
	// MaxEndpoints bounds the endpoints, paused ones too: each event is written once for each.
	MaxEndpoints = 50
)

// retries are the waits after failed attempts.
var retries = [...]time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour,
}

// RetryAfter returns how long a delivery waits after its n-th failed attempt, the first being 1. After the last one
// it returns false: the delivery has failed.
func RetryAfter(n int) (wait time.Duration, again bool) {
	if n < 1 || n > len(retries) {
		return 0, false
	}
	return retries[n-1], true
}

// Body returns the body of an event's delivery, with the dispatch as it is then.
type Body func(dispatch.Dispatch, dispatch.Event) []byte

// Lease is a delivery that a courier may attempt until LeasedUntil, by this process's clock. Meanwhile the endpoint
// gets no other one of its dispatch.
type Lease struct {
	Delivery    Delivery // without Attempts
	Attempt     int      // the number of this attempt, from 1; it begins again when an admin resends
	LeasedUntil time.Time
	URL         string
	Secrets     Secrets
}

// Result is the outcome of a lease's attempt.
type Result struct {
	Lease   Lease
	Attempt Attempt
	// Gone: the endpoint answered 410.
	Gone bool
	// Unsent: the endpoint has nothing to do with it, and the delivery is due again at once.
	Unsent bool
}

// Succeeded reports whether the endpoint took the delivery.
func (r *Result) Succeeded() bool { return r.Attempt.Error == "" }
