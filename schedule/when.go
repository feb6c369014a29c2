package schedule

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"firsttap/dispatch/cronjob"
)

// When says at what times a job is to run: [Cron], [Every] or [After].
type When interface {
	fmt.Stringer
	// in checks it, and prepares it for a time zone.
	in(zone *time.Location) (When, error)
	// next is the earliest slot after the job's last that is at most maxDelay before now. It may be later than now.
	next(state cronjob.JobState, now time.Time, maxDelay time.Duration) time.Time
	// latest and upcoming are the slots around now: the last that is not after it, and the first that is. Both are the zero
	// time if only the ledger knows the slots.
	latest(now time.Time) time.Time
	upcoming(now time.Time) time.Time
	// period is the time from one slot to the next.
	period(now time.Time) time.Duration
}

// ParseWhen reads "@every" with a duration, as in "@every 5s", or else a cron expression, which is checked where the job is.
func ParseWhen(text string) (When, error) {
	interval, found := strings.CutPrefix(text, everyPrefix)
	if !found {
		return Cron(text), nil
	}
	d, err := time.ParseDuration(strings.TrimSpace(interval))
	if err != nil {
		return nil, fmt.Errorf("%q has no interval: want one like @every 30s", text)
	}
	return Every(d), nil
}

// Cron is the times of a cron expression with seconds: "0 0 4 * * *" is four o'clock, every day. In a night in which clocks are changed, a
// time that is skipped is a slot at the first instant after, and one that comes twice is one slot. A job of every hour ("*") runs by the
// hours that pass.
func Cron(expression string) When { return &cronTimes{expression: expression} }

type cronTimes struct {
	expression string
	fields     cronFields
	zone       *time.Location
}

func (c *cronTimes) String() string { return c.expression }

func (c *cronTimes) in(zone *time.Location) (When, error) {
	parsed, err := parseCron(c.expression)
	if err != nil {
		return nil, err
	}
	if parsed.after(time.Now(), zone).IsZero() {
		return nil, fmt.Errorf("%q has no next time", c.expression)
	}
	return &cronTimes{c.expression, parsed, zone}, nil
}

func (c *cronTimes) upcoming(now time.Time) time.Time { return c.fields.after(now, c.zone) }

func (c *cronTimes) next(state cronjob.JobState, now time.Time, maxDelay time.Duration) time.Time {
	return c.upcoming(slotsAfter(state, now, maxDelay))
}

// slotsAfter is the time after which the next slot by the clock is.
func slotsAfter(state cronjob.JobState, now time.Time, maxDelay time.Duration) time.Time {
	from := now.Add(-maxDelay)
	if state.RegisteredAt.After(from) {
		from = state.RegisteredAt
	}
	if state.Slot != nil && state.Slot.After(from) {
		from = *state.Slot
	}
	return from
}

// longestPeriod is how far back the latest slot is searched for.
const longestPeriod = lastYears * 366 * 24 * time.Hour

func (c *cronTimes) latest(now time.Time) time.Time {
	from := func(ago int) time.Time { return c.upcoming(now.Add(-time.Duration(ago) * time.Second)) }
	ago := sort.Search(int(longestPeriod/time.Second), func(ago int) bool { return !from(ago).After(now) })
	if slot := from(ago); !slot.After(now) {
		return slot
	}
	return time.Time{}
}

func (c *cronTimes) period(now time.Time) time.Duration { return c.upcoming(now).Sub(c.latest(now)) }

// Every is the multiples of d, counted from midnight UTC if d divides a day. So every instance has the same slots, whenever it started.
func Every(d time.Duration) When { return every(d) }

type every time.Duration

const (
	everyPrefix = "@every "
	// longestInterval is more than a schedule is made for, and far from what overflows.
	longestInterval = 366 * 24 * time.Hour
)

func (e every) String() string { return everyPrefix + time.Duration(e).String() }

func (e every) in(*time.Location) (When, error) {
	if d := time.Duration(e); d < time.Second || d > longestInterval || d%time.Second != 0 {
		return nil, fmt.Errorf("an interval of %s is not whole seconds from 1s to %s", d, longestInterval)
	}
	return e, nil
}

func (e every) next(state cronjob.JobState, now time.Time, maxDelay time.Duration) time.Time {
	return e.upcoming(slotsAfter(state, now, maxDelay))
}

func (e every) latest(now time.Time) time.Time   { return now.Truncate(time.Duration(e)) }
func (e every) upcoming(now time.Time) time.Time { return e.latest(now).Add(time.Duration(e)) }
func (e every) period(time.Time) time.Duration   { return time.Duration(e) }

// After runs a job once at first, and again each time the delay has passed since the last run ended.
func After(delay time.Duration) When { return after(delay) }

type after time.Duration

func (a after) String() string { return "after " + time.Duration(a).String() }

func (a after) in(*time.Location) (When, error) {
	if a <= 0 {
		return nil, fmt.Errorf("a delay of %s is not positive", time.Duration(a))
	}
	return a, nil
}

func (a after) next(state cronjob.JobState, _ time.Time, _ time.Duration) time.Time {
	if state.Slot == nil && state.EndedAt == nil {
		return state.RegisteredAt
	}
	last := state.RegisteredAt
	for _, t := range []*time.Time{state.Slot, state.EndedAt} {
		if t != nil && t.After(last) {
			last = *t
		}
	}
	return last.Add(time.Duration(a))
}

func (a after) latest(time.Time) time.Time     { return time.Time{} }
func (a after) upcoming(time.Time) time.Time   { return time.Time{} }
func (a after) period(time.Time) time.Duration { return time.Duration(a) }
