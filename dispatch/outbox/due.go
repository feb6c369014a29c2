package outbox

import "time"

// Due says when the first row of each kind is to be leased by a relay, by this process's clock: a past time means now, a zero time that
// nothing waits. ReadAt is when the database said so.
type Due struct {
	ReadAt                        time.Time
	Events, Notifications, Topics time.Time
	// Webhooks is when the first delivery to an active endpoint is due, or now if deliveries are to be written.
	Webhooks time.Time
}
