package schedule

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/go-co-op/gocron/v2"

	"firsttap/cronjob"
)

// When says at what times a job is to run: [Cron], [After] or [AtStart].
type When interface {
	fmt.Stringer
	// in prepares it for a time zone.
	in(zone *time.Location) (When, error)
	// next is the slot that comes after what is remembered, not begun later than late; the zero time if there is none.
	next(state cronjob.State, now time.Time, late time.Duration) time.Time
	// slot is the latest that is not after now; the zero time where only the ledger knows.
	slot(now time.Time) time.Time
	// period is how long it is from the latest slot to the next, 0 if there is no next.
	period(now time.Time) time.Duration
	definition() gocron.JobDefinition
}

// Cron is the times of a cron expression with seconds: "0 0 4 * * *" is four o'clock, every day. A time that a clock shows
// twice in a night is two slots.
func Cron(expression string) When { return &cron{expression: expression} }

const cronFields = 6

type cron struct {
	expression string
	times      gocron.Cron
}

func (c *cron) String() string { return c.expression }

func (c *cron) in(zone *time.Location) (When, error) {
	fields := strings.Fields(c.expression)
	if len(fields) > 0 && strings.HasPrefix(strings.TrimPrefix(fields[0], "CRON_"), "TZ=") {
		fields = fields[1:]
	}
	if len(fields) != cronFields {
		return nil, fmt.Errorf("%q has %d fields, and not %d, the seconds first", c.expression, len(fields), cronFields)
	}
	times := gocron.NewDefaultCron(true)
	return &cron{c.expression, times}, times.IsValid(c.expression, zone, time.Now())
}

func (c *cron) next(state cronjob.State, now time.Time, late time.Duration) time.Time {
	from := now.Add(-late)
	if state.RegisteredAt.After(from) {
		from = state.RegisteredAt
	}
	if state.Slot != nil && state.Slot.After(from) {
		from = *state.Slot
	}
	return c.times.Next(from)
}

// longestPeriod is how far back a slot is looked for.
const longestPeriod = 5 * 366 * 24 * time.Hour

func (c *cron) slot(now time.Time) time.Time {
	from := func(ago int) time.Time { return c.times.Next(now.Add(-time.Duration(ago) * time.Second)) }
	ago := sort.Search(int(longestPeriod/time.Second), func(ago int) bool { return !from(ago).After(now) })
	if slot := from(ago); !slot.After(now) {
		return slot
	}
	return time.Time{}
}

func (c *cron) period(now time.Time) time.Duration { return c.times.Next(now).Sub(c.slot(now)) }

func (c *cron) definition() gocron.JobDefinition { return gocron.CronJob(c.expression, true) }

// After is once at first, and then whenever about that long has passed since a run has ended.
func After(delay time.Duration) When { return after(delay) }

type after time.Duration

func (a after) String() string { return "after " + time.Duration(a).String() }

func (a after) in(*time.Location) (When, error) {
	if a <= 0 {
		return nil, fmt.Errorf("a delay of %s", time.Duration(a))
	}
	return a, nil
}

func (a after) next(state cronjob.State, _ time.Time, _ time.Duration) time.Time {
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

func (a after) slot(time.Time) time.Time         { return time.Time{} }
func (a after) period(time.Time) time.Duration   { return time.Duration(a) }
func (a after) definition() gocron.JobDefinition { return gocron.DurationJob(time.Duration(a)) }

// AtStart is once when the instances start, which takes them no longer than within: one that starts that long after the
// last run began is another start.
func AtStart(within time.Duration) When { return atStart(within) }

type atStart time.Duration

func (a atStart) String() string { return "at start" }

func (a atStart) in(*time.Location) (When, error) {
	if a <= 0 {
		return nil, fmt.Errorf("a start that takes %s", time.Duration(a))
	}
	return a, nil
}

func (a atStart) next(state cronjob.State, now time.Time, _ time.Duration) time.Time {
	if state.Slot != nil && now.Sub(*state.Slot) < time.Duration(a) {
		return time.Time{}
	}
	return now
}

func (a atStart) slot(time.Time) time.Time       { return time.Time{} }
func (a atStart) period(time.Time) time.Duration { return 0 }
func (a atStart) definition() gocron.JobDefinition {
	return gocron.OneTimeJob(gocron.OneTimeJobStartImmediately())
}
