package fcm

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // Seoul
	"unicode/utf8"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/testkit"
	"firsttap/notify"
	"firsttap/notify/fcmtest"
)

func seoul(t testing.TB) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Asia/Seoul")
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// offered is the push of an offer to an Android phone, half a minute before noon. The dispatch has a winner by now.
func offered() outbox.Push {
	at := noon().Add(-30 * time.Second)
	return outbox.Push{
		ID: "ntf_1", Event: "evt_1", Type: dispatch.EventOpened, Round: 2, Driver: "drv_1",
		Device:  dispatch.Device{ID: "dev_1", Driver: "drv_1", Platform: dispatch.Android, PushToken: "a-push-token", Locale: "ko-KR"},
		EventAt: at, UsefulUntil: at.Add(10 * time.Minute),
		Dispatch: dispatch.Dispatch{
			ID: "dsp_1", ExternalID: "ours-1", Round: 3, Status: dispatch.Accepted,
			Terms: dispatch.Terms{
				Region: "서울 강남", VehicleClass: "45m", Site: dispatch.Site{Address: "테헤란로 1"},
				WorkStartsAt: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC), WorkEndsAt: time.Date(2026, 11, 22, 4, 30, 0, 0, time.UTC),
				Fee: dispatch.Money{Amount: 350_000, Currency: "KRW"}, Note: "a note",
			},
			Window: dispatch.Window{OpensAt: at, ExpiresAt: at.Add(10*time.Minute + 1500*time.Microsecond)},
			Claim:  &dispatch.Claim{ID: "clm_winner", Driver: "drv_winner", Round: 3},
		},
	}
}

// wire sends p, and returns the body of the request as FCM got it.
func wire(t testing.TB, server *fcmtest.Server, s *Sender, p outbox.Push) []byte {
	t.Helper()
	before := server.Requests()
	if o := s.Send(t.Context(), p); o.Class != notify.Sent {
		t.Fatalf("%+v of %+v", o, p)
	}
	if server.Requests() != before+1 {
		t.Fatalf("%d requests", server.Requests()-before)
	}
	sends := server.Sends()
	return sends[len(sends)-1].Body
}

var update = flag.Bool("update", false, "write testdata/messages.txt anew")

// TestMessages: testdata/messages.txt has each message as FCM gets it, and each text as a phone shows it. After a change on purpose,
// go test ./notify/fcm -run TestMessages -update writes it anew.
func TestMessages(t *testing.T) {
	silent := func(p *outbox.Push) { p.Silent = true }
	on := func(platform dispatch.Platform, also ...func(*outbox.Push)) func(*outbox.Push) {
		return func(p *outbox.Push) {
			p.Device.Platform = platform
			for _, change := range also {
				change(p)
			}
		}
	}
	usefulUntil := func(at time.Time) func(*outbox.Push) {
		return func(p *outbox.Push) { p.Silent, p.UsefulUntil = true, at }
	}
	job := func(p *outbox.Push) {
		p.Type, p.Dispatch.ID = dispatch.EventAccepted, dispatch.ID(strings.Repeat("d", 65))
	}
	work := func(from, to time.Time) func(*outbox.Push) {
		return func(p *outbox.Push) { p.Dispatch.WorkStartsAt, p.Dispatch.WorkEndsAt = from, to }
	}
	opens := func(at time.Time) func(*outbox.Push) { return func(p *outbox.Push) { p.Dispatch.OpensAt = at } }
	fee := func(amount int64, currency string) func(*outbox.Push) {
		return func(p *outbox.Push) { p.Dispatch.Fee = dispatch.Money{Amount: amount, Currency: currency} }
	}
	address := func(a string) func(*outbox.Push) { return func(p *outbox.Push) { p.Dispatch.Site.Address = a } }
	type change struct {
		name string
		make func(*outbox.Push)
	}
	server := simulate(t)
	s, made := senderTo(t, server.URL()), 0
	message := func(edit func(*outbox.Push)) []byte {
		p := offered()
		made++
		p.Dispatch.Version = made // another text
		edit(&p)
		return wire(t, server, s, p)
	}
	var got bytes.Buffer
	for _, c := range []change{
		{"android", on(dispatch.Android)},
		{"ios", on(dispatch.IOS)},
		{"web", on(dispatch.Web)},
		{"android, silent", silent},
		{"ios, silent", on(dispatch.IOS, silent)},
		{"web, silent", on(dispatch.Web, silent)},
		{"a topic", func(p *outbox.Push) { p.Silent, p.Device, p.Driver, p.Topic = true, dispatch.Device{}, "", "dsp_1" }},
		{"of no use any more", usefulUntil(noon().Add(-time.Hour))},
		{"never of no use", usefulUntil(noon().AddDate(1, 0, 0))},
		{"half a second is none", usefulUntil(noon().Add(1500 * time.Millisecond))},
		{"of a type without a text", func(p *outbox.Push) { p.Type = dispatch.EventDeclined }},
		{"about a job, which interrupts no focus mode", on(dispatch.Android, job)},
		{"about a job, ios, whose collapse id has 64 bytes at most", on(dispatch.IOS, job)},
	} {
		fmt.Fprintf(&got, "== %s\n", c.name)
		if err := json.Indent(&got, message(c.make), "", "\t"); err != nil {
			t.Fatal(err)
		}
		got.WriteString("\n\n")
	}
	texts := []change{}
	for _, is := range []dispatch.EventType{
		dispatch.EventOpened, dispatch.EventReopened, dispatch.EventUpdated, dispatch.EventAccepted, dispatch.EventUnassigned, dispatch.EventCanceled,
		dispatch.EventReminder,
	} {
		texts = append(texts, change{string(is), func(p *outbox.Push) { p.Type = is }})
	}
	begins, ends := offered().Dispatch.WorkStartsAt, offered().Dispatch.WorkEndsAt
	for _, c := range append(texts,
		change{"opens today", opens(noon().Add(5 * time.Minute))},
		change{"opens tomorrow", opens(noon().Add(20 * time.Hour))},
		change{"opens now", opens(noon())},
		change{"over night", work(noon().Add(10*time.Hour), noon().Add(16*time.Hour))},
		change{"next year", work(begins.AddDate(1, 0, 0), ends.AddDate(1, 0, 0))},
		change{"over New Year's night", work(noon().AddDate(0, 0, 40).Add(10*time.Hour), noon().AddDate(0, 0, 40).Add(16*time.Hour))},
		change{"a reminder of today's work", func(p *outbox.Push) {
			work(noon().Add(time.Hour), noon().Add(2*time.Hour))(p)
			p.Type = dispatch.EventReminder
		}},
		change{"a small fee", fee(999, "KRW")},
		change{"a large fee", fee(1_234_567, "KRW")},
		change{"dollars", fee(350_005, "USD")},
		change{"dinars", fee(1_500, "KWD")},
		change{"yen", fee(40_000, "JPY")},
		change{"two lines", address(" a\r\n\tb\x00 ")},
		change{"like a mark", address("{fee}")},
		change{"no address", address("")},
		change{"a long address", address(strings.Repeat("가", 121))},
		change{"an address that fits", address(strings.Repeat("가", 120))},
	) {
		for _, locale := range []string{"ko", "en-GB"} {
			shown := notification(t, message(func(p *outbox.Push) { c.make(p); p.Device.Locale = locale }))
			fmt.Fprintf(&got, "== %s, %s\n%s\n%s\n\n", c.name, locale, shown["title"], shown["body"])
		}
	}
	const file = "testdata/messages.txt"
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "the messages", string(want), got.String())
}

