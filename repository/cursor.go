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
	jobList                byte = 'j' // the dispatches of a driver
	keyList                byte = 'k'
	notificationList       byte = 'n' // of all dispatches
	notificationOfDispatch byte = 'm'
	openList               byte = 'o'
	runList                byte = 'r'
)

// cursor returns the cursor of what follows the row at that place of the list's order, with that identifier.
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

// newestFirst reads a page of rows in the order of their identifiers, which begin with the time. ErrBadCursor.
func newestFirst[R any](db *gorm.DB, list byte, column string, page dispatch.Page, id func(*R) string) ([]R, string, error) {
	if page.Cursor != "" {
		_, last, err := parseCursor(list, page.Cursor, parseAnyID)
		if err != nil {
			return nil, "", err
		}
		db = db.Where(column+" < ?", last)
	}
	var rows []R
	if err := db.Order(column + " DESC").Limit(page.Limit + 1).Find(&rows).Error; err != nil {
		return nil, "", unavailable(err)
	}
	if len(rows) <= page.Limit {
		return rows, "", nil
	}
	rows = rows[:page.Limit]
	return rows, cursor(list, 0, id(&rows[page.Limit-1])), nil
}

func parseAnyID(s string) (string, error) {
	if !dispatch.LooksLikeID(s) {
		return "", dispatch.ErrBadCursor
	}
	return s, nil
}
