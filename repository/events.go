package repository

import (
	"context"

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

func (s *Store) listEvents(ctx context.Context, id dispatch.ID, page dispatch.Page) ([]dispatch.Event, string, error) {
	var after dispatch.EventID
	if page.Cursor != "" {
		var err error
		if _, after, err = parseCursor(eventList, page.Cursor, dispatch.ParseEventID); err != nil {
			return nil, "", err
		}
	}
	db := s.general.WithContext(ctx)
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
