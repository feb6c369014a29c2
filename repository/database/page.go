package database

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"

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

// ParseCursor reads a cursor of the list, "" for its first page. ErrBadCursor, also where parse refuses the identifier.
func ParseCursor[ID ~string](list byte, s string, parse func(string) (ID, error)) (at int64, id ID, err error) {
	if s == "" {
		return 0, "", nil
	}
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

// ReadPage reads a page of rows, and returns the cursor that next makes of its last row, "" if no more rows follow. ErrUnavailable.
func ReadPage[R any](query Tx, limit int, next func(last *R) string) ([]R, string, error) {
	var rows []R
	if err := query.Limit(limit + 1).Find(&rows).Error; err != nil {
		return nil, "", Unavailable(err)
	}
	rows, cursor := Trim(rows, limit, next)
	return rows, cursor, nil
}

// Trim returns the first rows up to the limit, and the cursor that next makes of the last of them, "" if there are no more rows.
func Trim[R any](rows []R, limit int, next func(last *R) string) ([]R, string) {
	if len(rows) <= limit {
		return rows, ""
	}
	rows = slices.Clip(rows[:limit])
	return rows, next(&rows[limit-1])
}

// Listing is a list as a union of parts, each of which reads one index in the list's order, descending.
type Listing struct {
	Kind   byte   // of its cursors
	Prefix string // of its identifiers; "" for any
	Order  string // the column that the list is sorted by before the identifier, "" for none
	ID     string // the column of a part that has the rows' identifier, which the result has as id; "" for id
	Parts  []Part // disjoint
}

// Part is a part of a Listing: a SELECT without its WHERE, and its condition.
type Part struct {
	Select, Where string
	Args          []any
}

// Last returns the sort value and the identifier of the last row before the cursor's page, 0 and "" for the first page. ErrBadCursor.
func (l Listing) Last(cursor string) (at int64, id string, err error) {
	return ParseCursor(l.Kind, cursor, func(s string) (string, error) {
		if !dispatch.LooksLikeID(s) || !strings.HasPrefix(s, l.Prefix) {
			return "", dispatch.ErrBadCursor
		}
		return s, nil
	})
}

// SQL returns the query of a page and one more row. Each part reads no more than that: for one condition with OR, a server would sort all
// the rows that match. ErrBadCursor.
func (l Listing) SQL(page dispatch.Page) (string, []any, error) {
	at, last, err := l.Last(page.Cursor)
	if err != nil {
		return "", nil, err
	}
	id, by, after, from := cmp.Or(l.ID, "id"), "", "", []any(nil)
	if l.Order != "" {
		by = l.Order + " DESC, "
	}
	switch {
	case last == "":
	case l.Order == "":
		after, from = " AND "+id+" < ?", []any{last}
	default:
		after, from = " AND ("+l.Order+" < ? OR "+l.Order+" = ? AND "+id+" < ?)", []any{at, at, last}
	}
	queries, args := make([]string, len(l.Parts)), []any(nil)
	for i, p := range l.Parts {
		queries[i] = p.Select + " WHERE " + p.Where + after + " ORDER BY " + by + id + " DESC LIMIT ?"
		args = append(slices.Concat(args, p.Args, from), page.Limit+1)
	}
	if len(queries) == 1 {
		return queries[0], args, nil
	}
	union := "SELECT * FROM (" + strings.Join(queries, ") q UNION ALL SELECT * FROM (") + ") q"
	return union + " ORDER BY " + by + "id DESC LIMIT ?", append(args, page.Limit+1), nil
}

// ReadListing reads a page of the listing, and returns the cursor that next makes of its last row, "" if no more rows follow.
// ErrBadCursor, ErrUnavailable.
func ReadListing[R any](db Tx, l Listing, page dispatch.Page, next func(last *R) string) ([]R, string, error) {
	query, args, err := l.SQL(page)
	if err != nil {
		return nil, "", err
	}
	var rows []R
	if err := db.Raw(query, args...).Scan(&rows).Error; err != nil {
		return nil, "", Unavailable(err)
	}
	rows, cursor := Trim(rows, page.Limit, next)
	return rows, cursor, nil
}
