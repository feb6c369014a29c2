package dispatches

import (
	"cmp"
	"slices"
	"strings"

	"firsttap/dispatch"
	"firsttap/repository/database"
)

// Listing is a paged query of dispatches: a union of parts, each of which reads one index.
type Listing struct {
	Kind    byte   // of its cursors
	Order   string // the column that the list is sorted by, descending; "" for the identifier alone
	columns string // "" for all
	Parts   []Part // disjoint
}

// Part is what a Listing reads by one index: the rows of dispatches for which where is true.
type Part struct {
	Index string
	Where string
	Args  []any
}

// And adds a condition to every part.
func (l *Listing) And(where string, args ...any) {
	for i := range l.Parts {
		p := &l.Parts[i]
		p.Where += " AND " + where
		p.Args = append(slices.Clip(p.Args), args...)
	}
}

func (l *Listing) by() string {
	if l.Order == "" {
		return "id DESC"
	}
	return l.Order + " DESC, id DESC"
}

// SQL returns the query of a page and one more dispatch. Each part reads no more than that: for one condition with OR, a
// server would sort all the rows that match.
func (l *Listing) SQL(page dispatch.Page) (string, []any, error) {
	if page.Cursor != "" {
		at, id, err := database.ParseCursor(l.Kind, page.Cursor, dispatch.ParseID)
		switch {
		case err != nil:
			return "", nil, err
		case l.Order == "":
			l.And("id < ?", id)
		default:
			l.And("("+l.Order+" < ? OR "+l.Order+" = ? AND id < ?)", at, at, id)
		}
	}
	var args []any
	queries := make([]string, len(l.Parts))
	for i, p := range l.Parts {
		queries[i] = "SELECT " + cmp.Or(
			l.columns, "*",
		) + " FROM dispatches {force " + p.Index + "} WHERE " + p.Where + " ORDER BY " + l.by() + " LIMIT ?"
		args = append(append(args, p.Args...), page.Limit+1)
	}
	if len(queries) == 1 {
		return queries[0], args, nil
	}
	for i := range queries {
		queries[i] = "SELECT * FROM (" + queries[i] + ") q"
	}
	return strings.Join(queries, " UNION ALL ") + " ORDER BY " + l.by() + " LIMIT ?", append(args, page.Limit+1), nil
}

// TrimPage returns the rows of the page without the one more, and the cursor of the next page, "" after the last.
func TrimPage[T any](l *Listing, rows []T, limit int, of func(*T) *Row) ([]T, string) {
	if len(rows) <= limit {
		return rows, ""
	}
	rows = slices.Clip(rows[:limit])
	var at int64
	switch last := of(&rows[limit-1]); {
	case l.Order == "opens_at":
		at = last.OpensAt
	case last.AcceptedAt != nil:
		at = *last.AcceptedAt
	}
	return rows, database.Cursor(l.Kind, at, of(&rows[limit-1]).ID)
}
