package schedule

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch/cronjob"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func mustIn(w When, zone string) When { return must(w.in(must(time.LoadLocation(zone)))) }

func at(s string) time.Time { return must(time.Parse(time.DateTime, s)) }

// slots lists those of w that are after from and not after to.
func slots(w When, from, to time.Time) string {
	var all []string
	state := cronjob.JobState{RegisteredAt: from}
	for slot := w.next(state, to, to.Sub(from)); !slot.IsZero() && !slot.After(to); slot = w.next(state, to, to.Sub(from)) {
		all = append(all, slot.UTC().Format("02 15:04"))
		state.Slot = &slot
	}
	return strings.Join(all, ", ")
}

// The clock of New York shows 01:00 to 02:00 twice on November 1st, and 02:00 to 03:00 not at all on March 8th.
func TestCronOfAZone(t *testing.T) {
	for _, tt := range []struct{ cron, zone, from, to, want string }{
		{"0 0 4 * * *", "America/New_York", "2026-10-31 00:00:00", "2026-11-02 23:00:00", "31 08:00, 01 09:00, 02 09:00"},
		{"0 30 1 * * *", "America/New_York", "2026-10-31 00:00:00", "2026-11-02 23:00:00", "31 05:30, 01 05:30, 02 06:30"},
		{"0 30 * * * *", "America/New_York", "2026-11-01 04:00:00", "2026-11-01 08:00:00", "01 04:30, 01 05:30, 01 06:30, 01 07:30"},
		{"0 0 4 * * *", "America/New_York", "2026-03-07 00:00:00", "2026-03-09 23:00:00", "07 09:00, 08 08:00, 09 08:00"},
		{"0 30 2 * * *", "America/New_York", "2026-03-07 00:00:00", "2026-03-09 23:00:00", "07 07:30, 08 07:00, 09 06:30"},
		{"0 10/15 2 * * *", "America/New_York", "2026-03-08 00:00:00", "2026-03-09 06:20:00", "08 07:00, 09 06:10"},
		{"0 */30 * * * *", "America/New_York", "2026-11-01 05:00:00", "2026-11-01 07:00:00", "01 05:30, 01 06:00, 01 06:30, 01 07:00"},
		{"0 */30 1 * * *", "America/New_York", "2026-11-01 04:00:00", "2026-11-01 07:00:00", "01 05:00, 01 05:30"},
		{"0 0 0 * * *", "America/Santiago", "2026-09-05 00:00:00", "2026-09-07 12:00:00", "05 04:00, 06 04:00, 07 03:00"},
		{"0 15 2 * * *", "Australia/Lord_Howe", "2026-10-02 00:00:00", "2026-10-04 23:00:00", "02 15:45, 03 15:30, 04 15:15"},
		{"0 0 4 * * *", "Australia/Lord_Howe", "2026-10-02 00:00:00", "2026-10-04 23:00:00", "02 17:30, 03 17:00, 04 17:00"},
		{"0 45 1 * * *", "Australia/Lord_Howe", "2026-04-03 00:00:00", "2026-04-05 23:00:00", "03 14:45, 04 14:45, 05 15:15"},
		{"0 15 * * * *", "Australia/Lord_Howe", "2026-10-03 14:00:00", "2026-10-03 17:00:00", "03 14:45, 03 15:30, 03 16:15"},
		{"0 0 4 * * *", "Pacific/Apia", "2011-12-29 00:00:00", "2011-12-31 14:00:00", "29 14:00, 30 10:00, 30 14:00, 31 14:00"},
		{"0 30 * * * *", "America/New_York", "2026-03-08 05:00:00", "2026-03-08 09:00:00", "08 05:30, 08 06:30, 08 07:30, 08 08:30"},
		{"0 0 4 * * *", "Asia/Seoul", "2026-05-01 00:00:00", "2026-05-03 00:00:00", "01 19:00, 02 19:00"},
	} {
		w := mustIn(Cron(tt.cron), tt.zone)
		if got := slots(w, at(tt.from), at(tt.to)); got != tt.want || w.String() != tt.cron {
			t.Errorf("%s in %s from %s to %s: %s, want %s", w, tt.zone, tt.from, tt.to, got, tt.want)
		}
	}
}

