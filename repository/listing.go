package repository

import (
	"cmp"
	"slices"
	"strings"

	"firsttap/dispatch"
)

// listing is a paged query of dispatches: a union of parts, each of which reads one index.
type listing struct {
	kind    byte   // of its cursors
	order   string // the column that the list is sorted by, descending; "" for the identifier alone
	columns string // "" for all
	parts   []part // disjoint
}

type part struct {
	index string
	where string
	args  []any
}

// and adds a condition to every part.
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

// sql returns the query of a page and one more dispatch. Each part reads no more than that: for one condition with OR, a
// server would sort all the rows that match.
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
		queries[i] = "SELECT " + cmp.Or(l.columns, "*") + " FROM dispatches {force " + p.index + "} WHERE " + p.where + " ORDER BY " + l.by() + " LIMIT ?"
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

// trimPage returns the rows of the page without the one more, and the cursor of the next page, "" after the last.
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
