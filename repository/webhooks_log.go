package repository

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/idempotency"
	"firsttap/webhook"
)

// delivery returns the delivery without its attempts.
func (row *deliveryRow) delivery() webhook.Delivery {
	d := webhook.Delivery{
		ID: webhook.DeliveryOf(row.EventID), Endpoint: row.WebhookID, Event: row.EventID, Dispatch: row.DispatchID, Type: row.Type,
		Status: row.Status, Body: row.Body, CreatedAt: fromMicros(row.CreatedAt),
	}
	if string(row.DispatchID) == string(row.EventID) { // a test
		d.Dispatch = ""
	}
	return d
}

// loggedDelivery is a delivery, and when its lane is due, unless the lane is leased.
type loggedDelivery struct {
	Row    deliveryRow `gorm:"embedded"`
	NextAt *int64
}

func (l *loggedDelivery) delivery() (d webhook.Delivery, err error) {
	d = l.Row.delivery()
	if l.Row.Status == webhook.Pending {
		d.NextAt = fromOptionalMicros(l.NextAt)
	}
	if d.Attempts, err = attemptsOf(l.Row.Attempts); err != nil {
		return d, fmt.Errorf("attempts of %s: %w", d.ID, err)
	}
	return d, nil
}

// WebhookDeliveries returns the endpoint's deliveries with the status, "" for any, those of the newest events first, and the cursor of the
// next page, "" after the last. webhook.ErrNotFound, ErrBadCursor.
func (s *Store) WebhookDeliveries(ctx context.Context, id webhook.ID, status webhook.DeliveryStatus, page dispatch.Page) (items []webhook.Delivery, next string, err error) {
	err = s.list(ctx, func(db *gorm.DB) error {
		items, next, err = s.listDeliveries(db, id, status, page)
		return err
	})
	return items, next, err
}

func (s *Store) listDeliveries(db *gorm.DB, id webhook.ID, status webhook.DeliveryStatus, page dispatch.Page) ([]webhook.Delivery, string, error) {
	if _, err := findWebhook(db, id, ""); err != nil {
		return nil, "", err
	}
	index, where, args := "ix_webhook_deliveries_event", "d.webhook_id = ?", []any{id}
	if status != "" {
		index, where, args = "ix_webhook_deliveries_status", where+" AND d.status = ?", append(args, status)
	}
	if page.Cursor != "" {
		_, last, err := parseCursor(webhookDeliveryList, page.Cursor, dispatch.ParseEventID)
		if err != nil {
			return nil, "", err
		}
		where, args = where+" AND d.event_id < ?", append(args, last)
	}
	var rows []loggedDelivery
	err := db.Raw("SELECT d.*, CASE WHEN l.claim = '' THEN l.next_at END next_at FROM webhook_deliveries d"+s.dialect.forceIndex(index)+
		" LEFT JOIN webhook_lanes l ON l.webhook_id = d.webhook_id AND l.dispatch_id = d.dispatch_id WHERE "+where+
		" ORDER BY d.event_id DESC LIMIT ?", append(args, page.Limit+1)...).Scan(&rows).Error
	if err != nil {
		return nil, "", unavailable(err)
	}
	next := ""
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		next = cursor(webhookDeliveryList, 0, rows[page.Limit-1].Row.EventID)
	}
	items := make([]webhook.Delivery, len(rows))
	for i := range rows {
		if items[i], err = rows[i].delivery(); err != nil {
			return nil, "", unavailable(err)
		}
	}
	return items, next, nil
}

