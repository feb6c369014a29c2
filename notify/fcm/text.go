package fcm

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
)

// The fields are cut to so many runes, so that any message fits into FCM's 4,096 bytes.
const (
	maxPlace   = 40  // of a region, and of a vehicle class
	maxAddress = 120 // of the site
)

// text is the text of a notification. In a template, {what} stands for region and vehicle class, {when} for date and hours
// of the work, {start} for its beginning, {fee} and {address} for themselves, and {opens} for the opening of the offer; a
// line with {opens} is left out once the offer is open.
type text struct{ title, body string }

// language has the templates of one language, and its forms of money and dates.
type language struct {
	templates map[dispatch.EventType]text
	won       string // format of an amount in won
	date      func(t time.Time, withYear bool) string
}

const (
	koreanOffer  = "{when} · {fee}\n{address}\n{opens}부터 수락할 수 있습니다"
	englishOffer = "{when} · {fee}\n{address}\nOpens {opens}"
)

func korean() *language {
	return &language{
		won: "%s원",
		date: func(t time.Time, withYear bool) string {
			days := [...]string{"일", "월", "화", "수", "목", "금", "토"}
			date := fmt.Sprintf("%d월 %d일(%s)", t.Month(), t.Day(), days[t.Weekday()])
			if withYear {
				return fmt.Sprintf("%d년 %s", t.Year(), date)
			}
			return date
		},
		templates: map[dispatch.EventType]text{
			dispatch.EventOpened:     {"새 배차 · {what}", koreanOffer},
			dispatch.EventReopened:   {"다시 열린 배차 · {what}", koreanOffer},
			dispatch.EventUpdated:    {"변경된 배차 · {what}", koreanOffer},
			dispatch.EventAccepted:   {"배차 확정", "{what} · {when} · {fee}\n{address}"},
			dispatch.EventUnassigned: {"배차 해제", "{what} · {when}\n배차가 해제되었습니다"},
			dispatch.EventCanceled:   {"배차 취소", "{what} · {when}\n배차가 취소되었습니다"},
			dispatch.EventReminder:   {"작업 알림 · {start} 시작", "{what} · {when}\n{address}"},
		},
	}
}

func english() *language {
	return &language{
		won: "KRW %s",
		date: func(t time.Time, withYear bool) string {
			if withYear {
				return t.Format("Mon 2 Jan 2006")
			}
			return t.Format("Mon 2 Jan")
		},
		templates: map[dispatch.EventType]text{
			dispatch.EventOpened:     {"New job · {what}", englishOffer},
			dispatch.EventReopened:   {"Open again · {what}", englishOffer},
			dispatch.EventUpdated:    {"Job changed · {what}", englishOffer},
			dispatch.EventAccepted:   {"The job is yours", "{what} · {when} · {fee}\n{address}"},
			dispatch.EventUnassigned: {"Job unassigned", "{what} · {when}\nThis job is no longer yours"},
			dispatch.EventCanceled:   {"Job canceled", "{what} · {when}\nThis job has been canceled"},
			dispatch.EventReminder:   {"Job starts {start}", "{what} · {when}\n{address}"},
		},
	}
}

// isKorean reports whether a BCP 47 locale asks for Korean: "ko" does, and so does none. Others get English.
func isKorean(locale string) bool {
	tag, _, _ := strings.Cut(strings.ReplaceAll(locale, "_", "-"), "-")
	return tag == "" || strings.EqualFold(tag, "ko")
}

// textKey is what a text depends on.
type textKey struct {
	dispatch dispatch.ID
	version  int
	changed  int64 // after a failover that has lost changes, a version may come again
	event    dispatch.EventType
	korean   bool
	opened   bool // the offer is open
	today    int  // in the composer's zone: the year and its day
}

// text returns the text of p in the device's language, the zero text if its type has none.
func (c *composer) text(p *outbox.Push, now time.Time) text {
	d, now := &p.Dispatch, now.In(c.zone)
	key := textKey{
		d.ID, d.Version, d.UpdatedAt.UnixMicro(), p.Type, isKorean(p.Device.Locale), !d.OpensAt.After(now),
		now.Year()*1000 + now.YearDay(),
	}
	if t, known := c.texts.Get(key); known {
		return t
	}
	l := c.english
	if key.korean {
		l = c.korean
	}
	t := l.text(p.Type, d, now)
	c.texts.Add(key, t)
	return t
}

// text returns the text of a push of that type; the times are in now's zone.
func (l *language) text(event dispatch.EventType, d *dispatch.Dispatch, now time.Time) text {
	template, ok := l.templates[event]
	if !ok {
		return text{}
	}
	zone := now.Location()
	start, end, opens := d.WorkStartsAt.In(zone), d.WorkEndsAt.In(zone), d.OpensAt.In(zone)
	body := template.body
	if !d.OpensAt.After(now) {
		body = withoutLine(body, "{opens}")
	}
	fill := strings.NewReplacer(
		"{what}", firstRunes(d.Region, maxPlace)+" "+firstRunes(d.VehicleClass, maxPlace),
		"{when}", l.span(start, end, now),
		"{start}", l.moment(start, now),
		"{opens}", l.moment(opens, now),
		"{fee}", l.money(d.Fee),
		"{address}", firstRunes(d.Site.Address, maxAddress),
	)
	return text{fill.Replace(template.title), strings.TrimRight(fill.Replace(body), "\n")}
}

func withoutLine(s, mark string) string {
	var kept []string
	for line := range strings.SplitSeq(s, "\n") {
		if !strings.Contains(line, mark) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

const clock = "15:04"

// dateOf returns t's date, with the year unless it is this year's.
func (l *language) dateOf(t, now time.Time) string { return l.date(t, t.Year() != now.Year()) }

// span returns a period; with the date of its end if that differs.
func (l *language) span(from, to, now time.Time) string {
	if sameDay(from, to) {
		return l.dateOf(from, now) + " " + from.Format(clock) + "–" + to.Format(clock)
	}
	return l.dateOf(from, now) + " " + from.Format(clock) + " – " + l.dateOf(to, now) + " " + to.Format(clock)
}

// moment returns the time, with the date unless it is today.
func (l *language) moment(t, now time.Time) string {
	if sameDay(t, now) {
		return t.Format(clock)
	}
	return l.dateOf(t, now) + " " + t.Format(clock)
}

func sameDay(a, b time.Time) bool {
	return a.Year() == b.Year() && a.YearDay() == b.YearDay()
}

func (l *language) money(m dispatch.Money) string {
	if m.Currency == "KRW" {
		return fmt.Sprintf(l.won, grouped(m.Amount))
	}
	digits := minorDigits(m.Currency)
	unit := int64(math.Pow10(digits))
	s := firstRunes(m.Currency, 3) + " " + grouped(m.Amount/unit)
	if digits > 0 {
		s += fmt.Sprintf(".%0*d", digits, max(m.Amount%unit, -(m.Amount%unit)))
	}
	return s
}

// minorDigits returns the number of decimals of the currency's minor unit, by ISO 4217.
func minorDigits(currency string) int {
	switch currency {
	case "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF":
		return 0
	case "BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND":
		return 3
	case "CLF", "UYW":
		return 4
	}
	return 2
}

// grouped returns n with commas between thousands.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// firstRunes returns s on one line, cut to n runes.
func firstRunes(s string, n int) string {
	s = oneLine(s)
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + ellipsis
}
