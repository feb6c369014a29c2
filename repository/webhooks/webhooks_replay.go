package webhooks

import (
	"context"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/webhook"
	"firsttap/repository/database"
	"firsttap/repository/journal"
)

// replayPart bounds the events of one transaction of a replay.
const replayPart = 200

// ReplayWebhook has all events since that time delivered again, those too that were never delivered to the endpoint.
// A replay that goes on already goes on with both. A replay of a paused endpoint would lack what happens until it is
// active. webhook.ErrNotFound, webhook.ErrPaused.
func (s *Webhooks) ReplayWebhook(ctx context.Context, id webhook.ID, since time.Time) error {
	_, err := s.change(ctx, id, dispatch.AuditWebhookReplay, func(_ database.Tx, row *Row, now time.Time) (map[string]any, error) {
		if row.Status != webhook.Active {
			return nil, webhook.ErrPaused
		}
		from, until := dispatch.MinEventID(since), dispatch.MinEventID(now)
		if row.ReplayFrom != nil {
			from = min(from, *row.ReplayFrom)
		}
		row.ReplayFrom, row.ReplayUntil = &from, &until
		return map[string]any{"since": journal.NullableTime(&since)}, nil
	})
	return err
}

// sendAgain makes deliveries that are written already pending again. What has ended begins with the first attempt, and
// is due now. MySQL assigns one column after the other: the status is the last.
var sendAgain = database.SetPresent(
	[2]string{"attempt", "CASE WHEN webhook_deliveries.status = 'PENDING' THEN webhook_deliveries.attempt ELSE 0 END"},
	[2]string{"next_at", "CASE WHEN webhook_deliveries.status = 'PENDING' THEN webhook_deliveries.next_at ELSE {new next_at} END"},
	[2]string{"status", "'PENDING'"},
)

// replay writes the next part of the endpoint's replay, and how far it is. A replay that was interrupted goes on where it was. It does
// nothing if there is none, or if somebody else has locked the endpoint: another courier, which writes this part, or an admin, who may ask
// for another replay.
//
// A courier writes one part of each replay when it looks for new events, once a second at least. So a replay of any length leaves the
// database to others, and never stops, as deliveries may wait for the events that it has yet to write.
func replay(tx database.Tx, id webhook.ID, body webhook.Body) error {
	var w []Row
	err := tx.Raw("SELECT * FROM webhooks {force PRIMARY} WHERE id = ? AND status = ? AND replay_until IS NOT NULL {skip_locked}",
		id, webhook.Active).Scan(&w).Error
	if err != nil || len(w) == 0 {
		return err
	}
	var found []announced
	err = tx.Raw(announcedSQL+" WHERE e.id > ? AND e.id <= ? ORDER BY e.id LIMIT ?", *w[0].ReplayFrom, *w[0].ReplayUntil, replayPart).
		Scan(&found).Error
	if err != nil {
		return err
	}
	if err := tx.Clauses(sendAgain).CreateInBatches(deliveriesOf(found, w, body), deliveriesAtOnce).Error; err != nil {
		return err
	}
	var from, until *dispatch.EventID // nil after the last part
	if len(found) == replayPart {
		from, until = &found[replayPart-1].Event.ID, w[0].ReplayUntil
	}
	return tx.Exec("UPDATE webhooks SET replay_from = ?, replay_until = ? WHERE id = ?", from, until, id).Error
}
