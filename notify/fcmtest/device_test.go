//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package fcmtest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"firebase.google.com/go/v4/messaging"

	"firsttap/internal/testkit"
	"firsttap/notify/fcmtest"
)

// screen describes the notifications that a phone shows.
func screen(d fcmtest.Device) []string {
	var lines []string
	for _, n := range d.Visible {
		lines = append(lines, fmt.Sprintf("%s %s %s/%d", n.Tag, n.Type, n.Dispatch, n.Round))
	}
	return lines
}

func untagged(m *messaging.Message) *messaging.Message {
	m.Android.Notification = nil
	return m
}

func TestPhone(t *testing.T) {
	opened := func(event string, round int) *messaging.Message { return offer("tok", event, round) }
	ended := func(typ, event string, round int) *messaging.Message {
		return silent("tok", typ, event, "dsp_1", round)
	}
	for name, c := range map[string]struct {
		sent       []*messaging.Message
		screen     []string
		duplicates int
		silent     int
	}{
		"an offer": {
			sent: []*messaging.Message{opened("e1", 1)}, screen: []string{"dsp_1 dispatch.opened dsp_1/1"},
		},
		"the later of a tag": {
			sent:   []*messaging.Message{opened("e1", 1), told("tok", "dispatch.updated", "e2", "dsp_1", 2)},
			screen: []string{"dsp_1 dispatch.updated dsp_1/2"},
		},
		"two tags, the latest last": {
			sent: []*messaging.Message{
				opened("e1", 1), told("tok", "dispatch.opened", "e2", "dsp_2", 1), told("tok", "dispatch.accepted", "e3", "dsp_1", 1),
			},
			screen: []string{"dsp_2 dispatch.opened dsp_2/1", "dsp_1 dispatch.accepted dsp_1/1"},
		},
		"no tag": {
			sent:   []*messaging.Message{untagged(opened("e1", 1)), untagged(opened("e2", 2))},
			screen: []string{" dispatch.opened dsp_1/1", " dispatch.opened dsp_1/2"},
		},
		"a duplicate with a tag": {
			sent: []*messaging.Message{opened("e1", 1), opened("e1", 1)}, screen: []string{"dsp_1 dispatch.opened dsp_1/1"},
			duplicates: 1,
		},
		"a duplicate without": {
			sent:       []*messaging.Message{untagged(opened("e1", 1)), untagged(opened("e1", 1))},
			screen:     []string{" dispatch.opened dsp_1/1", " dispatch.opened dsp_1/1"},
			duplicates: 1,
		},
		"one event, two types": {
			sent:   []*messaging.Message{opened("e1", 1), told("tok", "dispatch.accepted", "e1", "dsp_1", 1)},
			screen: []string{"dsp_1 dispatch.accepted dsp_1/1"},
		},
		"no event is no duplicate": {
			sent: []*messaging.Message{opened("", 1), opened("", 1)}, screen: []string{"dsp_1 dispatch.opened dsp_1/1"},
		},
		"taken":    {sent: []*messaging.Message{opened("e1", 1), ended("dispatch.taken", "e2", 1)}, silent: 1},
		"canceled": {sent: []*messaging.Message{opened("e1", 1), ended("dispatch.canceled", "e2", 1)}, silent: 1},
		"expired":  {sent: []*messaging.Message{opened("e1", 1), ended("dispatch.expired", "e2", 1)}, silent: 1},
		"taken twice": {
			sent:   []*messaging.Message{opened("e1", 1), ended("dispatch.taken", "e2", 1), ended("dispatch.taken", "e2", 1)},
			silent: 2, duplicates: 1,
		},
		"started is not an end": {
			sent:   []*messaging.Message{opened("e1", 1), ended("dispatch.started", "e2", 1)},
			screen: []string{"dsp_1 dispatch.opened dsp_1/1"}, silent: 1,
		},
		"a visible end is not one": {
			sent:   []*messaging.Message{opened("e1", 1), told("tok", "dispatch.canceled", "e2", "dsp_1", 1)},
			screen: []string{"dsp_1 dispatch.canceled dsp_1/1"},
		},
		"another dispatch is taken": {
			sent:   []*messaging.Message{opened("e1", 1), silent("tok", "dispatch.taken", "e2", "dsp_2", 1)},
			screen: []string{"dsp_1 dispatch.opened dsp_1/1"}, silent: 1,
		},
		"the end of an earlier round": {
			sent:   []*messaging.Message{opened("e1", 2), ended("dispatch.taken", "e2", 1)},
			screen: []string{"dsp_1 dispatch.opened dsp_1/2"}, silent: 1,
		},
		"the end first": {sent: []*messaging.Message{ended("dispatch.taken", "e2", 1), opened("e1", 1)}, silent: 1},
		"the end of a later round first": {
			sent: []*messaging.Message{ended("dispatch.taken", "e2", 2), ended("dispatch.taken", "e3", 1), opened("e1", 2)}, silent: 2,
		},
		"a round after the end": {
			sent:   []*messaging.Message{ended("dispatch.taken", "e2", 1), told("tok", "dispatch.reopened", "e3", "dsp_1", 2)},
			screen: []string{"dsp_1 dispatch.reopened dsp_1/2"}, silent: 1,
		},
		"other messages are shown after the end": {
			sent:   []*messaging.Message{ended("dispatch.taken", "e2", 1), told("tok", "dispatch.unassigned", "e3", "dsp_1", 1)},
			screen: []string{"dsp_1 dispatch.unassigned dsp_1/1"}, silent: 1,
		},
		"a duplicate of an ended offer": {
			sent:   []*messaging.Message{opened("e1", 1), ended("dispatch.taken", "e2", 1), opened("e1", 1)},
			silent: 1, duplicates: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, client := connect(t)
			for _, m := range c.sent {
				mustSend(t, client, m)
			}
			d := s.Device("tok")
			testkit.Equal(t, "the screen", c.screen, screen(d))
			if d.Received != len(c.sent) || d.Duplicates != c.duplicates || len(d.Silent) != c.silent {
				t.Errorf("%d received, %d duplicates, want %d; %d silent, want %d",
					d.Received, d.Duplicates, c.duplicates, len(d.Silent), c.silent)
			}
			if got, want := totals(s), [4]int{d.Received, d.Duplicates, len(d.Visible), 1}; got != want {
				t.Errorf("totals %v, want %v", got, want)
			}
		})
	}
}

