package handler

import (
	"context"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/dispatch/webhook"
	"firsttap/service"
)

// webhookStore reads and deletes endpoints.
type webhookStore interface {
	// Webhooks returns all endpoints, the newest first.
	Webhooks(ctx context.Context) ([]webhook.Endpoint, error)
	Webhook(ctx context.Context, id webhook.ID) (webhook.Endpoint, error)
	DeleteWebhook(ctx context.Context, id webhook.ID) error
}

// deliveryStore reads deliveries, and has them sent again.
type deliveryStore interface {
	TestWebhook(ctx context.Context, id webhook.ID, body func(event dispatch.EventID, at time.Time) []byte) (webhook.Delivery, error)
	WebhookDeliveries(
		ctx context.Context, id webhook.ID, status webhook.DeliveryStatus, page dispatch.Page,
	) ([]webhook.Delivery, string, error)
	ResendWebhook(ctx context.Context, id webhook.ID, delivery webhook.DeliveryID) error
	ReplayWebhook(ctx context.Context, id webhook.ID, since time.Time) error
}

type webhookView struct {
	ID           webhook.ID     `json:"id"`
	URL          string         `json:"url"`
	Events       []string       `json:"events"`
	Description  *string        `json:"description"`
	Status       webhook.Status `json:"status"`
	PauseReason  *string        `json:"pause_reason"`
	FailingSince *timestamp     `json:"failing_since"`
	Version      int            `json:"version"`
	CreatedAt    timestamp      `json:"created_at"`
	UpdatedAt    timestamp      `json:"updated_at"`
}

// secretWebhookView is in the only answers that contain an endpoint's secret.
type secretWebhookView struct {
	webhookView
	Secret string `json:"secret"`
}

func viewWebhook(e webhook.Endpoint) webhookView {
	return webhookView{
		ID: e.ID, URL: e.URL, Events: e.Events, Description: nullable(e.Description), Status: e.Status,
		PauseReason: nullable(string(e.PauseReason)), FailingSince: optionalTimestamp(e.FailingSince), Version: e.Version,
		CreatedAt: timestamp(e.CreatedAt), UpdatedAt: timestamp(e.UpdatedAt),
	}
}

// respondWebhook answers with the endpoint, and with its secret unless that is "".
func respondWebhook(c echo.Context, status int, e webhook.Endpoint, secret string, err error) error {
	if secret == "" {
		return respondVersion(c, status, e.Version, viewWebhook(e), err)
	}
	return respondVersion(c, status, e.Version, secretWebhookView{viewWebhook(e), secret}, err)
}

func (h *handler) createWebhook(c echo.Context, _ string) error {
	req, err := read[webhookRequest](c, maxBody)
	if err != nil {
		return err
	}
	mine, err := h.credentials(c)
	if err != nil {
		return err
	}
	e, secret, err := h.Webhooks.Create(c.Request().Context(), req.URL, req.Events, req.Description, mine.key)
	if err == nil {
		c.Response().Header().Set(echo.HeaderLocation, "/v1/admin/webhooks/"+string(e.ID))
	}
	return respondWebhook(c, 201, e, secret, err)
}

// listWebhooks takes its page from all endpoints: there are webhook.MaxEndpoints at most.
func (h *handler) listWebhooks(c echo.Context, _ string) error {
	in := &query{c: c}
	page := in.page(maxLimit)
	return list(h, in, viewWebhook, func(ctx context.Context) ([]webhook.Endpoint, string, error) {
		before, err := webhook.ParseID(page.Cursor)
		if page.Cursor != "" && err != nil {
			return nil, "", dispatch.ErrBadCursor
		}
		all, err := h.Stores.Webhooks.Webhooks(ctx)
		items, next := cut(all, page.Limit, func(e webhook.Endpoint) bool { return before == "" || e.ID < before }, webhookKey)
		return items, next, err
	})
}

func webhookKey(e webhook.Endpoint) string { return string(e.ID) }

func (h *handler) getWebhook(c echo.Context, _ string, id webhook.ID) error {
	e, err := h.Stores.Webhooks.Webhook(c.Request().Context(), id)
	return respondWebhook(c, 200, e, "", err)
}

func (h *handler) patchWebhook(c echo.Context, _ string, id webhook.ID) error {
	patch, err := readPatch[webhookPatch](c, "description")
	if err != nil {
		return err
	}
	if err := patch.check(); err != nil {
		return err
	}
	version, err := ifMatch(c, false, webhook.ErrVersionConflict)
	if err != nil {
		return err
	}
	to := patch.to
	change := service.WebhookChange{Version: version, URL: to.URL, Events: to.Events, Description: to.Description, Status: to.Status}
	if patch.null("description") {
		change.Description = new("")
	}
	e, err := h.Webhooks.Change(c.Request().Context(), id, change)
	if err == nil {
		h.OnDue() // what has waited for an endpoint that is active now
	}
	return respondWebhook(c, 200, e, "", err)
}

func (h *handler) deleteWebhook(c echo.Context, _ string, id webhook.ID) error {
	return done(c, 204, h.Stores.Webhooks.DeleteWebhook(c.Request().Context(), id))
}

func (h *handler) rotateWebhook(c echo.Context, _ string, id webhook.ID) error {
	if err := readNothing(c); err != nil {
		return err
	}
	mine, err := h.credentials(c)
	if err != nil {
		return err
	}
	e, secret, err := h.Webhooks.Rotate(c.Request().Context(), id, mine.key)
	return respondWebhook(c, 200, e, secret, err)
}
