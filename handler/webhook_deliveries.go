package handler

import (
	"context"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/dispatch/webhook"
)

type deliveryView struct {
	ID         webhook.DeliveryID     `json:"id"`
	EventID    dispatch.EventID       `json:"event_id"`
	DispatchID *string                `json:"dispatch_id"`
	Type       dispatch.EventType     `json:"type"`
	Status     webhook.DeliveryStatus `json:"status"`
	// Body is the body of each request, byte by byte.
	Body      string                `json:"body"`
	Attempts  []deliveryAttemptView `json:"attempts"`
	CreatedAt timestamp             `json:"created_at"`
	NextAt    *timestamp            `json:"next_at"`
}

// deliveryAttemptView has null for what there was not: an answer, or an error.
type deliveryAttemptView struct {
	At         timestamp `json:"at"`
	HTTPStatus *int      `json:"http_status"`
	Error      *string   `json:"error"`
	TookMS     float64   `json:"took_ms"`
	Answer     *string   `json:"answer"`
}

func viewDelivery(d webhook.Delivery) deliveryView {
	v := deliveryView{
		ID: d.ID, EventID: d.Event, Type: d.Type, Status: d.Status, Body: string(d.Body),
		Attempts: make([]deliveryAttemptView, len(d.Attempts)), CreatedAt: timestamp(d.CreatedAt), NextAt: optionalTimestamp(d.NextAt),
	}
	if d.Type != webhook.TestEvent {
		v.DispatchID = nullable(string(d.Dispatch))
	}
	for i, a := range d.Attempts {
		v.Attempts[i] = deliveryAttemptView{
			At: timestamp(a.At), Error: nullable(a.Error), TookMS: float64(a.Took.Microseconds()) / 1000, Answer: nullable(a.Answer),
		}
		if a.HTTPStatus != 0 {
			v.Attempts[i].HTTPStatus = &a.HTTPStatus
		}
	}
	return v
}

func (h *handler) testWebhook(c echo.Context, _ string, id webhook.ID) error {
	if err := readNothing(c); err != nil {
		return err
	}
	d, err := h.Stores.Deliveries.TestWebhook(c.Request().Context(), id, webhookTestBody)
	if err == nil {
		h.OnDue()
	}
	return respond(c, 202, viewDelivery(d), err)
}

func (h *handler) listDeliveries(c echo.Context, _ string, id webhook.ID) error {
	in := &query{c: c}
	page, s := in.page(maxLimit), status(in, "delivery", is(webhook.Pending, webhook.Delivered, webhook.Failed))
	return list(h, in, viewDelivery, func(ctx context.Context) ([]webhook.Delivery, string, error) {
		return h.Stores.Deliveries.WebhookDeliveries(ctx, id, s, page)
	})
}

func (h *handler) resendDelivery(c echo.Context, _ string, id webhook.ID) error {
	if err := readNothing(c); err != nil {
		return err
	}
	delivery, err := webhook.ParseDeliveryID(c.Param("delivery_id"))
	if err != nil {
		return err
	}
	return h.sentAgain(c, h.Stores.Deliveries.ResendWebhook(c.Request().Context(), id, delivery))
}

// sentAgain answers that deliveries are due, unless there is an error.
func (h *handler) sentAgain(c echo.Context, err error) error {
	if err == nil {
		h.OnDue()
	}
	return done(c, 202, err)
}

type replayRequest struct {
	Since *time.Time `json:"since" validate:"required"`
}

func (h *handler) replayWebhook(c echo.Context, _ string, id webhook.ID) error {
	req, err := read[replayRequest](c, maxSmallBody)
	if err != nil {
		return err
	}
	if req.Since.After(h.Now()) {
		return invalidField("since", "must be in the past")
	}
	since := *req.Since
	if first := time.Unix(0, 0); since.Before(first) {
		since = first // no event is older, and no identifier has an earlier time
	}
	return h.sentAgain(c, h.Stores.Deliveries.ReplayWebhook(c.Request().Context(), id, since))
}
