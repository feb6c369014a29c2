package handler

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/webhook"
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

// writeWebhook answers with the endpoint, and with its secret unless that is "".
func writeWebhook(c echo.Context, status int, e webhook.Endpoint, secret string) error {
	c.Response().Header().Set("ETag", strconv.Quote(strconv.Itoa(e.Version)))
	if secret == "" {
		return writeJSON(c, status, viewWebhook(e))
	}
	return writeJSON(c, status, secretWebhookView{viewWebhook(e), secret})
}

func webhookID(c echo.Context) (webhook.ID, error) { return webhook.ParseID(c.Param("id")) }

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
	if err != nil {
		return webhookFieldError(err)
	}
	c.Response().Header().Set(echo.HeaderLocation, "/v1/admin/webhooks/"+string(e.ID))
	return writeWebhook(c, 201, e, secret)
}

// listWebhooks takes its page from all endpoints: there are webhook.MaxEndpoints at most.
func (h *handler) listWebhooks(c echo.Context, _ string) error {
	p, err := page(c)
	if err != nil {
		return err
	}
	all, err := h.Stores.Webhooks.Webhooks(c.Request().Context())
	if err != nil {
		return err
	}
	if p.Cursor != "" {
		after, err := webhook.ParseID(p.Cursor)
		if err != nil {
			return dispatch.ErrBadCursor
		}
		all = slices.DeleteFunc(all, func(e webhook.Endpoint) bool { return e.ID >= after })
	}
	next := ""
	if len(all) > p.Limit {
		all = all[:p.Limit]
		next = string(all[p.Limit-1].ID)
	}
	return writeJSON(c, 200, viewList(all, next, h.Now(), viewWebhook))
}

func (h *handler) getWebhook(c echo.Context, _ string) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	e, err := h.Stores.Webhooks.Webhook(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return writeWebhook(c, 200, e, "")
}

func (h *handler) patchWebhook(c echo.Context, _ string) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	req, err := read[webhookPatch](c, maxBody)
	if err != nil {
		return err
	}
	change, err := req.change()
	if err != nil {
		return err
	}
	if change.Version, err = optionalVersion(c, webhook.ErrVersionConflict); err != nil {
		return err
	}
	e, err := h.Webhooks.Change(c.Request().Context(), id, change)
	if err != nil {
		return webhookFieldError(err)
	}
	h.OnDue() // what has waited for an endpoint that is active now
	return writeWebhook(c, 200, e, "")
}

func (h *handler) deleteWebhook(c echo.Context, _ string) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	if err := h.Stores.Webhooks.DeleteWebhook(c.Request().Context(), id); err != nil {
		return err
	}
	return c.NoContent(204)
}

func (h *handler) rotateWebhook(c echo.Context, _ string) error {
	id, err := emptyWebhookRequest(c)
	if err != nil {
		return err
	}
	mine, err := h.credentials(c)
	if err != nil {
		return err
	}
	e, secret, err := h.Webhooks.Rotate(c.Request().Context(), id, mine.key)
	if err != nil {
		return err
	}
	return writeWebhook(c, 200, e, secret)
}

// emptyWebhookRequest reads a request without fields, and returns the endpoint's identifier from its path.
func emptyWebhookRequest(c echo.Context) (webhook.ID, error) {
	id, err := webhookID(c)
	if err != nil {
		return "", err
	}
	_, err = readOptional[struct{}](c)
	return id, err
}
