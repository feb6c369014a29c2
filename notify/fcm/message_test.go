package fcm

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // Seoul
	"unicode/utf8"

	"firsttap/dispatch"
	"firsttap/notify"
	"firsttap/notify/fcmtest"
	"firsttap/outbox"
	"firsttap/testkit"
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

const (
	wantData = `"data": {
		"event_id": "evt_1", "notification_id": "ntf_1", "type": "dispatch.opened", "dispatch_id": "dsp_1", "round": "2",
		"opens_at": "2026-11-21T02:59:30.000Z", "expires_at": "2026-11-21T03:09:30.001Z"}`
	wantNotification = `"notification": {"title": "새 배차 · 서울 강남 45m", "body": "11월 22일(일) 09:00–13:30 · 350,000원\n테헤란로 1"}`
)

func TestWireForm(t *testing.T) {
	silent := func(p *outbox.Push) { p.Silent = true }
	for name, c := range map[string]struct {
		edit func(*outbox.Push)
		want string
	}{
		"android": {func(*outbox.Push) {}, `{"message": {"token": "a-push-token", ` + wantData + `, ` + wantNotification + `,
			"android": {"priority": "high", "ttl": "570s", "notification": {"tag": "dsp_1", "channel_id": "offers"}}}}`},
		"ios": {func(p *outbox.Push) { p.Device.Platform = dispatch.IOS }, `{"message": {"token": "a-push-token", ` + wantData + `, ` + wantNotification + `,
			"apns": {"headers": {"apns-push-type": "alert", "apns-priority": "10", "apns-expiration": "1795230570", "apns-collapse-id": "dsp_1"},
				"payload": {"aps": {"sound": "default", "thread-id": "offers", "interruption-level": "time-sensitive"}}}}}`},
		"web": {func(p *outbox.Push) { p.Device.Platform = dispatch.Web }, `{"message": {"token": "a-push-token", ` + wantData + `, ` + wantNotification + `,
			"webpush": {"headers": {"TTL": "570", "Urgency": "high"}, "notification": {"tag": "dsp_1", "renotify": true}}}}`},
		"android, silent": {silent, `{"message": {"token": "a-push-token", ` + wantData + `,
			"android": {"priority": "normal", "ttl": "570s"}}}`},
		"ios, silent": {func(p *outbox.Push) { p.Device.Platform, p.Silent = dispatch.IOS, true }, `{"message": {"token": "a-push-token", ` + wantData + `,
			"apns": {"headers": {"apns-push-type": "background", "apns-priority": "5", "apns-expiration": "1795230570"},
				"payload": {"aps": {"content-available": 1}}}}}`},
		"web, silent": {func(p *outbox.Push) { p.Device.Platform, p.Silent = dispatch.Web, true }, `{"message": {"token": "a-push-token", ` + wantData + `,
			"webpush": {"headers": {"TTL": "570", "Urgency": "normal"}}}}`},
		"topic": {func(p *outbox.Push) {
			p.Silent, p.Device, p.Driver, p.Topic = true, dispatch.Device{}, "", "dsp_1"
		}, `{"message": {"topic": "dsp_1", ` + wantData + `,
			"android": {"priority": "normal", "ttl": "570s"},
			"apns": {"headers": {"apns-push-type": "background", "apns-priority": "5", "apns-expiration": "1795230570"},
				"payload": {"aps": {"content-available": 1}}},
			"webpush": {"headers": {"TTL": "570", "Urgency": "normal"}}}}`},
		"of no use any more": {func(p *outbox.Push) { p.Silent, p.UsefulUntil = true, noon().Add(-time.Hour) }, `{"message": {"token": "a-push-token", ` + wantData + `,
			"android": {"priority": "normal", "ttl": "0s"}}}`},
		"never of no use": {func(p *outbox.Push) { p.Silent, p.UsefulUntil = true, noon().AddDate(1, 0, 0) }, `{"message": {"token": "a-push-token", ` + wantData + `,
			"android": {"priority": "normal", "ttl": "2419200s"}}}`},
		"half a second is none": {func(p *outbox.Push) { p.Silent, p.UsefulUntil = true, noon().Add(1500*time.Millisecond) }, `{"message": {"token": "a-push-token", ` + wantData + `,
			"android": {"priority": "normal", "ttl": "1s"}}}`},
		"of a type without a text": {func(p *outbox.Push) { p.Type = dispatch.EventDeclined }, `{"message": {"token": "a-push-token", ` +
			strings.Replace(wantData, "opened", "declined", 1) + `, "android": {"priority": "normal", "ttl": "570s"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			server := simulate(t)
			p := offered()
			c.edit(&p)
			var got, want any
			if err := json.Unmarshal(wire(t, server, senderTo(t, server.URL()), p), &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			testkit.Equal(t, "the message", want, got)
		})
	}
}

// A push about a driver's own job has another notification channel than an offer, and does not interrupt a focus mode. A
// collapse id has 64 bytes at most.
func TestWireFormOfAJob(t *testing.T) {
	server := simulate(t)
	s := senderTo(t, server.URL())
	p := offered()
	p.Type, p.Dispatch.ID = dispatch.EventAccepted, dispatch.ID(strings.Repeat("d", 65))
	if got := string(wire(t, server, s, p)); !strings.Contains(got, `"channel_id":"jobs"`) {
		t.Error(got)
	}
	p.Device.Platform = dispatch.IOS
	if got := string(wire(t, server, s, p)); strings.Contains(got, "interruption-level") || !strings.Contains(got, `"thread-id":"jobs"`) ||
		!strings.Contains(got, `"apns-collapse-id":"`+strings.Repeat("d", 64)+`"`) {
		t.Error(got)
	}
}

func TestTexts(t *testing.T) {
	const what, english = "서울 강남 45m · 11월 22일(일) 09:00–13:30", "서울 강남 45m · Sun 22 Nov 09:00–13:30"
	for _, c := range []struct {
		is     dispatch.EventType
		locale string
		title  string
		body   string
	}{
		{dispatch.EventOpened, "ko", "새 배차 · 서울 강남 45m", "11월 22일(일) 09:00–13:30 · 350,000원\n테헤란로 1"},
		{dispatch.EventOpened, "en", "New job · 서울 강남 45m", "Sun 22 Nov 09:00–13:30 · KRW 350,000\n테헤란로 1"},
		{dispatch.EventReopened, "ko", "다시 열린 배차 · 서울 강남 45m", "11월 22일(일) 09:00–13:30 · 350,000원\n테헤란로 1"},
		{dispatch.EventReopened, "en", "Open again · 서울 강남 45m", "Sun 22 Nov 09:00–13:30 · KRW 350,000\n테헤란로 1"},
		{dispatch.EventUpdated, "ko", "변경된 배차 · 서울 강남 45m", "11월 22일(일) 09:00–13:30 · 350,000원\n테헤란로 1"},
		{dispatch.EventUpdated, "en", "Job changed · 서울 강남 45m", "Sun 22 Nov 09:00–13:30 · KRW 350,000\n테헤란로 1"},
		{dispatch.EventAccepted, "ko", "배차 확정", what + " · 350,000원\n테헤란로 1"},
		{dispatch.EventAccepted, "en", "The job is yours", english + " · KRW 350,000\n테헤란로 1"},
		{dispatch.EventUnassigned, "ko", "배차 해제", what + "\n배차가 해제되었습니다"},
		{dispatch.EventUnassigned, "en", "Job unassigned", english + "\nThis job is no longer yours"},
		{dispatch.EventCanceled, "ko", "배차 취소", what + "\n배차가 취소되었습니다"},
		{dispatch.EventCanceled, "en", "Job canceled", english + "\nThis job has been canceled"},
		{dispatch.EventReminder, "ko", "작업 알림 · 11월 22일(일) 09:00 시작", what + "\n테헤란로 1"},
		{dispatch.EventReminder, "en", "Job starts Sun 22 Nov 09:00", english + "\n테헤란로 1"},
	} {
		t.Run(string(c.is)+" "+c.locale, func(t *testing.T) {
			p := offered()
			p.Type, p.Device.Locale = c.is, c.locale
			wantText(t, p, c.title, c.body)
		})
	}
}

func wantText(t *testing.T, p outbox.Push, title, body string) {
	t.Helper()
	server := simulate(t)
	wire(t, server, senderTo(t, server.URL()), p)
	shown := server.Device(p.Device.PushToken).Visible
	if len(shown) != 1 {
		t.Fatalf("shows %+v", shown)
	}
	testkit.Equal(t, "title and body", []string{title, body}, []string{shown[0].Title, shown[0].Body})
}

func TestTextsVary(t *testing.T) {
	const title, address = "New job · 서울 강남 45m", "\n테헤란로 1"
	for name, c := range map[string]struct {
		edit  func(*outbox.Push)
		title string
		body  string
	}{
		"opens today": {func(p *outbox.Push) { p.Dispatch.OpensAt = noon().Add(5 * time.Minute) }, title,
			"Sun 22 Nov 09:00–13:30 · KRW 350,000" + address + "\nOpens 12:05"},
		"opens today, in Korean": {func(p *outbox.Push) { p.Dispatch.OpensAt, p.Device.Locale = noon().Add(5*time.Minute), "ko" },
			"새 배차 · 서울 강남 45m", "11월 22일(일) 09:00–13:30 · 350,000원" + address + "\n12:05부터 수락할 수 있습니다"},
		"opens tomorrow": {func(p *outbox.Push) { p.Dispatch.OpensAt = noon().Add(20 * time.Hour) }, title,
			"Sun 22 Nov 09:00–13:30 · KRW 350,000" + address + "\nOpens Sun 22 Nov 08:00"},
		"opens now": {func(p *outbox.Push) { p.Dispatch.OpensAt = noon() }, title,
			"Sun 22 Nov 09:00–13:30 · KRW 350,000" + address},
		"over night": {func(p *outbox.Push) {
			p.Dispatch.WorkStartsAt, p.Dispatch.WorkEndsAt = noon().Add(10*time.Hour), noon().Add(16*time.Hour)
		}, title, "Sat 21 Nov 22:00 – Sun 22 Nov 04:00 · KRW 350,000" + address},
		"next year": {func(p *outbox.Push) {
			p.Dispatch.WorkStartsAt, p.Dispatch.WorkEndsAt = p.Dispatch.WorkStartsAt.AddDate(1, 0, 0), p.Dispatch.WorkEndsAt.AddDate(1, 0, 0)
		}, title, "Mon 22 Nov 2027 09:00–13:30 · KRW 350,000" + address},
		"next year, in Korean": {func(p *outbox.Push) {
			p.Dispatch.WorkStartsAt, p.Dispatch.WorkEndsAt = p.Dispatch.WorkStartsAt.AddDate(1, 0, 0), p.Dispatch.WorkEndsAt.AddDate(1, 0, 0)
			p.Device.Locale = "ko"
		}, "새 배차 · 서울 강남 45m", "2027년 11월 22일(월) 09:00–13:30 · 350,000원" + address},
		"over New Year's night": {func(p *outbox.Push) {
			p.Dispatch.WorkStartsAt, p.Dispatch.WorkEndsAt = noon().AddDate(0, 0, 40).Add(10*time.Hour), noon().AddDate(0, 0, 40).Add(16*time.Hour)
		}, title, "Thu 31 Dec 22:00 – Fri 1 Jan 2027 04:00 · KRW 350,000" + address},
		"starts today": {func(p *outbox.Push) {
			p.Type, p.Dispatch.WorkStartsAt, p.Dispatch.WorkEndsAt = dispatch.EventReminder, noon().Add(time.Hour), noon().Add(2*time.Hour)
		}, "Job starts 13:00", "서울 강남 45m · Sat 21 Nov 13:00–14:00" + address},
		"small fee":   {func(p *outbox.Push) { p.Dispatch.Fee.Amount = 999 }, title, "Sun 22 Nov 09:00–13:30 · KRW 999" + address},
		"large fee":   {func(p *outbox.Push) { p.Dispatch.Fee.Amount = 1_234_567 }, title, "Sun 22 Nov 09:00–13:30 · KRW 1,234,567" + address},
		"dollars":     {func(p *outbox.Push) { p.Dispatch.Fee = dispatch.Money{Amount: 350_005, Currency: "USD"} }, title, "Sun 22 Nov 09:00–13:30 · USD 3,500.05" + address},
		"dinars":      {func(p *outbox.Push) { p.Dispatch.Fee = dispatch.Money{Amount: 1_500, Currency: "KWD"} }, title, "Sun 22 Nov 09:00–13:30 · KWD 1.500" + address},
		"yen":         {func(p *outbox.Push) { p.Dispatch.Fee = dispatch.Money{Amount: 40_000, Currency: "JPY"} }, title, "Sun 22 Nov 09:00–13:30 · JPY 40,000" + address},
		"two lines":   {func(p *outbox.Push) { p.Dispatch.Site.Address = " a\r\n\tb\x00 " }, title, "Sun 22 Nov 09:00–13:30 · KRW 350,000\na b"},
		"like a mark": {func(p *outbox.Push) { p.Dispatch.Site.Address = "{fee}" }, title, "Sun 22 Nov 09:00–13:30 · KRW 350,000\n{fee}"},
		"no address":  {func(p *outbox.Push) { p.Dispatch.Site.Address = "" }, title, "Sun 22 Nov 09:00–13:30 · KRW 350,000"},
		"long address": {func(p *outbox.Push) { p.Dispatch.Site.Address = strings.Repeat("가", 121) }, title,
			"Sun 22 Nov 09:00–13:30 · KRW 350,000\n" + strings.Repeat("가", 119) + "…"},
		"an address that fits": {func(p *outbox.Push) { p.Dispatch.Site.Address = strings.Repeat("가", 120) }, title,
			"Sun 22 Nov 09:00–13:30 · KRW 350,000\n" + strings.Repeat("가", 120)},
	} {
		t.Run(name, func(t *testing.T) {
			p := offered()
			p.Device.Locale = "en-GB"
			c.edit(&p)
			wantText(t, p, c.title, c.body)
		})
	}
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
		p := offered()
		p.Type, p.Device.Locale = dispatch.EventAccepted, locale
		server := simulate(t)
		testkit.Equal(t, fmt.Sprintf("%q is Korean", locale), korean, strings.Contains(string(wire(t, server, senderTo(t, server.URL()), p)), "배차 확정"))
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
