package service

import (
	"context"
	"errors"
	"testing"
	"time"

	"firsttap/dispatch/webhook"
	"firsttap/internal/testkit"
)

func TestWebhookChange(t *testing.T) {
	url, none, paused := "https://example.com/2", "", webhook.Paused
	failing := time.UnixMicro(1)
	before := webhook.Endpoint{URL: "https://example.com/1", Events: []string{"*"}, Description: "Billing", Status: webhook.Active, Version: 3, FailingSince: &failing}
	for what, c := range map[string]struct {
		change WebhookChange
		want   func(*webhook.Endpoint)
	}{
		"nothing":      {WebhookChange{}, func(*webhook.Endpoint) {}},
		"the version":  {WebhookChange{Version: 3}, func(*webhook.Endpoint) {}},
		"the URL":      {WebhookChange{URL: &url}, func(e *webhook.Endpoint) { e.URL, e.FailingSince = url, nil }},
		"the same URL": {WebhookChange{URL: &before.URL}, func(*webhook.Endpoint) {}},
		"the events":   {WebhookChange{Events: []string{"dispatch.opened"}}, func(e *webhook.Endpoint) { e.Events = []string{"dispatch.opened"} }},
		"no text":      {WebhookChange{Description: &none}, func(e *webhook.Endpoint) { e.Description = "" }},
		"the status": {WebhookChange{Status: &paused}, func(e *webhook.Endpoint) {
			e.Status, e.PauseReason = webhook.Paused, webhook.PausedByAdmin
		}},
	} {
		got, want := before, before
		c.want(&want)
		if err := c.change.apply(&got); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		testkit.Equal(t, what, want, got)
	}
	got := before
	if err := (WebhookChange{Version: 2, URL: &url}).apply(&got); !errors.Is(err, webhook.ErrVersionConflict) {
		t.Errorf("an older version: %v", err)
	}
	testkit.Equal(t, "after an older version", before, got)
}

// refuseAll are addresses that nothing may be sent to.
type refuseAll struct{}

func (refuseAll) Check(context.Context, string) error { return webhook.ErrNotAllowed }

// TestWebhookAddressesAreAsked before anything is written: there is no store.
func TestWebhookAddressesAreAsked(t *testing.T) {
	w, url := NewWebhooks(nil, refuseAll{}), "https://10.0.0.1"
	if _, _, err := w.Create(t.Context(), url, []string{"*"}, "", "me"); !errors.Is(err, webhook.ErrNotAllowed) {
		t.Errorf("created: %v", err)
	}
	if _, err := w.Change(t.Context(), "whk_1", WebhookChange{URL: &url}); !errors.Is(err, webhook.ErrNotAllowed) {
		t.Errorf("changed: %v", err)
	}
}
