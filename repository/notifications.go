package repository

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/outbox"
)

func (row *notificationRow) notification() outbox.Notification {
	n := outbox.Notification{
		ID: row.ID, Event: row.EventID, Type: row.Type, Dispatch: row.DispatchID, Round: row.Round,
		Driver: row.DriverID, Device: row.DeviceID, Topic: row.Topic, Silent: row.Silent, Status: statusOf(row.State),
		Attempts: row.Attempts, Result: row.Result, Reason: row.Reason, At: fromMicros(row.At), CreatedAt: fromMicros(row.CreatedAt),
		SentAt: fromOptionalMicros(row.SentAt), Until: fromMicros(row.ExpiresAt),
	}
	if row.State == statePending {
		next := max(row.NextAt, row.CreatedAt) // it may be a turn, and no time: it has been due since it was written
		n.NextAt = fromOptionalMicros(&next)
	}
	return n
}

func statusOf(state int) outbox.Status {
	switch state {
	case statePending:
		return outbox.Pending
	case stateDone:
		return outbox.Sent
	case stateDead:
		return outbox.Dead
	}
	return outbox.Dropped
}

func stateOf(s outbox.Status) int {
	switch s {
	case outbox.Pending:
		return statePending
	case outbox.Sent:
		return stateDone
	case outbox.Dead:
		return stateDead
	case outbox.Dropped:
	}
	return stateDropped
}

// Notifications returns what was pushed about a dispatch, and is to be, the oldest first, and the cursor of the next
// page, "" after the last. An unknown dispatch has none.
func (s *Store) Notifications(ctx context.Context, id dispatch.ID, page dispatch.Page) ([]outbox.Notification, string, error) {
	db := s.general.WithContext(ctx).Table("notifications"+s.dialect.forceIndex("ix_notifications_dispatch")).Where("dispatch_id = ?", id)
	if page.Cursor != "" {
		at, last, err := parseCursor(notificationOfDispatch, page.Cursor, dispatch.ParseNotificationID)
		if err != nil {
			return nil, "", err
		}
		db = db.Where("(created_at > ? OR created_at = ? AND id > ?)", at, at, last)
	}
	return readPage(db.Order("created_at, id"), notificationOfDispatch, page.Limit, func(row *notificationRow) int64 { return row.CreatedAt })
}

// NotificationsBy returns the notifications of all dispatches that have the status, and the cursor of the next page, ""
// after the last. A page costs the same however many there are. First come those that got to where they stand last; of
// those that are PENDING, those whose turn comes last; of those that are SENT, those whose offer ends last. With no
// status, the newest first.
func (s *Store) NotificationsBy(ctx context.Context, status outbox.Status, page dispatch.Page) ([]outbox.Notification, string, error) {
	db, err := notificationsBy(s.general.WithContext(ctx), status, page)
	if err != nil {
		return nil, "", err
	}
	return readPage(db, notificationList, page.Limit, func(row *notificationRow) int64 { return row.NextAt })
}

func notificationsBy(db *gorm.DB, status outbox.Status, page dispatch.Page) (*gorm.DB, error) {
	var at int64
	var last dispatch.NotificationID
	if page.Cursor != "" {
		var err error
		if at, last, err = parseCursor(notificationList, page.Cursor, dispatch.ParseNotificationID); err != nil {
			return nil, err
		}
	}
	if status == "" {
		if last != "" {
			db = db.Where("id < ?", last)
		}
		return db.Order("id DESC"), nil
	}
	db = db.Where("state = ?", stateOf(status))
	if last != "" {
		// The first condition says the least and is what an index can start from.
		db = db.Where("next_at <= ? AND (next_at < ? OR id < ?)", at, at, last)
	}
	return db.Order("next_at DESC, id DESC"), nil
}

func readPage(db *gorm.DB, list byte, limit int, at func(*notificationRow) int64) ([]outbox.Notification, string, error) {
	var rows []notificationRow
	if err := db.Limit(limit + 1).Find(&rows).Error; err != nil {
		return nil, "", unavailable(err)
	}
	next := ""
	if len(rows) > limit {
		rows = rows[:limit]
		last := &rows[limit-1]
		next = cursor(list, at(last), last.ID)
	}
	items := make([]outbox.Notification, len(rows))
	for i := range rows {
		items[i] = rows[i].notification()
	}
	return items, next, nil
}

// Redrive makes a dead notification due again, as if it had never been tried. ErrNotificationNotFound; ErrNotDead also
// when pushing it is of no use any more.
func (s *Store) Redrive(ctx context.Context, id dispatch.NotificationID) (outbox.Notification, error) {
	var n outbox.Notification
	err := s.transactWithRetry(ctx, s.writes, func(tx *gorm.DB) error {
		applied, err := alreadyApplied(tx, auditProof)
		if err != nil {
			return err
		}
		if applied {
			n, err = notification(tx, id)
			return err
		}
		n, err = s.redrive(tx, id)
		return err
	})
	return n, err
}

func (s *Store) redrive(tx *gorm.DB, id dispatch.NotificationID) (outbox.Notification, error) {
	now := s.dialect.now()
	moved := tx.Exec("UPDATE notifications SET state = 0, next_at = "+now+", claim = '', attempts = 0"+
		" WHERE id = ? AND state = 2 AND expires_at > "+now, id)
	if moved.Error != nil {
		return outbox.Notification{}, unavailable(moved.Error)
	}
	n, err := notification(tx, id)
	if err != nil {
		return n, err
	}
	if moved.RowsAffected == 1 {
		if err := s.checkNotObsolete(tx, n); err != nil {
			return n, err
		}
		return n, audit(tx, dispatch.AuditNotificationRetry, string(id), nil, *n.NextAt)
	}
	if applied, err := alreadyApplied(tx, auditProof); applied || err != nil { // just now, while this waited for the row
		return n, err
	}
	if n.Status == outbox.Dead {
		return n, &redriveError{"what it tells of was over at " + n.Until.Format(time.RFC3339) + ": to push it is of no use any more"}
	}
	return n, &redriveError{fmt.Sprintf("the notification is %s: only one that is DEAD can be sent again", n.Status)}
}

func notification(tx *gorm.DB, id dispatch.NotificationID) (outbox.Notification, error) {
	var rows []notificationRow
	if err := tx.Where("id = ?", id).Find(&rows).Error; err != nil {
		return outbox.Notification{}, unavailable(err)
	}
	if len(rows) == 0 {
		return outbox.Notification{}, dispatch.ErrNotificationNotFound
	}
	return rows[0].notification(), nil
}

func (s *Store) checkNotObsolete(tx *gorm.DB, n outbox.Notification) error {
	d, _, err := s.findDispatch(tx, n.Dispatch, "")
	if err == nil && d.Superseded(n.Type, n.Silent, n.Driver, n.Round) {
		return &redriveError{"what it tells of is over: to push it is of no use any more"}
	}
	return err
}

// redriveError is ErrNotDead in words for whoever asked.
type redriveError struct{ detail string }

func (e *redriveError) Error() string { return e.detail }
func (e *redriveError) Unwrap() error { return dispatch.ErrNotDead }
