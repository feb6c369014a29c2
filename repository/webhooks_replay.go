package repository

import (
	"context"
	"errors"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"firsttap/dispatch"
	"firsttap/webhook"
)

const (
	// replayPart bounds the events of one transaction of a replay.
	replayPart = 200
	// maxReplayLanes is the number of waiting lanes from which an endpoint's replay is slow: it writes one part for each look. It never
	// stops, because lanes may wait for the events that it has yet to write.
	maxReplayLanes = 2000
)

// ReplayWebhook has all events since that time delivered again, those too that were never delivered to the endpoint. A replay that goes on
// already goes on with both. A replay of a paused endpoint would lack what happens until it is active. webhook.ErrNotFound, webhook.ErrPaused.
func (s *Store) ReplayWebhook(ctx context.Context, id webhook.ID, since time.Time) error {
	_, err := s.changeWebhook(ctx, id, dispatch.AuditWebhookReplay, func(row *webhookRow, now time.Time) (map[string]any, error) {
		if row.Status != webhook.Active {
			return nil, webhook.ErrPaused
		}
		from, until := dispatch.MinEventID(since), dispatch.MinEventID(now)
		if row.ReplayFrom != nil {
			from = min(from, *row.ReplayFrom)
		}
		row.ReplayFrom, row.ReplayUntil = &from, &until
		return map[string]any{"since": nullableTime(&since)}, nil
	})
	if err == nil {
		s.wakeWebhooks()
	}
	return err
}

// sendAgain makes deliveries that are written already pending again. What has ended begins with the first attempt.
var sendAgain = clause.OnConflict{
	Columns: []clause.Column{{Name: "dispatch_id"}, {Name: "webhook_id"}, {Name: "event_id"}},
	DoUpdates: clause.Set{ // in this order: MySQL assigns one after the other
		{Column: clause.Column{Name: "attempt"}, Value: gorm.Expr("CASE WHEN webhook_deliveries.status = 'PENDING' THEN webhook_deliveries.attempt ELSE 0 END")},
		{Column: clause.Column{Name: "status"}, Value: webhook.Pending},
	},
}

// ReplayNext writes the deliveries of the next events of one active endpoint's replay, and reports whether more can be written at once. A
// replay that was interrupted goes on where it was. ErrUnavailable, ErrUnknown.
func (o *WebhookOutbox) ReplayNext(ctx context.Context) (more bool, err error) {
	db := o.webhooks.WithContext(ctx)
	var rows []webhookRow
	err = db.Raw("SELECT * FROM webhooks WHERE status = ? AND replay_until IS NOT NULL ORDER BY id", webhook.Active).Scan(&rows).Error
	if err != nil {
		return false, unavailable(err)
	}
	for i := range rows {
		var lanes int
		err := db.Raw("SELECT COUNT(*) FROM (SELECT 1 FROM webhook_lanes"+o.dialect.forceIndex("ix_webhook_lanes_due")+" WHERE webhook_id = ? LIMIT ?) l",
			rows[i].ID, maxReplayLanes).Scan(&lanes).Error
		if err != nil {
			return false, unavailable(err)
		}
		if err := o.replay(ctx, &rows[i]); err != nil && !errors.Is(err, errReplayed) {
			return false, err
		}
		o.wakeWebhooks()
		if lanes < maxReplayLanes {
			return true, nil
		}
	}
	return false, nil
}

// errReplayed means that another instance has written this part of a replay.
var errReplayed = errors.New("another instance has written the deliveries")

// replay writes the next part of the endpoint's replay, and how far it is. errReplayed: nothing was written.
func (o *WebhookOutbox) replay(ctx context.Context, w *webhookRow) error {
	return o.transactWithRetry(ctx, o.webhooks, func(tx *gorm.DB) error {
		rows, last, now, err := o.replayed(tx, w)
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			if err := writeDeliveries(tx, rows, sendAgain, now); err != nil {
				return err
			}
		}
		until := w.ReplayUntil
		if last == nil {
			until = nil
		}
		// After the lanes, which completions lock before endpoints.
		done := tx.Exec("UPDATE webhooks SET replay_from = ?, replay_until = ? WHERE id = ? AND replay_from = ? AND replay_until = ?",
			last, until, w.ID, *w.ReplayFrom, *w.ReplayUntil)
		if done.Error == nil && done.RowsAffected == 0 {
			return errReplayed
		}
		return unavailable(done.Error)
	})
}

// replayed returns the deliveries of the next events of the endpoint's replay, the last of these events, nil if the replay ends with
// them, and the database's time.
func (o *WebhookOutbox) replayed(tx *gorm.DB, w *webhookRow) (rows []deliveryRow, last *dispatch.EventID, now time.Time, err error) {
	var found []announced
	err = tx.Raw("SELECT d.*, "+o.dialect.now()+" now, "+eventColumns+" FROM events e"+o.dialect.forceIndex("PRIMARY")+
		" JOIN dispatches d ON d.id = e.dispatch_id WHERE e.id > ? AND e.id <= ? ORDER BY e.id LIMIT ?", *w.ReplayFrom, *w.ReplayUntil, replayPart).
		Scan(&found).Error
	if err != nil {
		return nil, nil, now, unavailable(err)
	}
	sub := subscription{w.ID, w.Events}
	for i := range found {
		e := found[i].Event.event()
		now = fromMicros(found[i].Dispatch.Now)
		if sub.wants(e.Type) {
			rows = append(rows, newDelivery(w.ID, &e, o.options.WebhookBody(found[i].Dispatch.Row.at(now), e), now))
		}
	}
	if len(found) == replayPart {
		last = &found[replayPart-1].Event.ID
	}
	return rows, last, now, nil
}
