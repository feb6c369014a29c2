package handler

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"firsttap/dispatch"
	"firsttap/service"
	"firsttap/webhook"
)

type webhookRequest struct {
	URL         string   `json:"url" validate:"required,max=2000"`
	Events      []string `json:"events" validate:"required,min=1,max=13,unique"`
	Description string   `json:"description" validate:"max=500,tidy"`
}

func (r *webhookRequest) check() error {
	return invalidFields(checkWebhookURL(r.URL), checkWebhookEvents(r.Events))
}

// checkWebhookURL checks the form. Where the URL leads is a question to service.WebhookAddresses.
func checkWebhookURL(s string) []fieldError {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || !isGraphic(s) || strings.Contains(s, "#") {
		return []fieldError{{"url", "must be a URL like https://example.com/webhooks"}}
	}
	return nil
}

func checkWebhookEvents(names []string) (wrong []fieldError) {
	if len(names) > 1 && slices.Contains(names, webhook.AllEvents) {
		return []fieldError{{"events", "must be * alone, or names of events"}}
	}
	for i, name := range names {
		if name != webhook.AllEvents && !dispatch.IsEvent(name) {
			wrong = append(wrong, fieldError{"events[" + strconv.Itoa(i) + "]", "must be an event like dispatch.accepted"})
		}
	}
	return wrong
}

// webhookFieldError returns the error of a URL whose host has no address as one of the field.
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
	var (
		c      service.WebhookChange
		to     webhookRequest
		fields []string
		wrong  []fieldError
	)
	for _, f := range []struct {
		name string
		null bool
	}{{"url", p.URL.null}, {"events", p.Events.null}, {"status", p.Status.null}} {
		if f.null {
			wrong = append(wrong, fieldError{f.name, "must not be null"})
		}
	}
	if p.URL.given && !p.URL.null {
		to.URL, c.URL, fields = p.URL.value, &to.URL, append(fields, "URL")
		wrong = append(wrong, checkWebhookURL(to.URL)...)
	}
	if p.Events.given && !p.Events.null {
		to.Events, c.Events, fields = p.Events.value, p.Events.value, append(fields, "Events")
		wrong = append(wrong, checkWebhookEvents(to.Events)...)
	}
	if p.Description.given {
		to.Description, c.Description, fields = p.Description.value, &to.Description, append(fields, "Description")
	}
	if p.Status.given && !p.Status.null {
		c.Status = &p.Status.value
		if *c.Status != webhook.Active && *c.Status != webhook.Paused {
			wrong = append(wrong, fieldError{"status", "must be ACTIVE or PAUSED"})
		}
	}
	if len(fields) > 0 {
		if err := asValidationError(validation.StructPartial(to, fields...)); err != nil {
			return c, err
		}
	}
	return c, invalidFields(wrong)
}

// invalidFields returns nil if no field is wrong.
func invalidFields(wrong ...[]fieldError) error {
	if all := slices.Concat(wrong...); len(all) > 0 {
		return &validationError{fields: all}
	}
	return nil
}
