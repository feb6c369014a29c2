package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// cronFields are the values that each field of a cron expression allows, as bits.
type cronFields struct {
	seconds, minutes, hours, days, months, weekdays uint64
	// anyDay and anyWeekday: the field is *. Where neither is, a date that one of the two allows is enough.
	anyDay, anyWeekday bool
}

// cronField is the form of one field. Names stand for the values from first on.
type cronField struct {
	name        string
	first, last int
	names       []string
}

var cronForm = [...]cronField{
	{"second", 0, 59, nil},
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of the month", 1, 31, nil},
	{"month", 1, 12, strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{"day of the week", 0, 6, strings.Fields("sun mon tue wed thu fri sat")},
}

// parseCron reads six fields, from the seconds to the day of the week. Each is a list of *, ?, a value, or a range, with a step if
// wanted: "*/5", "1-5", "mon,wed", "10/15" for 10, 25, 40 and 55.
func parseCron(expression string) (c cronFields, err error) {
	fields := strings.Fields(expression)
	if len(fields) != len(cronForm) {
		return c, fmt.Errorf(
			"%q has %d fields, want six: second, minute, hour, day of the month, month, day of the week", expression, len(fields),
		)
	}
	into := [...]*uint64{&c.seconds, &c.minutes, &c.hours, &c.days, &c.months, &c.weekdays}
	for i, text := range fields {
		for part := range strings.SplitSeq(text, ",") {
			values, err := cronForm[i].parse(part)
			if err != nil {
				return c, fmt.Errorf("%q: the %s %q %w", expression, cronForm[i].name, part, err)
			}
			*into[i] |= values
		}
	}
	isAny := func(text string) bool { return text == "*" || text == "?" }
	c.anyDay, c.anyWeekday = isAny(fields[3]), isAny(fields[5])
	return c, nil
}

func (f *cronField) parse(part string) (values uint64, err error) {
	span, stepText, hasStep := strings.Cut(part, "/")
	from, to, isRange := strings.Cut(span, "-")
	first, last := f.first, f.last
	if span != "*" && span != "?" {
		if first, err = f.value(from); err != nil {
			return 0, err
		}
		switch {
		case isRange:
			if last, err = f.value(to); err != nil {
				return 0, err
			}
		case !hasStep:
			last = first
		}
	}
	step := 1
	if hasStep {
		if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
			return 0, fmt.Errorf("has the step %q, want a positive number", stepText)
		}
	}
	if first < f.first || last > f.last || first > last {
		return 0, fmt.Errorf("is not within %d to %d", f.first, f.last)
	}
	for v := first; v <= last; v += step {
		values |= 1 << v
	}
	return values, nil
}

func (f *cronField) value(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.first + i, nil
		}
	}
	v, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("has %q, want a number", text)
	}
	return int(v), nil
}

// lastYears is how far ahead a date is searched for: from one February 29th to the next are eight years at most.
const lastYears = 9

// onClock returns the first time from wall on that a clock without changes shows, zero for none. Wall and the result are such times,
// written as of UTC.
func (c *cronFields) onClock(wall time.Time) time.Time {
	if up := wall.Truncate(time.Second); up.Before(wall) {
		wall = up.Add(time.Second)
	}
	for end := wall.AddDate(lastYears, 0, 0); wall.Before(end); {
		year, month, day := wall.Date()
		hour, minute, second := wall.Clock()
		switch {
		case c.months>>month&1 == 0:
			wall = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
		case !c.onDate(day, wall.Weekday()):
			wall = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
		case c.hours>>hour&1 == 0:
			wall = time.Date(year, month, day, hour+1, 0, 0, 0, time.UTC)
		case c.minutes>>minute&1 == 0:
			wall = time.Date(year, month, day, hour, minute+1, 0, 0, time.UTC)
		case c.seconds>>second == 0: // no later second of this minute
			wall = time.Date(year, month, day, hour, minute+1, 0, 0, time.UTC)
		default:
			return wall.Add(time.Duration(bits.TrailingZeros64(c.seconds>>second)) * time.Second)
		}
	}
	return time.Time{}
}

func (c *cronFields) onDate(day int, weekday time.Weekday) bool {
	onDay, onWeekday := c.days>>day&1 == 1, c.weekdays>>weekday&1 == 1
	if c.anyDay || c.anyWeekday {
		return onDay && onWeekday
	}
	return onDay || onWeekday
}

const everyHour = 1<<24 - 1

// after returns the first slot after t, in the zone; zero for none.
//
// Between two changes of the zone's clock, slots are what it shows. A slot that it skips is at the first instant after: 02:30 at 03:00. Of
// a time that it shows twice only the first is a slot. For a job of every hour, hours go on as they pass: it runs in both of two that look
// alike, and a skipped one is no time in which it should have run.
func (c *cronFields) after(t time.Time, zone *time.Location) time.Time {
	// A change that is exactly at t may have made a slot of t, which is not after t.
	for from := t.Add(1); ; {
		from = from.In(zone)
		start, end := from.ZoneBounds()
		shown := shownBy(from)
		if before := shownBy(start.Add(-1)).Add(1); c.hours != everyHour && !start.IsZero() && shown.Before(before) {
			shown = before // shown before the clock was set back
		}
		wall := c.onClock(shown)
		if wall.IsZero() {
			return time.Time{}
		}
		slot := from.Add(wall.Sub(shownBy(from)))
		if end.IsZero() || slot.Before(end) {
			return slot
		}
		// The clock is changed first. It skips what is between.
		lastShown, skippedTo := shownBy(end.Add(-1)).Add(1), shownBy(end)
		lost := wall.Before(skippedTo) && !wall.Before(lastShown)
		if lost && (c.hours != everyHour || skippedTo.Sub(lastShown)%time.Hour != 0) {
			return end
		}
		from = end
	}
}

// shownBy returns what a clock of t's zone shows at t, written as of UTC.
func shownBy(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.Add(time.Duration(offset) * time.Second).UTC()
}
