package repository

import (
	"context"
	"slices"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/webhook"
)

const (
	webhooksTable = "webhooks"
	// keepDeliveries is how long a delivery is kept, and sent if it is still pending: its endpoint may be paused for ever.
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
		rules := p.oldDeliveries(w.ID, now)
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

// oldDeliveries are the rules for deliveries that are old, pending ones too, and for the lanes that these leave behind. They are found by
// their events, which are older.
func (s *Store) oldDeliveries(id webhook.ID, now time.Time) []retentionRule {
	before := now.Add(-keepDeliveries)
	empty := func(tx *gorm.DB, lanes [][]any) (left [][]any, err error) {
		names := make([]any, len(lanes))
		for i := range lanes {
			names[i] = lanes[i][1]
		}
		var full []string // as the lanes are locked, no delivery is written to them meanwhile
		err = tx.Raw("SELECT DISTINCT dispatch_id FROM webhook_deliveries"+s.dialect.forceIndex("PRIMARY")+
			" WHERE webhook_id = ? AND status = ? AND dispatch_id IN ?", id, webhook.Pending, names).Scan(&full).Error
		if err == nil && len(full) > 0 {
			err = tx.Exec("UPDATE webhook_lanes SET next_at = ? WHERE webhook_id = ? AND dispatch_id IN ?", micros(now), id, full).Error
		}
		return slices.DeleteFunc(lanes, func(lane []any) bool { return slices.Contains(full, *lane[1].(*string)) }), err
	}
	return []retentionRule{
		{
			table: "webhook_deliveries", key: deliveryKey, order: "event_id", index: "ix_webhook_deliveries_event",
			where: "webhook_id = ? AND event_id < ? AND created_at < ?", args: []any{id, dispatch.MinEventID(before), micros(before)},
		},
		{
			table: "webhook_lanes", key: "webhook_id, dispatch_id", order: "next_at", index: "ix_webhook_lanes_due",
			where: "webhook_id = ? AND next_at < ?", args: []any{id, micros(before)}, before: empty,
		},
	}
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
