package handler

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/go-playground/validator/v10"

	"firsttap/dispatch"
	"firsttap/service"
	"firsttap/webhook"
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

// webhookFieldError turns webhook.ErrNoAddress into an error of the field url. It returns other errors as they are.
func webhookFieldError(err error) error {
	if errors.Is(err, webhook.ErrNoAddress) {
		return invalidField("url", "must have a host that has an address")
	}
	return err
}

// webhookPatch changes an endpoint. Its fields have the meaning that they have for a new one.
type webhookPatch struct {
	URL         patchField[string]         `json:"url"`
	Events      patchField[[]string]       `json:"events"`
	Description patchField[string]         `json:"description"`
	Status      patchField[webhook.Status] `json:"status"`
}

func (p *webhookPatch) change() (service.WebhookChange, error) {
	for name, null := range map[string]bool{"url": p.URL.null, "events": p.Events.null, "status": p.Status.null} {
		if null {
			return service.WebhookChange{}, invalidField(name, "must not be null")
		}
	}
	var (
		c      service.WebhookChange
		to     webhookRequest
		fields []string
	)
	if p.URL.given {
		to.URL, c.URL, fields = p.URL.value, &p.URL.value, append(fields, "URL")
	}
	if p.Events.given {
		to.Events, c.Events, fields = p.Events.value, p.Events.value, append(fields, "Events")
	}
	if p.Description.given {
		to.Description, c.Description, fields = p.Description.value, &p.Description.value, append(fields, "Description")
	}
	if p.Status.given {
		if c.Status = &p.Status.value; *c.Status != webhook.Active && *c.Status != webhook.Paused {
			return c, invalidField("status", "must be ACTIVE or PAUSED")
		}
	}
	if len(fields) == 0 {
		return c, nil
	}
	return c, asValidationError(validation.StructPartial(to, fields...))
}
