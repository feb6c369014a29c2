package repository

import (
	"encoding/base64"
	"encoding/binary"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// A cursor begins with the kind of its list: no other list takes it.
const (
	attemptList            byte = 'a'
	auditList              byte = 'u'
	contactList            byte = 'c'
	deviceList             byte = 'i'
	dispatchList           byte = 'd'
	driverList             byte = 'v'
	eventList              byte = 'e'
	driverDispatchList     byte = 'j' // the dispatches of a driver
	keyList                byte = 'k'
	notificationList       byte = 'n' // of all dispatches
	notificationOfDispatch byte = 'm'
	openList               byte = 'o'
	runList                byte = 'r'
	webhookDeliveryList    byte = 'w'
)

// cursor returns the cursor for the rows after the row with that sort value and that identifier.
func cursor[ID ~string](list byte, at int64, id ID) string {
	raw := binary.BigEndian.AppendUint64([]byte{list}, uint64(at))
	return base64.RawURLEncoding.EncodeToString(append(raw, id...))
}

// parseCursor reads a cursor of the list. ErrBadCursor, also where parse refuses the identifier.
func parseCursor[ID ~string](list byte, s string, parse func(string) (ID, error)) (at int64, id ID, err error) {
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

// lastBefore returns the identifier after which the page begins, "" for the first page. ErrBadCursor.
func lastBefore(list byte, after string) (last string, err error) {
	if after != "" {
		_, last, err = parseCursor(list, after, parseAnyID)
	}
	return last, err
}

// newestFirst reads a page of rows in the order of their identifiers, which begin with the time. ErrBadCursor.
func newestFirst[R any](db *gorm.DB, list byte, column string, page dispatch.Page, id func(*R) string) ([]R, string, error) {
	last, err := lastBefore(list, page.Cursor)
	if err != nil {
		return nil, "", err
	}
	if last != "" {
		db = db.Where(column+" < ?", last)
	}
	return readPage(db.Order(column+" DESC"), page.Limit, func(last *R) string { return cursor(list, 0, id(last)) })
}

// readPage reads a page of rows, and returns the cursor that next makes of its last row, "" if no more rows follow.
func readPage[R any](query *gorm.DB, limit int, next func(last *R) string) ([]R, string, error) {
	var rows []R
	if err := query.Limit(limit + 1).Find(&rows).Error; err != nil {
		return nil, "", unavailable(err)
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
