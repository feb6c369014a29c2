package outbox

import "time"

// Due says when a relay has to lease rows next, by this process's clock: a past time means now, a zero time that nothing waits.
type Due struct {
	Events, Notifications, Topics time.Time
}
