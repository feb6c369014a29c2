package repository

import (
	"context"
	"encoding/base64"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// moveOffers has the offers of the round that wait to be sent end when the dispatch does now. What is being sent at the
// moment is not waited for: whoever sends an offer asks the dispatch when it ends.
func (s *Store) moveOffers(tx *gorm.DB, d dispatch.Dispatch) error {
	var ids []dispatch.NotificationID
	err := tx.Raw(`SELECT id FROM notifications WHERE dispatch_id = ? AND round = ? AND type IN `+offerTypes+`
		AND state = 0`+s.dialect.skipLocked, d.ID, d.Round).Scan(&ids).Error
	if err != nil || len(ids) == 0 {
		return unavailable(err)
	}
	for len(ids) > 0 {
		n := min(len(ids), notificationsAtOnce)
		err := tx.Exec("UPDATE notifications SET expires_at = ? WHERE id IN ?", micros(d.ExpiresAt), ids[:n]).Error
		if err != nil {
			return unavailable(err)
		}
		ids = ids[n:]
	}
	return nil
}

// Events returns what happened to a dispatch, the oldest first, and the cursor of the next page, "" after the last.
// ErrNotFound, ErrBadCursor.
func (s *Store) Events(ctx context.Context, id dispatch.ID, page dispatch.Page) ([]dispatch.Event, string, error) {
	after, err := parseEventCursor(page.Cursor)
	if err != nil {
		return nil, "", err
	}
	db := s.general.WithContext(ctx)
	if _, _, err := s.find(db, id, ""); err != nil {
		return nil, "", err
	}
	var rows []eventRow
	err = db.Where("dispatch_id = ? AND id > ?", id, after).Order("id").Limit(page.Limit + 1).Find(&rows).Error
	if err != nil {
		return nil, "", unavailable(err)
	}
	next := ""
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		next = base64.RawURLEncoding.EncodeToString([]byte(rows[page.Limit-1].ID))
	}
	events := make([]dispatch.Event, len(rows))
	for i := range rows {
		events[i] = rows[i].event()
	}
	return events, next, nil
}

func parseEventCursor(s string) (dispatch.EventID, error) {
	if s == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return "", dispatch.ErrBadCursor
	}
	return dispatch.ParseEventID(string(raw))
}
