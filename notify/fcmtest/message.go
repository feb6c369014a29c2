package fcmtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// FCM's limits.
const (
	maxMessage      = 64 << 10 // bytes of a request; FCM's own is not documented
	maxPayload      = 4096     // bytes of data and text
	maxTopicPayload = 2048
	maxTTL          = 28 * 24 * time.Hour
	maxCollapseID   = 64
)

// envelope is the body of messages:send, without the fields that fcmtest ignores.
type envelope struct {
	ValidateOnly bool     `json:"validate_only"`
	Message      *message `json:"message"`
}

type message struct {
	Token        string            `json:"token"`
	Topic        string            `json:"topic"`
	Condition    string            `json:"condition"`
	Data         map[string]string `json:"data"`
	Notification text              `json:"notification"`
	Android      struct {
		TTL          string            `json:"ttl"`
		Priority     string            `json:"priority"`
		Data         map[string]string `json:"data"`
		Notification text              `json:"notification"`
	} `json:"android"`
	APNS struct {
		Headers map[string]string `json:"headers"`
		Payload struct {
			Aps struct {
				Alert alert `json:"alert"`
			} `json:"aps"`
		} `json:"payload"`
	} `json:"apns"`
	Webpush struct {
		Headers      map[string]string `json:"headers"`
		Notification text              `json:"notification"`
	} `json:"webpush"`
}

// text is the text of a notification, in any of the places for it.
type text struct {
	Title    string `json:"title"`
	Body     string `json:"body"`
	TitleKey string `json:"title_loc_key"`
	BodyKey  string `json:"body_loc_key"`
	Tag      string `json:"tag"`
}

// alert is APNs': a string, or an object with other names than Android's.
type alert struct{ text }

func (a *alert) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &a.Body)
	}
	var o struct {
		Title    string `json:"title"`
		Body     string `json:"body"`
		TitleKey string `json:"title-loc-key"`
		BodyKey  string `json:"loc-key"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	a.text = text{Title: o.Title, Body: o.Body, TitleKey: o.TitleKey, BodyKey: o.BodyKey}
	return nil
}

// title returns the title that the phone shows, or the key of a localized one; body does the same for the body.
func (m *message) title() string {
	n, a, i, w := &m.Notification, &m.Android.Notification, &m.APNS.Payload.Aps.Alert, &m.Webpush.Notification
	return cmp.Or(a.Title, a.TitleKey, n.Title, i.Title, i.TitleKey, w.Title)
}

func (m *message) body() string {
	n, a, i, w := &m.Notification, &m.Android.Notification, &m.APNS.Payload.Aps.Alert, &m.Webpush.Notification
	return cmp.Or(a.Body, a.BodyKey, n.Body, i.Body, i.BodyKey, w.Body)
}

// silent reports whether the phone shows nothing.
func (m *message) silent() bool { return m.title() == "" && m.body() == "" }

// tag returns the tag, by which a notification replaces an earlier one.
func (m *message) tag() string {
	return cmp.Or(m.Android.Notification.Tag, header(m.APNS.Headers, "apns-collapse-id"), m.Webpush.Notification.Tag)
}

// data returns the app's data.
func (m *message) data() map[string]string {
	if len(m.Android.Data) > 0 {
		return m.Android.Data
	}
	return m.Data
}

// until returns how long the message is kept for an offline phone.
func (m *message) until(at time.Time) time.Time {
	if ttl, err := time.ParseDuration(m.Android.TTL); err == nil {
		return at.Add(ttl)
	}
	if s, err := strconv.ParseInt(header(m.APNS.Headers, "apns-expiration"), 10, 64); err == nil {
		return time.Unix(s, 0)
	}
	if s, err := strconv.ParseInt(header(m.Webpush.Headers, "TTL"), 10, 32); err == nil {
		return at.Add(time.Duration(s) * time.Second)
	}
	return at.Add(maxTTL)
}

func header(h map[string]string, name string) string {
	for k, v := range h {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	return ""
}

// parse returns the message, which is never nil, and the reason why FCM refuses it, nil for none.
func parse(body []byte) (m *message, validateOnly bool, _ *refusal) {
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return &message{}, false, invalid("message", "Invalid JSON payload received. "+err.Error())
	}
	if e.Message == nil {
		return &message{}, e.ValidateOnly, invalid("message", "Message is not set.")
	}
	return e.Message, e.ValidateOnly, e.Message.check()
}

func (m *message) check() *refusal {
	targets := 0
	for _, target := range []string{m.Token, m.Topic, m.Condition} {
		if target != "" {
			targets++
		}
	}
	switch {
	case targets == 0:
		return invalid("message", "Recipient of the message is not set.")
	case targets > 1:
		return invalid("message", "Invalid JSON payload received. oneof field 'target' is already set.")
	case m.Condition != "":
		return invalid("message.condition", "fcmtest does not model conditions.")
	case m.Token != "" && malformed(m.Token):
		return invalid("message.token", "The registration token is not a valid FCM registration token")
	case m.Topic != "" && !topicName(m.Topic):
		return invalid("message.topic", "Invalid topic name")
	}
	if bad := m.checkData(); bad != nil {
		return bad
	}
	return m.checkDelivery()
}

func (m *message) checkData() *refusal {
	size, limit := 0, maxPayload
	if m.Topic != "" {
		limit = maxTopicPayload
	}
	for _, data := range []map[string]string{m.Data, m.Android.Data} {
		for key := range data {
			if reserved(key) {
				return invalid("message.data", "Invalid data payload key: "+key)
			}
		}
	}
	for key, value := range m.data() {
		size += len(key) + len(value)
	}
	if size += len(m.title()) + len(m.body()); size > limit {
		return invalid("message", fmt.Sprintf("Message is too big: %d bytes of %d.", size, limit))
	}
	return nil
}

func (m *message) checkDelivery() *refusal {
	if m.Android.TTL != "" {
		ttl, err := time.ParseDuration(m.Android.TTL)
		if err != nil || !strings.HasSuffix(m.Android.TTL, "s") || ttl < 0 || ttl > maxTTL {
			return invalid("message.android.ttl", "Invalid TTL: "+m.Android.TTL)
		}
	}
	if p := strings.ToLower(m.Android.Priority); p != "" && p != "normal" && p != "high" {
		return invalid("message.android.priority", "Invalid value at 'message.android.priority': "+m.Android.Priority)
	}
	if id := header(m.APNS.Headers, "apns-collapse-id"); len(id) > maxCollapseID {
		return invalid("message.apns.headers", fmt.Sprintf("apns-collapse-id has %d bytes, of at most %d.", len(id), maxCollapseID))
	}
	return nil
}

// malformed reports whether FCM would reject the form of a token. FCM documents no form for real tokens.
func malformed(token string) bool {
	return token == "" || token == "BAD" || strings.ContainsAny(token, " \t\r\n")
}

// reserved reports whether FCM reserves the data key for itself.
func reserved(key string) bool {
	return key == "from" || key == "message_type" || strings.HasPrefix(key, "google") || strings.HasPrefix(key, "gcm")
}

func topicName(name string) bool {
	return name != "" && len(name) <= 900 && !strings.ContainsFunc(name, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("-_.~%", r)
	})
}
