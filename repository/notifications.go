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
		Attempts: row.Attempts, Result: row.Result, Reason: row.Reason, EventAt: fromMicros(row.At), CreatedAt: fromMicros(row.CreatedAt),
		SentAt: fromOptionalMicros(row.SentAt), UsefulUntil: fromMicros(row.ExpiresAt),
	}
	if row.State == statePending {
		next := max(row.DueAt, row.CreatedAt) // it may be before others that waited when it was written
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

// Notifications returns the notifications of a dispatch, the oldest first, and the cursor of the next page, "" after the
// last. An unknown dispatch has none.
func (s *Store) Notifications(ctx context.Context, id dispatch.ID, page dispatch.Page) (items []outbox.Notification, next string, err error) {
	err = s.list(ctx, func(db *gorm.DB) error {
		items, next, err = s.listNotifications(db, id, page)
		return err
	})
	return items, next, err
}

func (s *Store) listNotifications(db *gorm.DB, id dispatch.ID, page dispatch.Page) ([]outbox.Notification, string, error) {
	db = db.Table("notifications {force ix_notifications_dispatch}").Where("dispatch_id = ?", id)
	if page.Cursor != "" {
		at, last, err := parseCursor(notificationOfDispatch, page.Cursor, dispatch.ParseNotificationID)
		if err != nil {
			return nil, "", err
		}
		db = db.Where("(created_at > ? OR created_at = ? AND id > ?)", at, at, last)
	}
	return notificationPage(db.Order("created_at, id"), notificationOfDispatch, page.Limit, func(row *notificationRow) int64 { return row.CreatedAt })
}

// NotificationsBy returns the notifications of all dispatches that have the status, "" for any, and the cursor of the next
// page, "" after the last. Every page costs the same, but for the PENDING ones, which are sorted first. The order is by due_at,
// descending: DEAD and DROPPED ones by when they ended, PENDING ones by when they are due, SENT ones by when their
// offer ends. For any status it is the newest first.
func (s *Store) NotificationsBy(ctx context.Context, status outbox.Status, page dispatch.Page) (items []outbox.Notification, next string, err error) {
	err = s.list(ctx, func(db *gorm.DB) error {
		items, next, err = s.listNotificationsBy(db, status, page)
		return err
	})
	return items, next, err
}

func (s *Store) listNotificationsBy(db *gorm.DB, status outbox.Status, page dispatch.Page) ([]outbox.Notification, string, error) {
	db, err := notificationsBy(db, status, page)
	if err != nil {
		return nil, "", err
	}
	return notificationPage(db, notificationList, page.Limit, func(row *notificationRow) int64 { return row.DueAt })
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
	if status != outbox.Pending {
		db = db.Where("priority = 0") // as of all that are done: an index has them in order
	}
	if last != "" {
		// The first condition is implied by the second, but an index can start from it.
		db = db.Where("due_at <= ? AND (due_at < ? OR id < ?)", at, at, last)
	}
	return db.Order("due_at DESC, id DESC"), nil
}

func notificationPage(query *gorm.DB, list byte, limit int, at func(*notificationRow) int64) ([]outbox.Notification, string, error) {
	rows, next, err := readPage(query, limit, func(last *notificationRow) string { return cursor(list, at(last), last.ID) })
	items := make([]outbox.Notification, len(rows))
	for i := range rows {
		items[i] = rows[i].notification()
	}
	return items, next, err
}

// Redrive makes a dead notification due again, with its attempts counted from zero. ErrNotificationNotFound; ErrNotDead, also if the
// notification is obsolete.
func (s *Store) Redrive(ctx context.Context, id dispatch.NotificationID) (outbox.Notification, error) {
	var n outbox.Notification
	err := s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
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
	n, err := notification(tx, id)
	if err != nil {
		return n, err
	}
	d, _, err := s.findDispatch(tx, n.Dispatch)
	if err != nil {
		return n, err
	}
	if n.Status == outbox.Dead && d.Superseded(n.Type, n.Silent, n.Driver, n.Round) {
		return n, &redriveError{"the notification is obsolete, as the dispatch has changed, and can't be sent again"}
	}
	push := outbox.Push{Type: n.Type, Round: n.Round, UsefulUntil: n.UsefulUntil}
	push.Refresh(d)
	revived := tx.Exec("UPDATE notifications SET state = 0, priority = ?, due_at = {now}, claim = '', attempts = 0, expires_at = ?"+
		" WHERE id = ? AND state = 2 AND ? > {now}", outbox.PriorityOf(n.Type, n.Silent), micros(push.UsefulUntil), id, micros(push.UsefulUntil))
	if revived.Error != nil {
		return n, unavailable(revived.Error)
	}
	if n, err = notification(tx, id); err != nil {
		return n, err
	}
	if revived.RowsAffected == 1 {
		return n, audit(tx, dispatch.AuditNotificationRetry, string(id), nil, *n.NextAt)
	}
	if applied, err := alreadyApplied(tx, auditProof); applied || err != nil { // a concurrent request with the same key, while this one waited for the row
		return n, err
	}
	if n.Status == outbox.Dead {
		return n, &redriveError{"the notification expired at " + push.UsefulUntil.Format(time.RFC3339) + " and can't be sent again"}
	}
	return n, &redriveError{fmt.Sprintf("the notification is %s: only a DEAD notification can be sent again", n.Status)}
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

// redriveError is ErrNotDead with a detail for the caller.
type redriveError struct{ detail string }

func (e *redriveError) Error() string { return e.detail }
func (e *redriveError) Unwrap() error { return dispatch.ErrNotDead }
