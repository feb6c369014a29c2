package pushes

import (
	"context"
	"fmt"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/journal"
)

// NotificationRow is a row of the table notifications.
type NotificationRow struct {
	ID         dispatch.NotificationID `gorm:"primaryKey"`
	EventID    dispatch.EventID
	DeviceID   dispatch.DeviceID
	Topic      string
	DriverID   dispatch.DriverID
	DispatchID dispatch.ID
	Round      int
	Type       dispatch.EventType
	Silent     bool
	State      int
	Priority   outbox.Priority
	DueAt      int64
	Claim      string
	Attempts   int
	Result     string
	Reason     string
	At         int64
	ExpiresAt  int64
	CreatedAt  int64 `gorm:"autoCreateTime:false"`
	SentAt     *int64
}

// TableName implements gorm.Tabler.
func (NotificationRow) TableName() string { return "notifications" }

// The states of a notification. A topic has the first two.
const (
	StatePending = iota
	StateDone
	StateDead
	StateDropped
)

// statuses are what the states are called outside.
var statuses = []outbox.Status{StatePending: outbox.Pending, StateDone: outbox.Sent, StateDead: outbox.Dead, StateDropped: outbox.Dropped}

// Notifications are the notifications as the backoffice sees them. It is safe for concurrent use.
type Notifications struct{ db *database.DB }

// NewNotifications returns the notifications in a database.
func NewNotifications(db *database.DB) *Notifications { return &Notifications{db} }

// Notification returns the notification of the row.
func (row *NotificationRow) Notification() outbox.Notification {
	n := outbox.Notification{
		ID: row.ID, Event: row.EventID, Type: row.Type, Dispatch: row.DispatchID, Round: row.Round,
		Driver: row.DriverID, Device: row.DeviceID, Topic: row.Topic, Silent: row.Silent, Status: statuses[row.State],
		Attempts: row.Attempts, Result: row.Result, Reason: row.Reason,
		EventAt: database.Time(row.At), CreatedAt: database.Time(row.CreatedAt),
		SentAt: database.OptionalTime(row.SentAt), UsefulUntil: database.Time(row.ExpiresAt),
	}
	if row.State == StatePending {
		next := max(row.DueAt, row.CreatedAt) // it may be before others that waited when it was written
		n.NextAt = database.OptionalTime(&next)
	}
	return n
}

func stateOf(s outbox.Status) int { return slices.Index(statuses, s) }

// Notifications returns the notifications of a dispatch, the oldest first, and the cursor of the next page, "" after the
// last. An unknown dispatch has none. ErrBadCursor; ErrUnavailable.
func (s *Notifications) Notifications(
	ctx context.Context, id dispatch.ID, page dispatch.Page,
) (items []outbox.Notification, next string, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		db = db.Table("notifications {force ix_notifications_dispatch}").Where("dispatch_id = ?", id)
		if page.Cursor != "" {
			at, last, err := database.ParseCursor(database.NotificationOfDispatch, page.Cursor, dispatch.ParseNotificationID)
			if err != nil {
				return err
			}
			db = db.Where("(created_at > ? OR created_at = ? AND id > ?)", at, at, last)
		}
		items, next, err = notificationPage(db.Order("created_at, id"), database.NotificationOfDispatch, page.Limit,
			func(row *NotificationRow) int64 { return row.CreatedAt })
		return err
	})
	return items, next, err
}

// NotificationsBy returns the notifications of all dispatches that have the status, "" for any, and the cursor of the next
// page, "" after the last. Every page costs the same, but for the PENDING ones, which are sorted first. The order is by due_at,
// descending: DEAD and DROPPED ones by when they ended, PENDING ones by when they are due, SENT ones by when their
// offer ends. For any status it is the newest first. ErrBadCursor; ErrUnavailable.
func (s *Notifications) NotificationsBy(
	ctx context.Context, status outbox.Status, page dispatch.Page,
) (items []outbox.Notification, next string, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		db, err := notificationsBy(db, status, page)
		if err != nil {
			return err
		}
		items, next, err = notificationPage(db, database.NotificationList, page.Limit,
			func(row *NotificationRow) int64 { return row.DueAt })
		return err
	})
	return items, next, err
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
	db = db.Table("notifications {force ix_notifications_due}").Where("state = ?", stateOf(status))
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
	rows, next, err := database.ReadPage(query, limit, func(last *NotificationRow) string {
		return database.Cursor(list, at(last), last.ID)
	})
	items := make([]outbox.Notification, len(rows))
	for i := range rows {
		items[i] = rows[i].Notification()
	}
	return items, next, err
}

