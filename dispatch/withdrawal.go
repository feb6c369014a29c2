package dispatch

import "time"

// The limits on withdrawing: each time, everybody's phone rings.
const (
	// WithdrawalsFor is how long a withdrawal counts.
	WithdrawalsFor = time.Hour
	// WithdrawalsOfOne and WithdrawalsOfAll are how often a driver may withdraw from one dispatch, and from all, in that
	// time.
	WithdrawalsOfOne = 2
	WithdrawalsOfAll = 5
)

// reopenDelays is how long after the dispatch's last withdrawal the next round is pushed at the earliest: after the
// first, the second and every later withdrawal. Drivers who look see the round at once.
var reopenDelays = [...]time.Duration{20 * time.Second, 40 * time.Second, time.Minute}

// Withdrawals are the times of the withdrawals that count, the earliest first.
type Withdrawals struct {
	OfDispatch []time.Time // by anybody
	ByDriver   []time.Time // from any dispatch
	Both       []time.Time // from the dispatch, by the driver
}

// Check is a TooOftenError when the driver may not withdraw at now.
func (w Withdrawals) Check(now time.Time) error {
	wait := max(waitUntilBelow(w.Both, WithdrawalsOfOne, now), waitUntilBelow(w.ByDriver, WithdrawalsOfAll, now))
	if wait > 0 {
		return &TooOftenError{Wait: wait}
	}
	return nil
}

// waitUntilBelow is how long it is until fewer than most of the withdrawals count, 0 or less if that is so.
func waitUntilBelow(times []time.Time, most int, now time.Time) time.Duration {
	if len(times) < most {
		return 0
	}
	return times[len(times)-most].Add(WithdrawalsFor).Sub(now)
}

// Defer has the next round, which the last of events has opened, pushed later if the dispatch was withdrawn from lately:
// phones do not ring each time when drivers take it and give it back in turn. It is pushed within the first quarter of the
// round.
func (w Withdrawals) Defer(events []Event, d *Dispatch) {
	n := len(w.OfDispatch)
	if n == 0 {
		return
	}
	e := &events[len(events)-1]
	at := w.OfDispatch[n-1].Add(reopenDelays[min(n, len(reopenDelays))-1])
	if latest := e.At.Add(d.ExpiresAt.Sub(e.At) / 4); at.After(latest) {
		at = latest
	}
	if at.After(e.At) {
		e.TellAt = at
	}
}
