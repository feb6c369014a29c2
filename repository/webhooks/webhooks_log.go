package webhooks

import (
	"context"
	"fmt"
	"time"

	"firsttap/dispatch"
	"firsttap/idempotency"
	"firsttap/repository/database"
	"firsttap/webhook"
)

// delivery returns the delivery without its attempts.
func (row *DeliveryRow) delivery() webhook.Delivery {
	d := webhook.Delivery{
		ID: webhook.DeliveryOf(row.EventID), Endpoint: row.WebhookID, Event: row.EventID, Dispatch: row.DispatchID, Type: row.Type,
		Status: row.Status, Body: row.Body, CreatedAt: database.Time(row.CreatedAt),
	}
	if string(row.DispatchID) == string(row.EventID) { // a test
		d.Dispatch = ""
	}
	return d
}

// logged returns the delivery with its attempts, and with the time of the next one, unless it is leased.
func (row *DeliveryRow) logged() (d webhook.Delivery, err error) {
	d = row.delivery()
	if row.Status == webhook.Pending && row.Claim == "" {
		d.NextAt = database.OptionalTime(&row.NextAt)
	}
	if d.Attempts, err = attemptsOf(row.Attempts); err != nil {
		return d, fmt.Errorf("attempts of %s: %w", d.ID, err)
	}
	return d, nil
}

// WebhookDeliveries returns the endpoint's deliveries with the status, "" for any, those of the newest events first,
// and the cursor of the next page, "" after the last. webhook.ErrNotFound, ErrBadCursor.
func (s *Webhooks) WebhookDeliveries(ctx context.Context, id webhook.ID, status webhook.DeliveryStatus, page dispatch.Page) (
	items []webhook.Delivery, next string, err error,
) {
	err = s.db.List(ctx, func(db database.Tx) error {
		items, next, err = s.listDeliveries(db, id, status, page)
		return err
	})
	return items, next, err
}

func (s *Webhooks) listDeliveries(db database.Tx, id webhook.ID, status webhook.DeliveryStatus, page dispatch.Page) (
	[]webhook.Delivery, string, error,
) {
	if _, err := findWebhook(db, id, ""); err != nil {
		return nil, "", err
	}
	index, where, args := "ix_webhook_deliveries_event", "webhook_id = ?", []any{id}
	if status != "" {
		index, where, args = "ix_webhook_deliveries_status", where+" AND status = ?", append(args, status)
	}
	if page.Cursor != "" {
		_, last, err := database.ParseCursor(database.WebhookDeliveryList, page.Cursor, dispatch.ParseEventID)
		if err != nil {
			return nil, "", err
		}
		where, args = where+" AND event_id < ?", append(args, last)
	}
	var rows []DeliveryRow
	err := db.Raw("SELECT * FROM webhook_deliveries {force "+index+"} WHERE "+where+" ORDER BY event_id DESC LIMIT ?",
		append(args, page.Limit+1)...).Scan(&rows).Error
	if err != nil {
		return nil, "", database.Unavailable(err)
	}
	next := ""
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		next = database.Cursor(database.WebhookDeliveryList, 0, rows[page.Limit-1].EventID)
	}
	items := make([]webhook.Delivery, len(rows))
	for i := range rows {
		if items[i], err = rows[i].logged(); err != nil {
			return nil, "", database.Unavailable(err)
		}
	}
	return items, next, nil
}

// TestWebhook writes a delivery of webhook.TestEvent, with the body that body returns. If the request was carried out
// before, it returns that delivery. webhook.ErrNotFound, webhook.ErrPaused.
func (s *Webhooks) TestWebhook(ctx context.Context, id webhook.ID, body func(event dispatch.EventID, at time.Time) []byte) (
	webhook.Delivery, error,
) {
	var row DeliveryRow
	write := func(tx database.Tx, w *Row, now time.Time) (map[string]any, error) {
		if w.Status != webhook.Active {
			return nil, webhook.ErrPaused
		}
		e := dispatch.Event{ID: dispatch.EventID(idempotency.EventID(ctx, now)), Type: webhook.TestEvent, At: now}
		e.Dispatch = dispatch.ID(e.ID)
		row = newDelivery(id, &e, body(e.ID, now), now)
		return map[string]any{"delivery": webhook.DeliveryOf(e.ID)}, database.Unavailable(tx.Create(&row).Error)
	}
	_, applied, err := s.withWebhook(ctx, id, dispatch.AuditWebhookTest, write)
	if err == nil && applied {
		event := idempotency.EventID(ctx, time.Time{})
		err = database.Unavailable(s.db.Decide.With(ctx).Where("webhook_id = ? AND event_id = ?", id, event).Limit(1).Find(&row).Error)
	}
	return row.delivery(), err
}

// ResendWebhook has a delivery sent again, as often as a new one, and at once unless it is being sent. webhook.ErrNotFound,
// webhook.ErrDeliveryNotFound.
func (s *Webhooks) ResendWebhook(ctx context.Context, id webhook.ID, delivery webhook.DeliveryID) error {
	_, _, err := s.withWebhook(ctx, id, dispatch.AuditWebhookResend, func(tx database.Tx, _ *Row, now time.Time) (map[string]any, error) {
		var found []dispatch.ID
		err := tx.Raw("SELECT dispatch_id FROM webhook_deliveries {force ix_webhook_deliveries_event} WHERE webhook_id = ? AND event_id = ?",
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
