package fcm

import (
	"strconv"
	"time"

	"firebase.google.com/go/v4/messaging"
	lru "github.com/hashicorp/golang-lru/v2"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
)

// The notification channels that the app registers with Android; iOS groups by the same names.
const (
	offersChannel = "offers"
	jobsChannel   = "jobs"
)

const (
	// maxLife is the longest that FCM keeps a message for an offline device.
	maxLife = 28 * 24 * time.Hour
	// maxCollapseID is APNs' limit in bytes.
	maxCollapseID = 64
)

// rememberedTexts is how many texts a composer remembers: the pushes of one event have few different texts and come close together.
const rememberedTexts = 256

// composer turns pushes into messages. Safe for concurrent use.
type composer struct {
	zone            *time.Location
	korean, english *language
	texts           *lru.Cache[textKey, text]
}

func newComposer(zone *time.Location) (*composer, error) {
	texts, err := lru.New[textKey, text](rememberedTexts)
	return &composer{zone: zone, korean: korean(), english: english(), texts: texts}, err
}

// message returns p as a message of the SDK, with the settings of the device's platform, or of all platforms for a topic. A
// visible push whose type has no text is sent as a silent one.
func (c *composer) message(p *outbox.Push, now time.Time) *messaging.Message {
	m := &messaging.Message{Token: p.Device.PushToken, Topic: p.Topic, Data: data(p)}
	shown := text{}
	if !p.Silent {
		shown = c.text(p, now)
	}
	e := newEnvelope(p, now)
	e.visible = shown != text{}
	if e.visible {
		m.Notification = &messaging.Notification{Title: shown.title, Body: shown.body}
	}
	everywhere := p.Topic != ""
	switch p.Device.Platform {
	case dispatch.Android, dispatch.IOS, dispatch.Web:
	default:
		everywhere = true
	}
	if everywhere || p.Device.Platform == dispatch.Android {
		m.Android = e.android()
	}
	if everywhere || p.Device.Platform == dispatch.IOS {
		m.APNS = e.apns()
	}
	if everywhere || p.Device.Platform == dispatch.Web {
		m.Webpush = e.webpush()
	}
	return m
}

// data returns the data for the app. It identifies a push that arrives twice, and does not name the winner.
func data(p *outbox.Push) map[string]string {
	return map[string]string{
		"event_id":        string(p.Event),
		"notification_id": string(p.ID),
		"type":            string(p.Type),
		"dispatch_id":     string(p.Dispatch.ID),
		"round":           strconv.Itoa(p.Round),
		"opens_at":        dispatch.WireTime(p.Dispatch.OpensAt),
		"expires_at":      dispatch.WireTime(p.Dispatch.ExpiresAt),
	}
}

// envelope holds the settings of a message's delivery.
type envelope struct {
	visible bool
	offer   bool
	tag     string // on a device, a notification replaces an earlier one with the same tag
	channel string
	until   time.Time     // not before now
	life    time.Duration // until then, in whole seconds
}

func newEnvelope(p *outbox.Push, now time.Time) envelope {
	e := envelope{offer: p.Type.IsOffer(), tag: string(p.Dispatch.ID), channel: jobsChannel}
	if e.offer {
		e.channel = offersChannel
	}
	life := min(max(p.UsefulUntil.Sub(now), 0), maxLife)
	e.until, e.life = now.Add(life), life.Truncate(time.Second)
	return e
}

func (e envelope) android() *messaging.AndroidConfig {
	if !e.visible {
		// FCM deprioritizes apps that send high-priority messages without showing them.
		return &messaging.AndroidConfig{Priority: "normal", TTL: &e.life}
	}
	return &messaging.AndroidConfig{
		Priority: "high", TTL: &e.life,
		Notification: &messaging.AndroidNotification{Tag: e.tag, ChannelID: e.channel},
	}
}

func (e envelope) apns() *messaging.APNSConfig {
	headers := map[string]string{"apns-expiration": strconv.FormatInt(e.until.Unix(), 10)}
	if !e.visible {
		headers["apns-push-type"], headers["apns-priority"] = "background", "5"
		return &messaging.APNSConfig{
			Headers: headers, Payload: &messaging.APNSPayload{Aps: &messaging.Aps{ContentAvailable: true}},
		}
	}
	headers["apns-push-type"], headers["apns-priority"] = "alert", "10"
	headers["apns-collapse-id"] = e.tag
	if len(e.tag) > maxCollapseID {
		headers["apns-collapse-id"] = e.tag[:maxCollapseID]
	}
	aps := &messaging.Aps{Sound: "default", ThreadID: e.channel}
	if e.offer {
		aps.CustomData = map[string]any{"interruption-level": "time-sensitive"}
	}
	return &messaging.APNSConfig{Headers: headers, Payload: &messaging.APNSPayload{Aps: aps}}
}

func (e envelope) webpush() *messaging.WebpushConfig {
	headers := map[string]string{"TTL": strconv.FormatInt(int64(e.life/time.Second), 10), "Urgency": "normal"}
	if !e.visible {
		return &messaging.WebpushConfig{Headers: headers}
	}
	headers["Urgency"] = "high"
	// Without renotify a browser replaces a notification of the same tag without a sound.
	return &messaging.WebpushConfig{
		Headers: headers, Notification: &messaging.WebpushNotification{Tag: e.tag, Renotify: true},
	}
}