// Redrive makes a dead notification due again, with its attempts counted from zero. ErrNotificationNotFound; ErrNotDead, also if the
// notification is obsolete. A request with an Idempotency-Key that has done so changes nothing more.
func (s *Notifications) Redrive(ctx context.Context, id dispatch.NotificationID) (n outbox.Notification, err error) {
	err = s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		var rows []NotificationRow
		if err := tx.Raw("SELECT * FROM notifications WHERE id = ? {for_update}", id).Scan(&rows).Error; err != nil {
			return database.Unavailable(err)
		}
		if len(rows) == 0 {
			return dispatch.ErrNotificationNotFound
		}
		row := &rows[0]
		n = row.Notification()
		// Another request with the same key may have done it while this one waited for the row.
		if applied, err := journal.AlreadyApplied(tx, journal.AuditProof); applied || err != nil {
			return err
		}
		d, now, err := dispatches.Find(tx, n.Dispatch)
		if err != nil {
			return err
		}
		push := outbox.Push{Type: n.Type, Round: n.Round, UsefulUntil: n.UsefulUntil}
		push.Refresh(d)
		switch {
		case n.Status != outbox.Dead:
			return &redriveError{fmt.Sprintf("the notification is %s: only a DEAD notification can be sent again", n.Status)}
		case d.Superseded(n.Type, n.Silent, n.Driver, n.Round):
			return &redriveError{"the notification is obsolete, as the dispatch has changed, and can't be sent again"}
		case !now.Before(push.UsefulUntil):
			return &redriveError{"the notification expired at " + push.UsefulUntil.Format(time.RFC3339) + " and can't be sent again"}
		}
		row.State, row.Priority, row.DueAt, row.Claim = StatePending, outbox.PriorityOf(n.Type, n.Silent), database.Micros(now), ""
		row.Attempts, row.ExpiresAt = 0, database.Micros(push.UsefulUntil)
		if err := tx.Select("state", "priority", "due_at", "claim", "attempts", "expires_at").Updates(row).Error; err != nil {
			return database.Unavailable(err)
		}
		n = row.Notification()
		return journal.Record(tx, dispatch.AuditNotificationRetry, string(id), nil, now)
	})
	return n, err
}

// Backlog returns how many notifications are due and not leased, and for how long the oldest has been due. ErrUnavailable.
func (s *Notifications) Backlog(ctx context.Context) (due int, oldest time.Duration, err error) {
	var row struct {
		Due   int
		First dispatch.NotificationID // the one that was written first
		Since int64                   // the earliest due_at
		Now   int64
	}
	err = s.db.Work.With(ctx).Raw(`SELECT COUNT(*) due, COALESCE(MIN(id), '') first, COALESCE(MIN(due_at), {now}) since, {now} now
		FROM notifications WHERE state = 0 AND due_at <= {now}`).Scan(&row).Error
	if err != nil {
		return 0, 0, database.Unavailable(err)
	}
	since := database.Time(row.Since)
	if made, ok := row.First.MadeAt(); ok && made.After(since) {
		since = made // the due_at may be that of others who waited then
	}
	return row.Due, database.Time(row.Now).Sub(since), nil
}

// redriveError is ErrNotDead with a detail for the caller.
type redriveError struct{ detail string }

func (e *redriveError) Error() string { return e.detail }
func (e *redriveError) Unwrap() error { return dispatch.ErrNotDead }