// TestWebhook writes a delivery of webhook.TestEvent, with the body that body returns. If the request was carried out before, it returns
// that delivery. webhook.ErrNotFound, webhook.ErrPaused.
func (s *Store) TestWebhook(ctx context.Context, id webhook.ID, body func(event dispatch.EventID, at time.Time) []byte) (webhook.Delivery, error) {
	var row deliveryRow
	err := s.changeLane(ctx, id, dispatch.AuditWebhookTest, func(tx *gorm.DB, w *webhookRow, now time.Time) (map[string]any, error) {
		if w.Status != webhook.Active {
			return nil, webhook.ErrPaused
		}
		e := dispatch.Event{ID: dispatch.EventID(idempotency.EventID(tx.Statement.Context, now)), Type: webhook.TestEvent, At: now}
		e.Dispatch = dispatch.ID(e.ID)
		row = newDelivery(id, &e, body(e.ID, now), now)
		return map[string]any{"delivery": webhook.DeliveryOf(e.ID)}, writeDeliveries(tx, []deliveryRow{row}, keepWritten, now)
	}, func(tx *gorm.DB) error {
		event := idempotency.EventID(tx.Statement.Context, time.Time{})
		return unavailable(tx.Where("webhook_id = ? AND event_id = ?", id, event).Limit(1).Find(&row).Error)
	})
	return row.delivery(), err
}

// ResendWebhook has a delivery sent again, as often as a new one, and at once unless it is being sent. webhook.ErrNotFound,
// webhook.ErrDeliveryNotFound.
func (s *Store) ResendWebhook(ctx context.Context, id webhook.ID, delivery webhook.DeliveryID) error {
	return s.changeLane(ctx, id, dispatch.AuditWebhookResend, func(tx *gorm.DB, _ *webhookRow, now time.Time) (map[string]any, error) {
		var lanes []dispatch.ID
		err := tx.Raw("SELECT dispatch_id FROM webhook_deliveries"+s.dialect.forceIndex("ix_webhook_deliveries_event")+
			" WHERE webhook_id = ? AND event_id = ?", id, delivery.Event()).Scan(&lanes).Error
		if err != nil {
			return nil, unavailable(err)
		}
		if len(lanes) == 0 {
			return nil, webhook.ErrDeliveryNotFound
		}
		if err := takeLanes(tx, []laneKey{{id, lanes[0]}}, now); err != nil {
			return nil, err
		}
		// One that is being sent stays as it is: another count would make the attempt's result void.
		err = tx.Exec(`UPDATE webhook_deliveries SET status = ?, attempt = 0 WHERE dispatch_id = ? AND webhook_id = ? AND event_id = ? AND
			(status <> ? OR (SELECT claim FROM webhook_lanes WHERE webhook_id = ? AND dispatch_id = ?) = '')`,
			webhook.Pending, lanes[0], id, delivery.Event(), webhook.Pending, id, lanes[0]).Error
		if err == nil {
			err = tx.Exec("UPDATE webhook_lanes SET next_at = ? WHERE webhook_id = ? AND dispatch_id = ? AND claim = ''", micros(now), id, lanes[0]).Error
		}
		return map[string]any{"delivery": delivery}, unavailable(err)
	}, nil)
}

// changeLane commits a change of the endpoint's deliveries with its audit entry, and has them sent. If the request was carried out before,
// it calls again instead, unless that is nil. webhook.ErrNotFound; change's own errors unchanged.
func (s *Store) changeLane(ctx context.Context, id webhook.ID, action dispatch.AuditAction,
	change func(tx *gorm.DB, w *webhookRow, now time.Time) (detail map[string]any, err error), again func(tx *gorm.DB) error,
) error {
	err := s.transactWithRetry(ctx, s.writes, func(tx *gorm.DB) error {
		w, err := findWebhook(tx, id, "") // not locked: completions lock lanes before endpoints
		if err != nil {
			return err
		}
		applied, err := alreadyApplied(tx, auditProof)
		if err != nil {
			return err
		}
		if applied {
			if again != nil {
				return again(tx)
			}
			return nil
		}
		now, err := s.clock(tx)
		if err != nil {
			return err
		}
		detail, err := change(tx, &w, now)
		if err != nil {
			return err
		}
		return audit(tx, action, string(id), detail, now)
	})
	if err == nil {
		s.wakeWebhooks()
	}
	return err
}
