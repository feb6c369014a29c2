package pushes

import (
	"context"
	"fmt"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/journal"
)

// Notifications are the notifications as the backoffice sees them. It is safe for concurrent use.
type Notifications struct{ db *database.DB }

// NewNotifications returns the notifications in a database.
func NewNotifications(db *database.DB) *Notifications { return &Notifications{db} }

// Notification returns the notification of the row.
func (row *NotificationRow) Notification() outbox.Notification {
	n := outbox.Notification{
		ID: row.ID, Event: row.EventID, Type: row.Type, Dispatch: row.DispatchID, Round: row.Round,
		Driver: row.DriverID, Device: row.DeviceID, Topic: row.Topic, Silent: row.Silent, Status: statusOf(row.State),
		Attempts: row.Attempts, Result: row.Result, Reason: row.Reason, EventAt: database.Time(row.At), CreatedAt: database.Time(row.CreatedAt),
		SentAt: database.OptionalTime(row.SentAt), UsefulUntil: database.Time(row.ExpiresAt),
	}
	if row.State == StatePending {
		next := max(row.DueAt, row.CreatedAt) // it may be before others that waited when it was written
		n.NextAt = database.OptionalTime(&next)
	}
	return n
}

func statusOf(state int) outbox.Status {
	switch state {
	case StatePending:
		return outbox.Pending
	case StateDone:
		return outbox.Sent
	case StateDead:
		return outbox.Dead
	}
	return outbox.Dropped
}

func stateOf(s outbox.Status) int {
	switch s {
	case outbox.Pending:
		return StatePending
	case outbox.Sent:
		return StateDone
	case outbox.Dead:
		return StateDead
	case outbox.Dropped:
	}
	return StateDropped
}

// Notifications returns the notifications of a dispatch, the oldest first, and the cursor of the next page, "" after the
// last. An unknown dispatch has none.
func (s *Notifications) Notifications(
	ctx context.Context, id dispatch.ID, page dispatch.Page,
) (items []outbox.Notification, next string, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		items, next, err = s.listNotifications(db, id, page)
		return err
	})
	return items, next, err
}

func (s *Notifications) listNotifications(db database.Tx, id dispatch.ID, page dispatch.Page) ([]outbox.Notification, string, error) {
	db = db.Table("notifications {force ix_notifications_dispatch}").Where("dispatch_id = ?", id)
	if page.Cursor != "" {
		at, last, err := database.ParseCursor(database.NotificationOfDispatch, page.Cursor, dispatch.ParseNotificationID)
		if err != nil {
			return nil, "", err
		}
		db = db.Where("(created_at > ? OR created_at = ? AND id > ?)", at, at, last)
	}
	return notificationPage(db.Order("created_at, id"), database.NotificationOfDispatch, page.Limit,
		func(row *NotificationRow) int64 { return row.CreatedAt })
}

// NotificationsBy returns the notifications of all dispatches that have the status, "" for any, and the cursor of the next
// page, "" after the last. Every page costs the same, but for the PENDING ones, which are sorted first. The order is by due_at,
// descending: DEAD and DROPPED ones by when they ended, PENDING ones by when they are due, SENT ones by when their
// offer ends. For any status it is the newest first.
func (s *Notifications) NotificationsBy(
	ctx context.Context, status outbox.Status, page dispatch.Page,
) (items []outbox.Notification, next string, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		items, next, err = s.listNotificationsBy(db, status, page)
		return err
	})
	return items, next, err
}

func (s *Notifications) listNotificationsBy(
	db database.Tx, status outbox.Status, page dispatch.Page,
) ([]outbox.Notification, string, error) {
	db, err := notificationsBy(db, status, page)
	if err != nil {
		return nil, "", err
	}
	return notificationPage(db, database.NotificationList, page.Limit, func(row *NotificationRow) int64 { return row.DueAt })
}

func notificationsBy(db database.Tx, status outbox.Status, page dispatch.Page) (database.Tx, error) {
	var at int64
	var last dispatch.NotificationID
	if page.Cursor != "" {
		var err error
		if at, last, err = database.ParseCursor(database.NotificationList, page.Cursor, dispatch.ParseNotificationID); err != nil {
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

func notificationPage(query database.Tx, list byte, limit int, at func(*NotificationRow) int64) ([]outbox.Notification, string, error) {
	rows, next, err := database.ReadPage(query, limit, func(last *NotificationRow) string { return database.Cursor(list, at(last), last.ID) })
	items := make([]outbox.Notification, len(rows))
	for i := range rows {
		items[i] = rows[i].Notification()
	}
	return items, next, err
}

// Redrive makes a dead notification due again, with its attempts counted from zero. ErrNotificationNotFound; ErrNotDead, also if the
// notification is obsolete.
func (s *Notifications) Redrive(ctx context.Context, id dispatch.NotificationID) (outbox.Notification, error) {
	var n outbox.Notification
	err := s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		applied, err := journal.AlreadyApplied(tx, journal.AuditProof)
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

func (s *Notifications) redrive(tx database.Tx, id dispatch.NotificationID) (outbox.Notification, error) {
	n, err := notification(tx, id)
	if err != nil {
		return n, err
	}
	d, _, err := dispatches.Find(tx, n.Dispatch)
	if err != nil {
		return n, err
	}
	if n.Status == outbox.Dead && d.Superseded(n.Type, n.Silent, n.Driver, n.Round) {
		return n, &redriveError{"the notification is obsolete, as the dispatch has changed, and can't be sent again"}
	}
	push := outbox.Push{Type: n.Type, Round: n.Round, UsefulUntil: n.UsefulUntil}
	push.Refresh(d)
	revived := tx.Exec("UPDATE notifications SET state = 0, priority = ?, due_at = {now}, claim = '', attempts = 0, expires_at = ?"+
		" WHERE id = ? AND state = 2 AND ? > {now}",
		outbox.PriorityOf(n.Type, n.Silent), database.Micros(push.UsefulUntil), id, database.Micros(push.UsefulUntil))
	if revived.Error != nil {
		return n, database.Unavailable(revived.Error)
	}
	if n, err = notification(tx, id); err != nil {
		return n, err
	}
	if revived.RowsAffected == 1 {
		return n, journal.Record(tx, dispatch.AuditNotificationRetry, string(id), nil, *n.NextAt)
	}
	if applied, err := journal.AlreadyApplied(tx, journal.AuditProof); applied ||
		err != nil { // a concurrent request with the same key, while this one waited for the row
		return n, err
	}
	if n.Status == outbox.Dead {
		return n, &redriveError{"the notification expired at " + push.UsefulUntil.Format(time.RFC3339) + " and can't be sent again"}
	}
	return n, &redriveError{fmt.Sprintf("the notification is %s: only a DEAD notification can be sent again", n.Status)}
}

func notification(tx database.Tx, id dispatch.NotificationID) (outbox.Notification, error) {
	var rows []NotificationRow
	if err := tx.Where("id = ?", id).Find(&rows).Error; err != nil {
		return outbox.Notification{}, database.Unavailable(err)
	}
	if len(rows) == 0 {
		return outbox.Notification{}, dispatch.ErrNotificationNotFound
	}
	return rows[0].Notification(), nil
}

// redriveError is ErrNotDead with a detail for the caller.
type redriveError struct{ detail string }

func (e *redriveError) Error() string { return e.detail }
func (e *redriveError) Unwrap() error { return dispatch.ErrNotDead }
