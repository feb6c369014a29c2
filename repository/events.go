package repository

import (
	"context"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

type eventRow struct {
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

func (row *eventRow) event() dispatch.Event {
	return dispatch.Event{
		ID: row.ID, Type: row.Type, Dispatch: row.DispatchID, Round: row.Round, Driver: dispatch.DriverID(stringOrEmpty(row.DriverID)),
		Actor: row.Actor, ReasonCode: row.ReasonCode, Request: row.RequestID, At: fromMicros(row.At),
	}
}

func (eventRow) TableName() string { return "events" }

// Events returns the events of a dispatch, the oldest first, and the cursor of the next page, "" after the last.
// ErrNotFound, ErrBadCursor.
func (s *Store) Events(ctx context.Context, id dispatch.ID, page dispatch.Page) (items []dispatch.Event, next string, err error) {
	err = s.list(ctx, func(db *gorm.DB) error {
		items, next, err = s.listEvents(db, id, page)
		return err
	})
	return items, next, err
}

func (s *Store) listEvents(db *gorm.DB, id dispatch.ID, page dispatch.Page) ([]dispatch.Event, string, error) {
	var after dispatch.EventID
	if page.Cursor != "" {
		var err error
		if _, after, err = parseCursor(eventList, page.Cursor, dispatch.ParseEventID); err != nil {
			return nil, "", err
		}
	}
	if _, _, err := s.findDispatch(db, id); err != nil {
		return nil, "", err
	}
	rows, next, err := readPage(db.Where("dispatch_id = ? AND id > ?", id, after).Order("id"), page.Limit,
		func(last *eventRow) string { return cursor(eventList, 0, last.ID) })
	events := make([]dispatch.Event, len(rows))
	for i := range rows {
		events[i] = rows[i].event()
	}
	return events, next, err
}