// The platforms' different names for the same fields have the same effect on the phone.
func TestPlatforms(t *testing.T) {
	ios := func(alert *messaging.ApsAlert, plain string) *messaging.Message {
		return &messaging.Message{Token: "tok", APNS: &messaging.APNSConfig{
			Headers: map[string]string{"apns-collapse-id": "tag"},
			Payload: &messaging.APNSPayload{Aps: &messaging.Aps{Alert: alert, AlertString: plain}},
		}}
	}
	for name, c := range map[string]struct {
		message *messaging.Message
		want    fcmtest.Notification
	}{
		"android": {
			&messaging.Message{Token: "tok", Android: &messaging.AndroidConfig{
				Data:         map[string]string{"type": "x", "round": "3"},
				Notification: &messaging.AndroidNotification{Tag: "tag", Title: "title", Body: "body"},
			}},
			fcmtest.Notification{Tag: "tag", Title: "title", Body: "body", Type: "x", Round: 3},
		},
		"android by key": {
			&messaging.Message{Token: "tok", Android: &messaging.AndroidConfig{
				Notification: &messaging.AndroidNotification{TitleLocKey: "title", BodyLocKey: "body"},
			}},
			fcmtest.Notification{Title: "title", Body: "body"},
		},
		"ios":        {ios(&messaging.ApsAlert{Title: "title", Body: "body"}, ""), fcmtest.Notification{Tag: "tag", Title: "title", Body: "body"}},
		"ios by key": {ios(&messaging.ApsAlert{TitleLocKey: "title", LocKey: "body"}, ""), fcmtest.Notification{Tag: "tag", Title: "title", Body: "body"}},
		"ios plain":  {ios(nil, "body"), fcmtest.Notification{Tag: "tag", Body: "body"}},
		"web": {
			&messaging.Message{Token: "tok", Webpush: &messaging.WebpushConfig{
				Notification: &messaging.WebpushNotification{Tag: "tag", Title: "title", Body: "body"},
			}},
			fcmtest.Notification{Tag: "tag", Title: "title", Body: "body"},
		},
	} {
		s := listen(t)
		mustSend(t, dial(t, s), c.message)
		d := s.Device("tok")
		for i := range d.Visible {
			d.Visible[i].At = time.Time{}
		}
		testkit.Equal(t, name, fcmtest.Device{Visible: []fcmtest.Notification{c.want}, Received: 1}, d)
	}
}

