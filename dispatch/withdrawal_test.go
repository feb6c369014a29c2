package dispatch_test

import (
	"errors"
	"testing"
	"time"

	. "firsttap/dispatch"
)

func ago(minutes ...int) (times []time.Time) {
	for _, m := range minutes {
		times = append(times, noon.Add(-time.Duration(m)*time.Minute))
	}
	return times
}

func TestHowOftenMayBeWithdrawn(t *testing.T) {
	for name, c := range map[string]struct {
		past Withdrawals
		wait time.Duration
	}{
		"never before":                      {Withdrawals{}, 0},
		"once":                              {Withdrawals{ByDriver: ago(5), OfDispatchByDriver: ago(5)}, 0},
		"twice from this one":               {Withdrawals{ByDriver: ago(50, 5), OfDispatchByDriver: ago(50, 5)}, 10 * time.Minute},
		"three times from this one":         {Withdrawals{ByDriver: ago(50, 20, 5), OfDispatchByDriver: ago(50, 20, 5)}, 40 * time.Minute},
		"twice, the first of them long ago": {Withdrawals{ByDriver: ago(60, 5), OfDispatchByDriver: ago(60, 5)}, 0},
		"four times from others":            {Withdrawals{ByDriver: ago(40, 30, 20, 10)}, 0},
		"five times from others":            {Withdrawals{ByDriver: ago(45, 40, 30, 20, 10)}, 15 * time.Minute},
		"too often in both ways":            {Withdrawals{ByDriver: ago(45, 40, 30, 20, 10), OfDispatchByDriver: ago(30, 20)}, 30 * time.Minute},
	} {
		var often *TooManyWithdrawalsError
		err := c.past.Check(noon)
		if errors.As(err, &often) != (c.wait > 0) || often != nil && (often.Wait != c.wait || !errors.Is(err, ErrTooManyWithdrawals)) {
			t.Errorf("%s: %v, want to wait for %s", name, err, c.wait)
		}
	}
}