// TestCronAtEachChange compares the slots around each change of the clock with what a look at every minute finds.
func TestCronAtEachChange(t *testing.T) {
	is := func(value int, values ...int) bool { return slices.Contains(values, value) }
	crons := []struct {
		cron      string
		everyHour bool
		wants     func(t time.Time) bool // a time as the clock shows it
	}{
		{"0 30 2 * * *", false, func(t time.Time) bool { return t.Hour() == 2 && t.Minute() == 30 }},
		{"0 0 0 * * *", false, func(t time.Time) bool { return t.Hour() == 0 && t.Minute() == 0 }},
		{"0 0 3 * * *", false, func(t time.Time) bool { return t.Hour() == 3 && t.Minute() == 0 }},
		{"0 30 1 * * *", false, func(t time.Time) bool { return t.Hour() == 1 && t.Minute() == 30 }},
		{"0 15,45 0-3,23 * * *", false, func(t time.Time) bool { return is(t.Hour(), 0, 1, 2, 3, 23) && is(t.Minute(), 15, 45) }},
		{"0 0 */2 * * *", false, func(t time.Time) bool { return t.Hour()%2 == 0 && t.Minute() == 0 }},
		{"0 */5 1-3 * * *", false, func(t time.Time) bool { return is(t.Hour(), 1, 2, 3) && t.Minute()%5 == 0 }},
		{"0 30 0-4 * * SUN", false, func(t time.Time) bool { return t.Hour() < 5 && t.Minute() == 30 && t.Weekday() == time.Sunday }},
		{"0 0 0,2 1-15 * *", false, func(t time.Time) bool { return is(t.Hour(), 0, 2) && t.Minute() == 0 && t.Day() <= 15 }},
		{"0 */5 * * * *", true, func(t time.Time) bool { return t.Minute()%5 == 0 }},
		{"0 0 * * * *", true, func(t time.Time) bool { return t.Minute() == 0 }},
		{"0 15 * * * *", true, func(t time.Time) bool { return t.Minute() == 15 }},
	}
	const about = 30 * time.Hour
	changes := 0
	for _, zone := range []string{
		"Africa/Cairo", "Africa/Casablanca", "America/Havana", "America/New_York", "America/Santiago", "America/St_Johns", "Antarctica/Troll",
		"Asia/Beirut", "Asia/Gaza", "Asia/Seoul", "Australia/Lord_Howe", "Europe/Lisbon", "Europe/Berlin", "Pacific/Chatham",
	} {
		in := must(time.LoadLocation(zone))
		for change := at("2024-01-01 00:00:00").In(in); ; changes++ {
			if _, change = change.ZoneBounds(); change.IsZero() || change.Year() > 2030 {
				break
			}
			shown := func(at time.Time) time.Time {
				year, month, day := at.In(in).Date()
				hour, minute, _ := at.In(in).Clock()
				return time.Date(year, month, day, hour, minute, 0, 0, time.UTC)
			}
			all, first := map[time.Time]time.Time{}, map[time.Time]time.Time{} // what is shown when, and when that is so at first
			for m := change.Add(-2 * about); m.Before(change.Add(2 * about)); m = m.Add(time.Minute) {
				wall := shown(m)
				all[m] = wall
				if _, again := first[wall]; !again {
					first[wall] = m
				}
			}
			skipped := shown(change).Sub(shown(change.Add(-time.Minute))) - time.Minute
			for _, c := range crons {
				wanted := map[time.Time]bool{}
				want := func(wall, at time.Time) {
					if c.wants(wall) && at.After(change.Add(-about)) && !at.After(change.Add(about)) {
						wanted[at] = true
					}
				}
				for wall := all[change.Add(-2*about)]; !wall.After(all[change.Add(about)]); wall = wall.Add(time.Minute) {
					if at, there := first[wall]; there {
						want(wall, at)
					} else if !c.everyHour || skipped%time.Hour != 0 {
						want(wall, change)
					}
				}
				if c.everyHour {
					for m, wall := range all {
						want(wall, m)
					}
				}
				var list []string
				for _, m := range slices.SortedFunc(maps.Keys(wanted), time.Time.Compare) {
					list = append(list, m.UTC().Format("02 15:04"))
				}
				got := slots(mustIn(Cron(c.cron), zone), change.Add(-about), change.Add(about))
				if want := strings.Join(list, ", "); got != want {
					t.Errorf("%s in %s about %s:\n%s, want\n%s", c.cron, zone, change, got, want)
				}
			}
		}
	}
	if changes < 150 {
		t.Errorf("only %d changes of clocks were found", changes)
	}
}

func TestEachBadCron(t *testing.T) {
	for _, bad := range []string{
		"", "0 0 4 * *", "0 0 4 * * * *", "60 0 4 * * *", "0 0 24 * * *", "0 0 4 0 * *", "0 0 4 32 * *", "0 0 4 * 13 *", "0 0 4 * * 7",
		"0 0 5-4 * * *", "0 0 */0 * * *", "0 0 x * * *", "0 -1 4 * * *", "0 0 4,, * * *", "0 0 4 * jan-foo *", "0 0 0 30 2 *", "@daily", "CRON_TZ=UTC 0 0 4 * * *",
	} {
		if w, err := Cron(bad).in(time.UTC); err == nil {
			t.Errorf("%q is taken: %v", bad, w)
		}
	}
}

