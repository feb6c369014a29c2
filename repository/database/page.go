package database

import (
	"encoding/base64"
	"encoding/binary"

	"firsttap/dispatch"
)

// The kinds of lists. A cursor begins with the kind of its list: no other list takes it.
const (
	AttemptList            byte = 'a'
	AuditList              byte = 'u'
	ContactList            byte = 'c'
	DeviceList             byte = 'i'
	DispatchList           byte = 'd'
	DriverList             byte = 'v'
	EventList              byte = 'e'
	DriverDispatchList     byte = 'j' // the dispatches of a driver
	KeyList                byte = 'k'
	NotificationList       byte = 'n' // of all dispatches
	NotificationOfDispatch byte = 'm'
	OpenList               byte = 'o'
	RunList                byte = 'r'
	WebhookDeliveryList    byte = 'w'
)

// Cursor returns the cursor for the rows after the row with that sort value and that identifier.
func Cursor[ID ~string](list byte, at int64, id ID) string {
	raw := binary.BigEndian.AppendUint64([]byte{list}, uint64(at))
	return base64.RawURLEncoding.EncodeToString(append(raw, id...))
}

// ParseCursor reads a cursor of the list. ErrBadCursor, also where parse refuses the identifier.
func ParseCursor[ID ~string](list byte, s string, parse func(string) (ID, error)) (at int64, id ID, err error) {
	const before = 1 + 8
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(raw) <= before || raw[0] != list {
		return 0, "", dispatch.ErrBadCursor
	}
	if id, err = parse(string(raw[before:])); err != nil {
		return 0, "", dispatch.ErrBadCursor
	}
	return int64(binary.BigEndian.Uint64(raw[1:])), id, nil
}

// LastBefore returns the identifier after which the page begins, "" for the first page. ErrBadCursor.
func LastBefore(list byte, after string) (last string, err error) {
	if after != "" {
		_, last, err = ParseCursor(list, after, parseAnyID)
	}
	return last, err
}

// NewestFirst reads a page of rows in the order of their identifiers, which begin with the time. ErrBadCursor.
func NewestFirst[R any](db Tx, list byte, column string, page dispatch.Page, id func(*R) string) ([]R, string, error) {
	last, err := LastBefore(list, page.Cursor)
	if err != nil {
		return nil, "", err
	}
	if last != "" {
		db = db.Where(column+" < ?", last)
	}
	return ReadPage(db.Order(column+" DESC"), page.Limit, func(last *R) string { return Cursor(list, 0, id(last)) })
}

// ReadPage reads a page of rows, and returns the cursor that next makes of its last row, "" if no more rows follow.
func ReadPage[R any](query Tx, limit int, next func(last *R) string) ([]R, string, error) {
	var rows []R
	if err := query.Limit(limit + 1).Find(&rows).Error; err != nil {
		return nil, "", Unavailable(err)
	}
	if len(rows) <= limit {
		return rows, "", nil
	}
	rows = rows[:limit]
	return rows, next(&rows[limit-1]), nil
}

func parseAnyID(s string) (string, error) {
	if !dispatch.LooksLikeID(s) {
		return "", dispatch.ErrBadCursor
	}
	return s, nil
}