// A sender that has sent one push about a dispatch sends the next with the text that a new sender would use.
func TestTextsOfOneSender(t *testing.T) {
	server, now := simulate(t), noon()
	clock := func(o *Options) { o.Now = func() time.Time { return now } }
	s, p := senderTo(t, server.URL(), clock), offered()
	var before map[string]string
	for _, change := range []struct {
		what string
		make func()
	}{
		{"the opening", func() { p.Dispatch.OpensAt = noon().Add(time.Hour) }},
		{"the language", func() { p.Device.Locale = "en" }},
		{"the version", func() { p.Dispatch.Version, p.Dispatch.Site.Address = 2, "테헤란로 2" }},
		{"the same version at another time", func() { p.Dispatch.UpdatedAt, p.Dispatch.Site.Address = noon(), "테헤란로 3" }},
		{"the dispatch", func() { p.Dispatch.ID, p.Dispatch.Site.Address = "dsp_2", "테헤란로 4" }},
		{"the offer's opening", func() { now = p.Dispatch.OpensAt }},
		{"the type", func() { p.Type = dispatch.EventReminder }},
		{"the day, at Seoul's midnight", func() { now = noon().Add(12 * time.Hour) }},
	} {
		change.make()
		message := wire(t, server, s, p)
		testkit.Equal(t, "the message after a change of "+change.what, string(wire(t, server, senderTo(t, server.URL(), clock), p)), string(message))
		got := notification(t, message)
		if maps.Equal(got, before) {
			t.Errorf("the change of %s changes no text", change.what)
		}
		before = got
	}
}

// notification returns the title and the body that the message shows.
func notification(t *testing.T, body []byte) map[string]string {
	t.Helper()
	var request struct {
		Message struct{ Notification map[string]string }
	}
	if err := json.Unmarshal(body, &request); err != nil || len(request.Message.Notification) != 2 {
		t.Fatalf("%v: %s", err, body)
	}
	return request.Message.Notification
}

func TestLocales(t *testing.T) {
	for locale, korean := range map[string]bool{
		"": true, "ko": true, "ko-KR": true, "KO": true, "ko_KR": true, "ko-Kore-KR": true,
		"en": false, "en-US": false, "kok": false, "kok-IN": false, "vi": false, "?": false,
	} {
		testkit.Equal(t, fmt.Sprintf("%q is Korean", locale), korean, isKorean(locale))
	}
}

