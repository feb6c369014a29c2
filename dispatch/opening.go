package dispatch

import "time"

// OpeningPeriod is how long the opening of a round counts towards the delay of later pushes.
const OpeningPeriod = time.Hour

// openingDelays are the least times from one opening of a round to the push of the next: after the first, the second and every later
// opening. The first round of a dispatch does not count. The round is open at once, and apps that ask see it.
var openingDelays = [...]time.Duration{20 * time.Second, 40 * time.Second, time.Minute}

// MaxOpenings is how many openings make a difference.
const MaxOpenings = len(openingDelays)

// leastBetweenPushes bounds the pushes of rounds that last some seconds.
const leastBetweenPushes = 5 * time.Second

// Opening is the event of a round after the first.
type Opening struct {
	At time.Time
	// Waits is when it is pushed, if that is still to come.
	Waits *time.Time
}

// Reopens reports whether the event alerts drivers to a new round, or to new terms, of a dispatch that they know.
func (e *Event) Reopens() bool {
	return (e.Type == EventReopened || e.Type == EventUpdated) && len(e.Deliveries()) > 0
}

// DelayPush delays the push of e, which reopens the dispatch, after recent openings, the newest first, so that withdrawals and changes
// in a row do not alert all phones each time. The push goes out within the first quarter of the round. It takes the place of one that
// waits, so that the last terms are pushed even if the changes never end.
func (e *Event) DelayPush(recent []Opening, d *Dispatch) {
	if len(recent) == 0 {
		return
	}
	last := recent[0]
	at := last.At.Add(openingDelays[min(len(recent), MaxOpenings)-1])
	if last.Waits != nil {
		at = *last.Waits
	}
	latest := e.At.Add(d.ExpiresAt.Sub(e.At) / 4)
	if least := last.At.Add(leastBetweenPushes); latest.Before(least) {
		latest = least
	}
	if at.After(latest) {
		at = latest
	}
	if at.After(e.At) {
		e.PushAt = at
	}
}
