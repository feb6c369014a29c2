package dispatch_test

import (
	"testing"
	"time"

	. "firsttap/dispatch"
)

// openings are that long ago, the newest first.
func openings(ago ...time.Duration) (recent []Opening) {
	for _, d := range ago {
		recent = append(recent, Opening{At: noon.Add(-d)})
	}
	return recent
}

func TestWhenTheNextRoundIsPushed(t *testing.T) {
	waiting := openings(time.Second)
	waiting[0].Waits = new(noon.Add(7 * time.Second))
	for name, c := range map[string]struct {
		recent []Opening
		stood  time.Duration // how long the round stands
		wait   time.Duration
	}{
		"the first":                      {nil, time.Hour, 0},
		"the second, soon":               {openings(5 * time.Second), time.Hour, 15 * time.Second},
		"the second, later":              {openings(20 * time.Second), time.Hour, 0},
		"the third":                      {openings(10*time.Second, time.Minute), time.Hour, 30 * time.Second},
		"the fourth":                     {openings(10*time.Second, time.Minute, time.Hour), time.Hour, 50 * time.Second},
		"in place of one that waits":     {waiting, time.Hour, 7 * time.Second},
		"of a round that is over soon":   {openings(0), 20 * time.Second, 5 * time.Second},
		"of a round of a second":         {openings(time.Second), time.Second, 4 * time.Second},
		"by a clock that is behind":      {openings(-time.Second), time.Hour, 21 * time.Second},
		"the second, after half an hour": {openings(30 * time.Minute), time.Hour, 0},
	} {
		d := inState(Accepted, me)
		d.OpensAt, d.ExpiresAt = noon, noon.Add(c.stood)
		e := Event{Type: EventReopened, At: noon}
		e.DelayPush(c.recent, &d)
		var wait time.Duration
		if !e.PushAt.IsZero() {
			wait = e.PushAt.Sub(noon)
		}
		if wait != c.wait {
			t.Errorf("%s: pushed %s later, want %s", name, wait, c.wait)
		}
	}
}

// TestOpeningsAreDamped: whatever the pace of new rounds, at most four are pushed in any minute, and one at least every two minutes,
// and the last.
func TestOpeningsAreDamped(t *testing.T) {
	for _, pace := range []time.Duration{
		100 * time.Millisecond, time.Second, 7 * time.Second, 20 * time.Second, 20100 * time.Millisecond, 41 * time.Second, 59 * time.Second,
	} {
		var recent []Opening
		var pushed []time.Time
		end := noon.Add(10 * time.Minute)
		for at := noon; at.Before(end); at = at.Add(pace) {
			d := inState(Pending, me)
			d.OpensAt, d.ExpiresAt = at, at.Add(DefaultWindow)
			e := Event{Type: EventUpdated, At: at}
			if len(recent) > 0 && recent[0].Waits != nil && !recent[0].Waits.After(at) {
				recent[0].Waits = nil
			}
			e.DelayPush(recent, &d)
			o, tell := Opening{At: at}, at
			if !e.PushAt.IsZero() {
				o.Waits, tell = new(e.PushAt), e.PushAt
			}
			recent = append([]Opening{o}, recent[:min(len(recent), MaxOpenings-1)]...)
			if next := at.Add(pace); !next.Before(end) || !tell.After(next) {
				pushed = append(pushed, tell) // or the next one takes its place
			}
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
			if i > 0 && pushed[i].Sub(pushed[i-1]) > 2*time.Minute {
				t.Errorf("every %s: nothing is pushed for %s", pace, pushed[i].Sub(pushed[i-1]))
			}
		}
		if most > 4 || len(pushed) < 5 {
			t.Errorf("every %s: %d pushes in a minute, %d in all", pace, most, len(pushed))
		}
	}
}
