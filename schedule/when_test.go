//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/cronjob"
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
		{"CRON_TZ=Asia/Seoul 0 0 4 * * *", "UTC", "2026-05-01 00:00:00", "2026-05-03 00:00:00", "01 19:00, 02 19:00"},
	} {
		w := mustIn(Cron(tt.cron), tt.zone)
		if got := slots(w, at(tt.from), at(tt.to)); got != tt.want || w.String() != tt.cron {
			t.Errorf("%s in %s from %s to %s: %s, want %s", w, tt.zone, tt.from, tt.to, got, tt.want)
		}
	}
}

// TestCronAtEachChange compares the slots around each change of the clock with what a look at every minute finds.
func TestCronAtEachChange(t *testing.T) {
	all := func(int) bool { return true }
	is := func(values ...int) func(int) bool { return func(v int) bool { return slices.Contains(values, v) } }
	crons := []struct {
		cron          string
		hour, minute  func(int) bool
		everyHour     bool
		weekday, date func(int) bool
	}{
		{"0 30 2 * * *", is(2), is(30), false, all, all},
		{"0 0 0 * * *", is(0), is(0), false, all, all},
		{"0 0 3 * * *", is(3), is(0), false, all, all},
		{"0 30 1 * * *", is(1), is(30), false, all, all},
		{"0 15,45 0-3,23 * * *", is(0, 1, 2, 3, 23), is(15, 45), false, all, all},
		{"0 0 */2 * * *", func(h int) bool { return h%2 == 0 }, is(0), false, all, all},
		{"0 */5 1-3 * * *", is(1, 2, 3), func(m int) bool { return m%5 == 0 }, false, all, all},
		{"0 30 0-4 * * SUN", is(0, 1, 2, 3, 4), is(30), false, is(0), all},
		{"0 0 0,2 1-15 * *", is(0, 2), is(0), false, all, func(d int) bool { return d <= 15 }},
		{"0 */5 * * * *", all, func(m int) bool { return m%5 == 0 }, true, all, all},
		{"0 0 * * * *", all, is(0), true, all, all},
		{"0 15 * * * *", all, is(15), true, all, all},
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
			first := map[string]time.Time{} // when the clock first showed it
			shown := map[time.Time]string{}
			for m := change.Add(-2 * about); m.Before(change.Add(2 * about)); m = m.Add(time.Minute) {
				text := m.In(in).Format("2006-01-02 15:04")
				shown[m] = text
				if _, again := first[text]; !again {
					first[text] = m
				}
			}
			for _, c := range crons {
				wanted := map[time.Time]bool{}
				want := func(day time.Time, at time.Time) {
					if c.hour(day.Hour()) && c.minute(day.Minute()) && c.weekday(int(day.Weekday())) && c.date(day.Day()) &&
						at.After(change.Add(-about)) && !at.After(change.Add(about)) {
						wanted[at] = true
					}
				}
				for day := must(time.Parse("2006-01-02 15:04", shown[change.Add(-2*about)])); day.Format("2006-01-02 15:04") <= shown[change.Add(about)]; day = day.Add(time.Minute) {
					at, there := first[day.Format("2006-01-02 15:04")]
					gap := must(time.Parse("2006-01-02 15:04", shown[change])).Sub(must(time.Parse("2006-01-02 15:04", shown[change.Add(-time.Minute)]))) - time.Minute
					switch {
					case there:
						want(day, at)
					case !c.everyHour || gap%time.Hour != 0:
						want(day, change)
					}
				}
				if c.everyHour {
					for m, text := range shown {
						want(must(time.Parse("2006-01-02 15:04", text)), m)
					}
				}
				got := strings.Split(slots(mustIn(Cron(c.cron), zone), change.Add(-about), change.Add(about)), ", ")
				var list []string
				for _, m := range slices.SortedFunc(maps.Keys(wanted), time.Time.Compare) {
					list = append(list, m.UTC().Format("02 15:04"))
				}
				if got[0] == "" {
					got = nil
				}
				if !slices.Equal(got, list) {
					t.Errorf("%s in %s about %s:\n%s, want\n%s", c.cron, zone, change, got, list)
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
		"0 0 5-4 * * *", "0 0 */0 * * *", "0 0 x * * *", "0 -1 4 * * *", "0 0 4,, * * *", "0 0 4 * jan-foo *", "0 0 0 30 2 *", "TZ=Nowhere/Else 0 0 4 * * *",
	} {
		if w, err := Cron(bad).in(time.UTC); err == nil {
			t.Errorf("%q is taken: %v", bad, w)
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

// A reading of the database's clock that took long is used if there was none before, and not otherwise.
func TestClockIsReadSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(time.Now)
		read := func(shown time.Duration, took time.Duration) {
			sent := time.Now()
			<-time.After(took)
			c.sync(sent.Add(took/2+shown).Round(0), sent)
		}
		for _, step := range []struct{ shown, took, want time.Duration }{
			{time.Second, time.Minute, time.Second},
			{2 * time.Second, time.Minute, time.Second},
			{0, 100 * time.Millisecond, 0},
			{3 * time.Second, time.Minute, 0},
		} {
			read(step.shown, step.took)
			if ahead := time.Until(c.now()); ahead != step.want {
				t.Errorf("after %+v it is %v ahead", step, ahead)
			}
		}
	})
}

// The clock shows the database's time, whatever the local one shows.
func TestClock(t *testing.T) {
	for _, off := range []struct{ own, database time.Duration }{
		{0, 0}, {0, 3 * time.Second}, {-3 * time.Second, 0}, {time.Hour, -time.Minute},
	} {
		t.Run(fmt.Sprint(off), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				own := func() time.Time { return time.Now().Add(off.own) }
				database := func() time.Time { return time.Now().Add(off.database).Round(0) }
				c := newClock(own)
				for range 3 {
					sent := own()
					<-time.After(40 * time.Millisecond)
					shown := database()
					<-time.After(40 * time.Millisecond)
					c.sync(shown, sent)
					<-time.After(time.Hour)
					if wrong := c.now().Sub(database()); wrong != 0 {
						t.Errorf("it is %v wrong", wrong)
					}
				}
			})
		})
	}
}