// Every visible push has a text.
func TestVisibleMessagesHaveAText(t *testing.T) {
	server := simulate(t)
	s := senderTo(t, server.URL())
	for _, is := range []dispatch.EventType{
		dispatch.EventCreated, dispatch.EventOpened, dispatch.EventAccepted, dispatch.EventTaken, dispatch.EventDeclined,
		dispatch.EventWithdrawn, dispatch.EventReopened, dispatch.EventUnassigned, dispatch.EventUpdated, dispatch.EventExpired,
		dispatch.EventCanceled, dispatch.EventStarted, dispatch.EventCompleted, dispatch.EventReminder,
	} {
		for _, telling := range is.Deliveries() {
			for _, locale := range []string{"ko", "en"} {
				p := offered()
				p.Type, p.Silent, p.Device.Locale = telling.Type, telling.Silent, locale
				p.Device.PushToken = fmt.Sprintf("%s-%s-%v-%s", is, telling.Type, telling.Silent, locale)
				wire(t, server, s, p)
				visible := server.Device(p.Device.PushToken).Visible
				if (len(visible) == 0) != telling.Silent {
					t.Errorf("%s in %s, silent %v: %+v", telling.Type, locale, telling.Silent, visible)
				}
				for _, n := range visible {
					if n.Title == "" || n.Body == "" || strings.Contains(n.Title+n.Body, "{") {
						t.Errorf("%s in %s: %+v", telling.Type, locale, n)
					}
				}
			}
		}
	}
}

// filled is a push whose dispatch is as large as the database allows, its fields made of filler.
func filled(filler string, is dispatch.EventType, platform dispatch.Platform) outbox.Push {
	p := offered()
	p.Type, p.Device.Platform = is, platform
	fill := func(runes int) string { return string([]rune(strings.Repeat(filler, runes))[:runes]) }
	d := &p.Dispatch
	d.Region, d.VehicleClass, d.Site.Address, d.Note, d.ExternalID = fill(64), fill(64), fill(500), fill(2000), fill(128)
	d.Fee = dispatch.Money{Amount: -1 << 63, Currency: fill(3)}
	d.OpensAt, d.WorkEndsAt = noon().AddDate(0, 0, 1), noon().AddDate(0, 1, 9)
	for _, id := range []*string{(*string)(&p.ID), (*string)(&p.Event), (*string)(&d.ID)} {
		*id = "ntf_" + strings.Repeat("v", 36)
	}
	p.Device.PushToken = strings.Repeat("t", 1024)
	return p
}

func checkSize(t testing.TB, server *fcmtest.Server, s *Sender, p outbox.Push) {
	t.Helper()
	body := wire(t, server, s, p)
	// FCM does not count the token, nor how JSON writes it; this does with the latter, and so has room.
	if size := len(body) - len(p.Device.PushToken); size > 4096 || p.Topic != "" && size > 2048 {
		t.Errorf("%d bytes of %s to %s: %.300s", size, p.Type, p.Device.Platform, body)
	}
	if !utf8.Valid(body) {
		t.Errorf("not UTF-8: %q", body)
	}
	if strings.Contains(string(body), "winner") {
		t.Errorf("the message names the winner: %s", body)
	}
}

func TestSize(t *testing.T) {
	server := simulate(t)
	s := senderTo(t, server.URL())
	for _, filler := range []string{"a", "가", "🚚", `"`, "<", "\x01", " \x01", "\u2028", "\xff", "a\u0301", "{what}", "\n"} {
		for _, is := range []dispatch.EventType{
			dispatch.EventOpened, dispatch.EventReopened, dispatch.EventUpdated, dispatch.EventAccepted,
			dispatch.EventUnassigned, dispatch.EventCanceled, dispatch.EventReminder,
		} {
			for _, platform := range []dispatch.Platform{dispatch.Android, dispatch.IOS, dispatch.Web, "toaster"} {
				for _, locale := range []string{"ko", "en"} {
					p := filled(filler, is, platform)
					p.Device.Locale = locale
					checkSize(t, server, s, p)
				}
			}
			p := filled(filler, is, "")
			p.Silent, p.Topic, p.Device = true, "dsp_1", dispatch.Device{}
			checkSize(t, server, s, p)
		}
	}
}

func FuzzSize(f *testing.F) {
	server := simulate(f)
	s := senderTo(f, server.URL())
	f.Add("a", "ko", int64(350_000), "KRW")
	f.Add("\u2028<", "en", int64(-1), "\xff\xff")
	f.Add("🚚\x00", "", int64(1)<<62, "")
	f.Fuzz(func(t *testing.T, filler, locale string, fee int64, currency string) {
		if filler == "" {
			return
		}
		p := filled(filler, dispatch.EventUpdated, dispatch.IOS)
		p.Device.Locale, p.Dispatch.Fee = locale, dispatch.Money{Amount: fee, Currency: currency}
		checkSize(t, server, s, p)
	})
}
