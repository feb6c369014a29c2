package journal

import (
	"context"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
)

// Journal is what transactions of all rooms append: events, audit entries and answers to requests. It is safe for concurrent use.
type Journal struct {
	db *database.DB
	// Events are leased to owner for lease as they are written; "" for nobody.
	owner string
	lease time.Duration
}

// New returns the journal. It leases each event to the owner as it is written, so that the relay that hears of it need not poll.
// Another relay may take the event over when the lease expires. The owner "" writes events that are due at once.
func New(db *database.DB, owner string, lease time.Duration) *Journal {
	return &Journal{db: db, owner: owner, lease: lease}
}

// Lease returns to whom, and for how long, events are leased as they are written.
func (s *Journal) Lease() (owner string, term time.Duration) { return s.owner, s.lease }

// EventRow is a row of the table events. Until it is expanded, it is also a row of the outbox.
type EventRow struct {
	ID         dispatch.EventID `gorm:"primaryKey"`
	DispatchID dispatch.ID
	Type       dispatch.EventType
	Round      int
	DriverID   *string
	Actor      string
	ReasonCode string
	RequestID  string
	At         int64
	NextAt     *int64 // nil after the event was expanded
	Claim      string // the owner of the lease, "" for none
}

// Event returns the event of the row.
func (row *EventRow) Event() dispatch.Event {
	return dispatch.Event{
		ID: row.ID, Type: row.Type, Dispatch: row.DispatchID, Round: row.Round,
		Driver: dispatch.DriverID(database.StringOrEmpty(row.DriverID)), Actor: row.Actor,
		ReasonCode: row.ReasonCode, Request: row.RequestID, At: database.Time(row.At),
	}
}

// TableName implements gorm.Tabler.
func (EventRow) TableName() string { return "events" }

// Events returns the events of a dispatch, the oldest first, and the cursor of the next page, "" after the last.
// ErrNotFound, ErrBadCursor.
func (s *Journal) Events(ctx context.Context, id dispatch.ID, page dispatch.Page) (items []dispatch.Event, next string, err error) {
	_, after, err := database.ParseCursor(database.EventList, page.Cursor, dispatch.ParseEventID)
	if err != nil {
		return nil, "", err
	}
	err = s.db.List(ctx, func(db database.Tx) error {
		var there bool
		if err := db.Raw("SELECT EXISTS (SELECT 1 FROM dispatches WHERE id = ?)", id).Row().Scan(&there); err != nil {
			return database.Unavailable(err)
		}
		if !there {
			return dispatch.ErrNotFound
		}
		rows, rest, err := database.ReadPage(db.Where("dispatch_id = ? AND id > ?", id, after).Order("id"), page.Limit,
			func(last *EventRow) string { return database.Cursor(database.EventList, 0, last.ID) })
		items, next = make([]dispatch.Event, len(rows)), rest
		for i := range rows {
			items[i] = rows[i].Event()
		}
		return err
	})
	return items, next, err
}

// EventColumns are the columns of events e with the prefix event_, for an EventRow that is embedded.
const EventColumns = `e.id event_id, e.dispatch_id event_dispatch_id, e.type event_type, e.round event_round, e.driver_id event_driver_id,
	e.actor event_actor, e.reason_code event_reason_code, e.request_id event_request_id, e.at event_at`

// WriteEvents writes the events, from which a relay sends the notifications. They are leased to this process's relay if it has one,
// except those that are to be announced later. The events' times are ahead of the database's
// clock by that much: see dispatches.NotBefore.
func (s *Journal) WriteEvents(tx database.Tx, events []dispatch.Event, ahead time.Duration) error {
	rows := make([]EventRow, len(events))
	request := dispatch.CallerFrom(tx.Statement.Context).Request
	for i, e := range events {
		next, claim := database.Micros(e.At.Add(s.lease-ahead)), s.owner
		if e.PushAt.After(e.At) {
			next, claim = database.Micros(e.PushAt.Add(-ahead)), "" // not leased until then
		}
		rows[i] = EventRow{
			ID: e.ID, DispatchID: e.Dispatch, Type: e.Type, Round: e.Round, DriverID: database.Nullable(string(e.Driver)),
			Actor: e.Actor, ReasonCode: e.ReasonCode, RequestID: request, At: database.Micros(e.At), NextAt: &next, Claim: claim,
		}
	}
	if err := tx.Create(&rows).Error; err != nil {
		return err
	}
	return queueForWebhooks(tx, events)
}

// queueForWebhooks has the deliveries of the events written after tx has been committed, if an endpoint is active now.
func queueForWebhooks(tx database.Tx, events []dispatch.Event) error {
	ids := make([]dispatch.EventID, len(events))
	for i, e := range events {
		ids[i] = e.ID
	}
	return tx.Exec(`INSERT INTO webhook_events (dispatch_id, event_id) SELECT e.dispatch_id, e.id FROM events e {force PRIMARY}
		WHERE e.id IN ? AND EXISTS (SELECT 1 FROM webhooks WHERE status = 'ACTIVE')`, ids).Error
}
