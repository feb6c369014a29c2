package handler

import (
	"net/url"
	"slices"
	"strings"

	"github.com/go-playground/validator/v10"

	"firsttap/dispatch"
	"firsttap/dispatch/webhook"
)

type webhookRequest struct {
	URL         string   `json:"url"         validate:"required,max=2000,webhook_url"`
	Events      []string `json:"events"      validate:"required,min=1,max=13,unique,webhook_events,dive,webhook_event"`
	Description string   `json:"description" validate:"max=500"`
}

// isWebhookURL checks the form. Where the URL leads is a question to service.WebhookAddresses.
func isWebhookURL(f validator.FieldLevel) bool {
	s := f.Field().String()
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && isGraphic(s) && !strings.Contains(s, "#")
}

// areWebhookEvents checks that the name for all events is alone.
func areWebhookEvents(f validator.FieldLevel) bool {
	names, ok := f.Field().Interface().([]string)
	return ok && (len(names) == 1 || !slices.Contains(names, webhook.AllEvents))
}

func isWebhookEvent(f validator.FieldLevel) bool {
	name := f.Field().String()
	return name == webhook.AllEvents || dispatch.IsEvent(name)
}

// webhookPatch has what can be changed of an endpoint. What is not given is nil.
type webhookPatch struct {
	URL         *string         `json:"url"         validate:"required,max=2000,webhook_url"`
	Events      []string        `json:"events"      validate:"required,min=1,max=13,unique,webhook_events,dive,webhook_event"`
	Description *string         `json:"description" validate:"omitempty,max=500"`
	Status      *webhook.Status `json:"status"      validate:"required,oneof=ACTIVE PAUSED"`
}
