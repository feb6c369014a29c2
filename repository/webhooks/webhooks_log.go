package webhooks

import (
	"context"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/idempotency"
	"firsttap/dispatch/webhook"
	"firsttap/repository/database"
)

// delivery returns the delivery, with the time of its next attempt unless it is leased.
func (row *DeliveryRow) delivery() webhook.Delivery {
	d := webhook.Delivery{
		ID: webhook.DeliveryOf(row.EventID), Endpoint: row.WebhookID, Event: row.EventID, Dispatch: row.DispatchID, Type: row.Type,
		Status: row.Status, Body: row.Body, Attempts: row.Attempts, CreatedAt: database.Time(row.CreatedAt),
	}
	if row.Status == webhook.Pending && row.Claim == "" {
		d.NextAt = database.OptionalTime(&row.NextAt)
	}
	return d
}

// WebhookDeliveries returns the endpoint's deliveries with the status, "" for any, those of the newest events first,
// and the cursor of the next page, "" after the last. webhook.ErrNotFound, ErrBadCursor.
func (s *Webhooks) WebhookDeliveries(ctx context.Context, id webhook.ID, status webhook.DeliveryStatus, page dispatch.Page) (
	items []webhook.Delivery, next string, err error,
) {
	var rows []DeliveryRow
	err = s.db.List(ctx, func(db database.Tx) error {
		if _, err := findWebhook(db, id, ""); err != nil {
			return err
		}
		l := database.Listing{Kind: database.WebhookDeliveryList, Prefix: dispatch.EventPrefix, ID: "event_id"}
		of := database.Part{Where: "webhook_id = ?", Args: []any{id}}
		of.Select = "SELECT * FROM webhook_deliveries {force ix_webhook_deliveries_event}"
		if status != "" {
			of.Select = "SELECT * FROM webhook_deliveries {force ix_webhook_deliveries_status}"
			of.Where, of.Args = of.Where+" AND status = ?", append(of.Args, status)
		}
		l.Parts = []database.Part{of}
		rows, next, err = database.ReadListing(db, l, page, func(r *DeliveryRow) string { return database.Cursor(l.Kind, 0, r.EventID) })
		return err
	})
	for i := range rows {
		items = append(items, rows[i].delivery())
	}
	return items, next, err
}

// TestWebhook writes a delivery of webhook.TestEvent, with the body that body returns. If the request was carried out
// before, it returns that delivery. webhook.ErrNotFound, webhook.ErrPaused.
func (s *Webhooks) TestWebhook(ctx context.Context, id webhook.ID, body func(event dispatch.EventID, at time.Time) []byte) (
	webhook.Delivery, error,
) {
	var row DeliveryRow
	_, err := s.change(ctx, id, dispatch.AuditWebhookTest, func(tx database.Tx, w *Row, now time.Time) (map[string]any, error) {
		if w.Status != webhook.Active {
			return nil, webhook.ErrPaused
		}
		e := dispatch.Event{ID: dispatch.EventID(idempotency.EventID(ctx, now)), Type: webhook.TestEvent, At: now}
		e.Dispatch = dispatch.ID(e.ID)
		row = newDelivery(id, &e, body(e.ID, now), now)
		return map[string]any{"delivery": webhook.DeliveryOf(e.ID)}, database.Unavailable(tx.Create(&row).Error)
	})
	if err == nil && idempotency.SeedFrom(ctx) != "" { // it may have been carried out before
		row = DeliveryRow{}
		event := idempotency.EventID(ctx, time.Time{})
		err = database.Unavailable(s.db.Decide.With(ctx).Where("webhook_id = ? AND event_id = ?", id, event).Limit(1).Find(&row).Error)
	}
	return row.delivery(), err
}

// ResendWebhook has a delivery sent again, as often as a new one, and at once unless it is being sent. webhook.ErrNotFound,
// webhook.ErrDeliveryNotFound.
func (s *Webhooks) ResendWebhook(ctx context.Context, id webhook.ID, delivery webhook.DeliveryID) error {
	_, err := s.change(ctx, id, dispatch.AuditWebhookResend, func(tx database.Tx, _ *Row, now time.Time) (map[string]any, error) {
		var found []dispatch.ID
		err := tx.Raw(`SELECT dispatch_id FROM webhook_deliveries {force ix_webhook_deliveries_event}
		WHERE webhook_id = ? AND event_id = ?`,
			id, delivery.Event()).Scan(&found).Error
		if err != nil {
			return nil, database.Unavailable(err)
		}
		if len(found) == 0 {
			return nil, webhook.ErrDeliveryNotFound
		}
		// One that is being sent stays as it is: another count would make the attempt's result void.
		err = tx.Exec(`UPDATE webhook_deliveries {force PRIMARY} SET status = 'PENDING', attempt = 0, next_at = ?
			WHERE dispatch_id = ? AND webhook_id = ? AND event_id = ? AND (status <> 'PENDING' OR claim = '')`,
			database.Micros(now), found[0], id, delivery.Event()).Error
		return map[string]any{"delivery": delivery}, database.Unavailable(err)
	})
	return err
}
