package dispatch

import "time"

// The limits on withdrawals. Each withdrawal opens a round.
const (
	// WithdrawalPeriod is how long a withdrawal counts.
	WithdrawalPeriod = time.Hour
	// MaxWithdrawalsPerDispatch and MaxWithdrawalsPerDriver limit a driver's withdrawals in that time, from one dispatch and from all.
	MaxWithdrawalsPerDispatch = 2
	MaxWithdrawalsPerDriver   = 5
)

// Withdrawals are the times of the withdrawals that count, earliest first.
type Withdrawals struct {
	ByDriver           []time.Time // from any dispatch
	OfDispatchByDriver []time.Time // from the dispatch, by the driver
}

// Check returns a TooManyWithdrawalsError if the driver may not withdraw at now.
func (w Withdrawals) Check(now time.Time) error {
	wait := max(waitUntilBelow(w.OfDispatchByDriver, MaxWithdrawalsPerDispatch, now),
		waitUntilBelow(w.ByDriver, MaxWithdrawalsPerDriver, now))
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
