package handler

import (
	"encoding/json"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/webhook"
	"firsttap/notify/stream"
)

// webhookBodyView is the body of a delivery.
type webhookBodyView struct {
	Type      dispatch.EventType `json:"type"`
	Timestamp timestamp          `json:"timestamp"`
	Data      any                `json:"data"`
}

// webhookDataView is an event as the admins' stream sends it, and the dispatch as an admin reads it.
type webhookDataView struct {
	stream.AdminEvent
	Dispatch dispatchView `json:"dispatch"`
}

// WebhookBody returns the body of a delivery of the event of d.
func WebhookBody(d dispatch.Dispatch, e dispatch.Event) []byte {
	return encodeWebhookBody(e.Type, e.At, webhookDataView{stream.NewAdminEvent(d, e), viewForAdmin(d)})
}

// webhookTestBody returns the body of a test delivery.
func webhookTestBody(event dispatch.EventID, at time.Time) []byte {
	return encodeWebhookBody(webhook.TestEvent, at, map[string]dispatch.EventID{"event_id": event})
}

func encodeWebhookBody(t dispatch.EventType, at time.Time, data any) []byte {
	body, err := json.Marshal(webhookBodyView{Type: t, Timestamp: timestamp(at), Data: data})
	if err != nil {
		panic(err) // strings and finite numbers
	}
	return body
}
