package dispatch

import "time"

// The limits on withdrawals. Each withdrawal alerts every eligible driver again.
const (
	// WithdrawalPeriod is how long a withdrawal counts.
	WithdrawalPeriod = time.Hour
	// MaxWithdrawalsPerDispatch and MaxWithdrawalsPerDriver limit a driver's withdrawals in that time, from one dispatch and from all.
	MaxWithdrawalsPerDispatch = 2
	MaxWithdrawalsPerDriver   = 5
)

// reopenDelays are the least times from the dispatch's last withdrawal to the push of the next round: after the first, the
// second and every later withdrawal. The round is open at once, and apps that ask see it.
var reopenDelays = [...]time.Duration{20 * time.Second, 40 * time.Second, time.Minute}

// Withdrawals are the times of the withdrawals that count, earliest first.
type Withdrawals struct {
	OfDispatch         []time.Time // by any driver
	ByDriver           []time.Time // from any dispatch
	OfDispatchByDriver []time.Time // from the dispatch, by the driver
}

// Check returns a TooManyWithdrawalsError if the driver may not withdraw at now.
func (w Withdrawals) Check(now time.Time) error {
	wait := max(waitUntilBelow(w.OfDispatchByDriver, MaxWithdrawalsPerDispatch, now), waitUntilBelow(w.ByDriver, MaxWithdrawalsPerDriver, now))
	if wait > 0 {
		return &TooManyWithdrawalsError{Wait: wait}
	}
	return nil
}

// waitUntilBelow returns the time until fewer than most of the withdrawals count, 0 or less if fewer do.
func waitUntilBelow(times []time.Time, most int, now time.Time) time.Duration {
	if len(times) < most {
		return 0
	}
	return times[len(times)-most].Add(WithdrawalPeriod).Sub(now)
}

// DelayPush delays the push of the next round, which the last of events opens, after recent withdrawals from the dispatch, so
// that drivers who accept and withdraw in turn do not alert all phones each time. The push goes out within the first quarter
// of the round.
func (w Withdrawals) DelayPush(events []Event, d *Dispatch) {
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
		e.PushAt = at
	}
}
