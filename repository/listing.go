package repository

import (
	"slices"
	"strings"

	"firsttap/dispatch"
)

// listing is a list of dispatches that is read page by page, each of its parts along an index.
type listing struct {
	kind       byte   // of its cursors: no other list takes them
	order      string // the column that the list is in the order of, the largest first; "" for the identifier alone
	parts      []part // what is in one is in no other
	forceIndex func(index string) string
}

type part struct {
	index string
	where string
	args  []any
}

// and narrows every part.
func (l *listing) and(where string, args ...any) {
	for i := range l.parts {
		p := &l.parts[i]
		p.where += " AND " + where
		p.args = append(slices.Clip(p.args), args...)
	}
}

func (l *listing) by() string {
	if l.order == "" {
		return "id DESC"
	}
	return l.order + " DESC, id DESC"
}

// sql returns the query of a page and of one dispatch more. Of each part it reads no more than that: a server that is
// given one condition with OR sorts all that fulfills it.
func (l *listing) sql(page dispatch.Page) (string, []any, error) {
	if page.Cursor != "" {
		at, id, err := parseCursor(l.kind, page.Cursor, dispatch.ParseID)
		switch {
		case err != nil:
			return "", nil, err
		case l.order == "":
			l.and("id < ?", id)
		default:
			l.and("("+l.order+" < ? OR "+l.order+" = ? AND id < ?)", at, at, id)
		}
	}
	var args []any
	queries := make([]string, len(l.parts))
	for i, p := range l.parts {
		queries[i] = "SELECT * FROM dispatches" + l.forceIndex(p.index) + " WHERE " + p.where + " ORDER BY " + l.by() + " LIMIT ?"
		args = append(append(args, p.args...), page.Limit+1)
	}
	if len(queries) == 1 {
		return queries[0], args, nil
	}
	for i := range queries {
		queries[i] = "SELECT * FROM (" + queries[i] + ") q"
	}
	return strings.Join(queries, " UNION ALL ") + " ORDER BY " + l.by() + " LIMIT ?", append(args, page.Limit+1), nil
}

// trimPage returns the rows of the page, and the cursor of the next, "" after the last.
func trimPage[T any](l *listing, rows []T, limit int, of func(*T) *dispatchRow) ([]T, string) {
	if len(rows) <= limit {
		return rows, ""
	}
	rows = slices.Clip(rows[:limit])
	var at int64
	switch last := of(&rows[limit-1]); {
	case l.order == "opens_at":
		at = last.OpensAt
	case last.AcceptedAt != nil:
		at = *last.AcceptedAt
	}
	return rows, cursor(l.kind, at, of(&rows[limit-1]).ID)
}
