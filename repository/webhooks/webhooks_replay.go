package webhooks

import (
	"context"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/journal"
	"firsttap/webhook"
)

const (
	// replayPart bounds the events of one transaction of a replay.
	replayPart = 200
	// maxReplayAhead is the number of pending deliveries from which an endpoint's replay is slow: it writes one part for
	// each look. It never stops, because deliveries may wait for the events that it has yet to write.
	maxReplayAhead = 2000
)

// ReplayWebhook has all events since that time delivered again, those too that were never delivered to the endpoint.
// A replay that goes on already goes on with both. A replay of a paused endpoint would lack what happens until it is
// active. webhook.ErrNotFound, webhook.ErrPaused.
func (s *Webhooks) ReplayWebhook(ctx context.Context, id webhook.ID, since time.Time) error {
	_, err := s.changeWebhook(ctx, id, dispatch.AuditWebhookReplay, func(row *Row, now time.Time) (map[string]any, error) {
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

// sendAgain makes deliveries that are written already pending again. What has ended begins with the first attempt, and is due now. MySQL
// assigns one column after the other: the status is the last.
const sendAgain = "attempt = CASE WHEN webhook_deliveries.status = 'PENDING' THEN webhook_deliveries.attempt ELSE 0 END, " +
	"next_at = CASE WHEN webhook_deliveries.status = 'PENDING' THEN webhook_deliveries.next_at ELSE {new next_at} END, status = 'PENDING'"

// replayOne writes the deliveries of the next events of one of the endpoints' replays, and reports whether more can
// be written at once. A replay that was interrupted goes on where it was. ErrUnavailable, ErrUnknown.
func (o *Outbox) replayOne(ctx context.Context, to []Row, body webhook.Body) (more bool, err error) {
	for i := 0; i < len(to) && !more && err == nil; i++ {
		if to[i].ReplayUntil == nil {
			continue
		}
		err = o.db.Work.Transact(ctx, func(tx database.Tx) (err error) {
			more, err = o.replay(tx, to[i].ID, body)
			return database.Unavailable(err)
		})
	}
	return more && err == nil, err
}

// replay writes the next part of the endpoint's replay, and how far it is. It does nothing if there is none, or if
// somebody else has locked the endpoint: another courier, which writes this part, or an admin, who may ask for
// another replay.
func (o *Outbox) replay(tx database.Tx, id webhook.ID, body webhook.Body) (more bool, err error) {
	var w []Row
	err = tx.Raw("SELECT * FROM webhooks {force PRIMARY} WHERE id = ? AND status = ? AND replay_until IS NOT NULL {skip_locked}",
		id, webhook.Active).Scan(&w).Error
	if err != nil || len(w) == 0 {
		return false, err
	}
	var pending int
	err = tx.Raw(`SELECT COUNT(*) FROM (SELECT 1 FROM webhook_deliveries {force ix_webhook_deliveries_due}
		WHERE webhook_id = ? AND status = 'PENDING' LIMIT ?) d`, id, maxReplayAhead).Scan(&pending).Error
	if err != nil {
		return false, err
	}
	var found []announced
	err = tx.Raw(announcedSQL+" WHERE e.id > ? AND e.id <= ? ORDER BY e.id LIMIT ?", *w[0].ReplayFrom, *w[0].ReplayUntil, replayPart).
		Scan(&found).Error
	if err != nil {
		return false, err
	}
	var from, until *dispatch.EventID // nil after the last part
	if len(found) == replayPart {
		from, until = &found[replayPart-1].Event.ID, w[0].ReplayUntil
	}
	if len(found) > 0 {
		err = writeDeliveries(tx, deliveriesOf(found, w, body), sendAgain)
	}
	if err == nil {
		err = tx.Exec("UPDATE webhooks SET replay_from = ?, replay_until = ? WHERE id = ?", from, until, id).Error
	}
	return pending < maxReplayAhead && until != nil, err
}