// The slots of an interval are the same whenever its instance started, and in every zone.
func TestEvery(t *testing.T) {
	for _, tt := range []struct{ text, from, to, want string }{
		{"@every 6h", "2026-05-01 00:00:01", "2026-05-02 00:00:00", "01 06:00, 01 12:00, 01 18:00, 02 00:00"},
		{"@every 90m", "2026-05-01 05:17:13", "2026-05-01 09:00:00", "01 06:00, 01 07:30, 01 09:00"},
		{"@every  60s", "2026-05-01 12:00:00", "2026-05-01 12:02:30", "01 12:01, 01 12:02"},
	} {
		w := must(must(ParseWhen(tt.text)).in(must(time.LoadLocation("Asia/Kathmandu"))))
		if got := slots(w, at(tt.from), at(tt.to)); got != tt.want {
			t.Errorf("%s from %s to %s: %s, want %s", tt.text, tt.from, tt.to, got, tt.want)
		}
	}
	w, now := Every(20*time.Second), at("2026-05-01 12:00:59")
	if latest := w.latest(now); !latest.Equal(at("2026-05-01 12:00:40")) || w.period(now) != 20*time.Second || w.String() != "@every 20s" {
		t.Errorf("%s at %s: %s, %s", w, now, latest, w.period(now))
	}
	for _, bad := range []string{"@every 500ms", "@every 1500ms", "@every 0s", "@every -5s", "@every 9000h", "@every ", "@every 5", "@every5s", "@hourly"} {
		w, err := ParseWhen(bad)
		if err == nil {
			_, err = w.in(time.UTC)
		}
		if err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestTheLatestSlot(t *testing.T) {
	for _, tt := range []struct{ cron, now, slot, period string }{
		{"* * * * * *", "2026-05-01 12:00:00", "2026-05-01 12:00:00", "1s"},
		{"*/5 * * * * *", "2026-05-01 12:00:04", "2026-05-01 12:00:00", "5s"},
		{"0 0 4 * * *", "2026-05-01 03:59:59", "2026-04-30 04:00:00", "24h0m0s"},
		{"0 0 4 * * *", "2026-05-01 04:00:00", "2026-05-01 04:00:00", "24h0m0s"},
		// Weekdays, seen on a Sunday; twice a day, seen between the two and after both; each second of an hour.
		{"0 0 4 * * 1-5", "2026-05-03 12:00:00", "2026-05-01 04:00:00", "72h0m0s"},
		{"0 0 4,5 * * *", "2026-05-01 04:30:00", "2026-05-01 04:00:00", "1h0m0s"},
		{"0 0 4,5 * * *", "2026-05-01 23:30:00", "2026-05-01 05:00:00", "23h0m0s"},
		{"* * 4 * * *", "2026-05-01 23:30:00", "2026-05-01 04:59:59", "23h0m1s"},
		{"0 0 0 29 2 *", "2026-05-01 00:00:00", "2024-02-29 00:00:00", "35064h0m0s"},
	} {
		w := mustIn(Cron(tt.cron), "UTC")
		for _, more := range []time.Duration{0, time.Microsecond, 900 * time.Millisecond} {
			now := at(tt.now).Add(more)
			if slot, period := w.latest(now), w.period(now); !slot.Equal(at(tt.slot)) || period.String() != tt.period {
				t.Errorf("%s at %s: %s and %s, want %s and %s", tt.cron, now, slot, period, tt.slot, tt.period)
			}
		}
	}
}

func TestCronNext(t *testing.T) {
	now := at("2026-05-01 12:00:00").Add(500 * time.Millisecond)
	second := func(s int) *time.Time {
		v := at("2026-05-01 12:00:00").Add(time.Duration(s) * time.Second)
		return &v
	}
	long := now.Add(-time.Hour)
	for _, tt := range []struct {
		name       string
		registered time.Time
		slot       *time.Time
		late       time.Duration
		want       *time.Time
	}{
		{"nothing was missed", long, second(0), time.Minute, second(1)},
		{"one was missed", long, second(-1), time.Minute, second(0)},
		{"many were missed", long, second(-30), time.Minute, second(-29)},
		{"many were missed, and some are too old", long, second(-30), 10 * time.Second, second(-9)},
		{"none was ever run", long, nil, 10 * time.Second, second(-9)},
		{"it is new", *second(-2), nil, time.Minute, second(-1)},
		{"it is newer", now, nil, time.Minute, second(1)},
		{"the database's clock went back", long, second(60), time.Minute, second(61)},
	} {
		w := mustIn(Cron("* * * * * *"), "UTC")
		got := w.next(cronjob.JobState{RegisteredAt: tt.registered, Slot: tt.slot}, now, tt.late)
		if !got.Equal(*tt.want) {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestAfter(t *testing.T) {
	now := at("2026-05-01 12:00:00")
	ago := func(seconds int) *time.Time { v := now.Add(-time.Duration(seconds) * time.Second); return &v }
	for _, tt := range []struct{ slot, ended, want *time.Time }{
		{nil, nil, ago(3600)},
		{ago(30), ago(20), ago(-40)},
		{ago(30), ago(50), ago(-30)},
		{ago(30), nil, ago(-30)},
		{nil, ago(20), ago(-40)}, // a run was requested before the first was due
	} {
		state := cronjob.JobState{RegisteredAt: *ago(3600), Slot: tt.slot, EndedAt: tt.ended}
		if got := After(time.Minute).next(state, now, 0); !got.Equal(*tt.want) {
			t.Errorf("after %+v: %s, want %s", state, got, tt.want)
		}
	}
}
