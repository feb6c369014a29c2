package repository

import (
	"context"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/webhook"
)

const (
	webhooksTable = "webhooks"
	// keepDeliveries is how long the log has deliveries that have ended, at the longest.
	keepDeliveries = 30 * 24 * time.Hour
	// keepDeletedWebhook is more than a transaction takes: one that was under way at the deletion may still have written deliveries.
	keepDeletedWebhook = 10 * time.Minute
)

// deleteDeliveries deletes up to limit rows, of any endpoint, that are no longer kept, and returns how many, also with an error: old
// deliveries, and everything of a deleted endpoint.
func (p pruning) deleteDeliveries(ctx context.Context, _ retentionRule, limit int) (n int, err error) {
	db := p.relay.WithContext(ctx)
	now, err := p.clock(db)
	if err != nil {
		return 0, err
	}
	var all []webhookRow
	if err := db.Raw("SELECT id, status, updated_at FROM webhooks ORDER BY id").Scan(&all).Error; err != nil {
		return 0, unavailable(err)
	}
	for i := range all {
		w := &all[i]
		rules := endedDeliveries(w.ID, now)
		if w.Status == deletedWebhook {
			rules = deliveriesOfDeleted(w.ID)
		}
		for _, rule := range rules {
			deleted, err := p.deleteExpired(ctx, rule, limit-n)
			n += deleted
			if err != nil || n == limit {
				return n, err
			}
		}
		if w.Status == deletedWebhook && fromMicros(w.UpdatedAt).Add(keepDeletedWebhook).Before(now) {
			deleted, err := p.forgetWebhook(ctx, w.ID)
			n += deleted
			if err != nil || n == limit {
				return n, err
			}
		}
	}
	return n, nil
}

// endedDeliveries are the rules for deliveries that have ended. They are found by their events, which are older.
func endedDeliveries(id webhook.ID, now time.Time) (rules []retentionRule) {
	before := now.Add(-keepDeliveries)
	for _, status := range []webhook.DeliveryStatus{webhook.Delivered, webhook.Failed} {
		rules = append(rules, retentionRule{
			table: "webhook_deliveries", key: deliveryKey, order: "event_id",
			where: "webhook_id = ? AND status = ? AND event_id < ? AND created_at < ?", args: []any{id, status, dispatch.MinEventID(before), micros(before)},
		})
	}
	return rules
}

const deliveryKey = "dispatch_id, webhook_id, event_id"

func deliveriesOfDeleted(id webhook.ID) []retentionRule {
	return []retentionRule{
		{table: "webhook_lanes", key: "webhook_id, dispatch_id", where: "webhook_id = ?", order: "next_at", args: []any{id}},
		{table: "webhook_deliveries", key: deliveryKey, where: "webhook_id = ?", order: "event_id", args: []any{id}},
	}
}

// forgetWebhook deletes the row of a deleted endpoint of which nothing else is left, and returns how many rows it deleted.
func (p pruning) forgetWebhook(ctx context.Context, id webhook.ID) (int, error) {
	return p.transact(ctx, func(tx *gorm.DB) (int, error) {
		done := tx.Exec("DELETE FROM webhooks WHERE id = ? AND status = ? AND (SELECT 1 FROM webhook_lanes WHERE webhook_id = ? LIMIT 1) IS NULL"+
			" AND (SELECT 1 FROM webhook_deliveries WHERE webhook_id = ? LIMIT 1) IS NULL", id, deletedWebhook, id, id)
		return int(done.RowsAffected), done.Error
	})
}