// A phone that comes back gets the messages sent meanwhile whose ttl has not ended.
func TestOffline(t *testing.T) {
	for name, c := range map[string]struct {
		platform string
		away     time.Duration
		received int
	}{
		"no ttl":          {`"android":{}`, 27 * 24 * time.Hour, 1},
		"four weeks":      {`"android":{}`, 28 * 24 * time.Hour, 0},
		"ttl":             {`"android":{"ttl":"60s"}`, 59 * time.Second, 1},
		"elapsed":         {`"android":{"ttl":"60s"}`, 60 * time.Second, 0},
		"now or never":    {`"android":{"ttl":"0s"}`, 0, 0},
		"expiration":      {`"apns":{"headers":{"apns-expiration":"946684860"}}`, 59 * time.Second, 1}, // 2000-01-01 00:01
		"expired":         {`"apns":{"headers":{"apns-expiration":"946684860"}}`, 60 * time.Second, 0},
		"no expiration":   {`"apns":{"headers":{"apns-expiration":"0"}}`, 0, 0},
		"web":             {`"webpush":{"headers":{"TTL":"60"}}`, 59 * time.Second, 1},
		"web is over":     {`"webpush":{"headers":{"TTL":"60"}}`, 60 * time.Second, 0},
		"web, no waiting": {`"webpush":{"headers":{"TTL":"0"}}`, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) { // where it is 2000-01-01 00:00
				s := fcmtest.New()
				s.SetOffline("tok")
				body := `{"message":{"token":"tok","notification":{"title":"t"},` + c.platform + `}}`
				if status := sendRaw(t, s, body); status != 200 {
					t.Fatal(status)
				}
				if got := s.Device("tok"); got.Received != 0 {
					t.Error("got it while offline")
				}
				time.Sleep(c.away)
				s.SetOnline("tok")
				d := s.Device("tok")
				if got := totals(s); got != [4]int{c.received, 0, c.received, c.received} || d.Received != c.received {
					t.Errorf("received %d, in total %v", d.Received, got)
				}
				if c.received == 1 && !d.Visible[0].At.Equal(time.Now()) {
					t.Errorf("at %v", d.Visible[0].At)
				}
				s.SetOnline("tok")
				if status := sendRaw(t, s, body); status != 200 || s.Device("tok").Received != c.received+1 {
					t.Errorf("now that it is back: %+v", s.Device("tok"))
				}
			})
		})
	}
}

// FCM keeps 100 messages for an offline phone; one more and it drops all. Messages with a ttl of 0 do not count.
func TestOfflineForLong(t *testing.T) {
	const nowOrNever = `{"message":{"token":"tok","notification":{"title":"t"},"android":{"ttl":"0s"}}}`
	for sent, want := range map[int]int{100: 100, 101: 1, 105: 5} {
		s := fcmtest.New()
		s.SetOffline("tok")
		sendRaw(t, s, slices.Repeat([]string{rawOffer, nowOrNever}, sent)...)
		s.SetOnline("tok")
		testkit.Equal(t, fmt.Sprintf("received of %d", sent), want, s.Device("tok").Received)
	}
}

func TestSilentAreBounded(t *testing.T) {
	s := fcmtest.New()
	for i := range 40 {
		sendRaw(t, s, fmt.Sprintf(`{"message":{"token":"tok","data":{"event_id":"e%d"}}}`, i))
	}
	d := s.Device("tok")
	if len(d.Silent) != 32 || d.Silent[0].Event != "e8" || d.Silent[31].Event != "e39" || d.Received != 40 {
		t.Errorf("%d silent of %d: %+v", len(d.Silent), d.Received, d.Silent)
	}
}

// Of equal messages sent concurrently, all but one are duplicates, and the totals are the sums over the phones. Another server
// has nothing of them.
func TestTogether(t *testing.T) {
	const n = 64
	s, client := connect(t)
	other := listen(t)
	names := make([]string, n)
	testkit.Together(n, func(i int) {
		token := fmt.Sprint("tok", i%4)
		names[i], _ = client.Send(t.Context(), to(token))
	})
	unique := map[string]bool{}
	for _, name := range names {
		unique[name] = true
	}
	if len(unique) != n || unique[""] {
		t.Errorf("%d names of %d", len(unique), n)
	}
	if got := totals(s); got != [4]int{n, n - 4, 4, 4} || totals(other) != [4]int{} || other.Requests() != 0 {
		t.Errorf("totals %v, and the other's %v", got, totals(other))
	}
	testkit.Equal(t, "tokens", []string{"tok0", "tok1", "tok2", "tok3"}, s.Tokens())
}

// When the limit is reached, further messages are refused, not silently dropped.
func TestFull(t *testing.T) {
	s := fcmtest.New()
	s.Limit(8)
	answers := map[int]int{}
	for i := range 20 {
		answers[sendRaw(t, s, fmt.Sprintf(`{"message":{"token":"tok%d","notification":{"title":"t"}}}`, i))]++
	}
	if answers[200] != 4 || answers[500] != 16 || totals(s) != [4]int{4, 0, 4, 4} { // a phone and a notification each
		t.Errorf("answers %v, totals %v", answers, totals(s))
	}
}
