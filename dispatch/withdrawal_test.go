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
		"by others, ten times":              {Withdrawals{OfDispatch: ago(10, 9, 8, 7, 6, 5, 4, 3, 2, 1)}, 0},
	} {
		var often *TooManyWithdrawalsError
		err := c.past.Check(noon)
		if errors.As(err, &often) != (c.wait > 0) || often != nil && (often.Wait != c.wait || !errors.Is(err, ErrTooManyWithdrawals)) {
			t.Errorf("%s: %v, want to wait for %s", name, err, c.wait)
		}
	}
}

func TestWhenTheNextRoundIsPushed(t *testing.T) {
	before := func(times ...time.Duration) (w Withdrawals) {
		for _, d := range times {
			w.OfDispatch = append(w.OfDispatch, noon.Add(-d))
		}
		return w
	}
	for name, c := range map[string]struct {
		past  Withdrawals
		stood time.Duration // how long the round stands
		wait  time.Duration
	}{
		"the first withdrawal":             {before(), time.Hour, 0},
		"the second, soon":                 {before(5 * time.Second), time.Hour, 15 * time.Second},
		"the second, later":                {before(20 * time.Second), time.Hour, 0},
		"the third":                        {before(time.Minute, 10*time.Second), time.Hour, 30 * time.Second},
		"the fourth":                       {before(time.Hour, time.Minute, 10*time.Second), time.Hour, 50 * time.Second},
		"the tenth":                        {before(9, 8, 7, 6, 5, 4, 3, 2, 0), time.Hour, time.Minute},
		"of a round that is over soon":     {before(0), 20 * time.Second, 5 * time.Second},
		"by a clock that is behind":        {before(-time.Second), time.Hour, 21 * time.Second},
		"the second, after half an hour":   {before(30 * time.Minute), time.Hour, 0},
		"the fourth, after the quiet ones": {before(50*time.Minute, 40*time.Minute, 30*time.Minute), time.Hour, 0},
	} {
		d := inState(Accepted, me)
		d.OpensAt, d.ExpiresAt = noon, noon.Add(c.stood)
		events, err := d.Withdraw(me, "", noon)
		if err != nil {
			t.Fatal(err)
		}
		c.past.DelayPush(events, &d)
		if withdrawn := events[0]; !withdrawn.PushAt.IsZero() {
			t.Errorf("%s: the withdrawal itself is pushed at %s", name, withdrawn.PushAt)
		}
		var wait time.Duration
		if reopened := events[1]; !reopened.PushAt.IsZero() {
			wait = reopened.PushAt.Sub(noon)
		}
		if diff := wait - c.wait; diff < -time.Millisecond || diff > time.Millisecond {
			t.Errorf("%s: pushed %s later, want %s", name, wait, c.wait)
		}
	}
}

// TestNoMoreThanAFewPushesAMinute: whatever the pace of withdrawals, at most four rounds are pushed in any minute, and the last
// round is pushed.
func TestNoMoreThanAFewPushesAMinute(t *testing.T) {
	for _, pace := range []time.Duration{100 * time.Millisecond, time.Second, 7 * time.Second, 20 * time.Second, 20100 * time.Millisecond, 41 * time.Second} {
		var past Withdrawals
		var pushed []time.Time
		for at := noon; at.Before(noon.Add(10 * time.Minute)); at = at.Add(pace) {
			d := inState(Accepted, me)
			d.OpensAt, d.ExpiresAt = at, at.Add(DefaultWindow)
			events, err := d.Withdraw(me, "", at)
			if err != nil {
				t.Fatal(err)
			}
			past.DelayPush(events, &d)
			tell := events[1].At
			if !events[1].PushAt.IsZero() {
				tell = events[1].PushAt
			}
			if last := !at.Add(pace).Before(noon.Add(10 * time.Minute)); last || tell.Before(at.Add(pace)) {
				pushed = append(pushed, tell) // or it is taken again first
			}
			past.OfDispatch = append(past.OfDispatch, at)
		}
		most := 0
		for i := range pushed {
			n := 0
			for _, p := range pushed[i:] {
				if p.Sub(pushed[i]) <= time.Minute {
					n++
				}
			}
			most = max(most, n)
		}
		if most > 4 || len(pushed) < 2 {
			t.Errorf("a withdrawal every %s: %d pushes in a minute, %d in all", pace, most, len(pushed))
		}
	}
}
