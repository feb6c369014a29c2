package search

import (
	"slices"

	"firsttap/dispatch"
	"firsttap/repository/database"
)

// List is a list of rows that are found by their words. It is sorted by the identifier, the newest first.
type List[R any] struct {
	Index Index
	// Of returns the list, or those of its rows that have one of the identifiers unless ids is nil.
	Of func(ids []string) database.Listing
	// Cursor returns the cursor of the page after a row.
	Cursor func(*R) string
	// Words returns a row's identifier, and its words as they are in the index.
	Words func(*R) (id string, words []string)
	// Text, if it is not nil, returns the text that all words of the row are made of: most rows that lack a term are known by it.
	Text func(*R) string
}

// minRead is how many rows of a list a search reads at least: most searches have read enough then.
const minRead = 32

// Find returns a page of the rows that have all terms, and the cursor of the next one, "" after the last. Without terms it finds none.
//
// It reads the rows that may have the rarest term, or the list if all terms are common, and checks each row against all terms. After
// MaxReads rows it returns what it has found so far, with a cursor to go on: a page may be short, or empty, although there is a next one.
// ErrBadCursor, ErrUnavailable.
func (l List[R]) Find(db database.Tx, terms []Term, page dispatch.Page) ([]R, string, error) {
	_, last, err := l.Of(nil).Last(page.Cursor)
	if err != nil || len(terms) == 0 {
		return nil, "", err
	}
	ids, common, err := l.Index.rarest(db, terms)
	switch {
	case err != nil:
		return nil, "", err
	case common:
		return l.findInList(db, terms, page)
	case last != "":
		ids = slices.DeleteFunc(ids, func(id string) bool { return id >= last })
	}
	return l.findAmong(db, ids, terms, page.Limit)
}

// findAmong reads the rows with these identifiers until it has found a page.
func (l List[R]) findAmong(db database.Tx, ids []string, terms []Term, limit int) (found []R, next string, err error) {
	for part := range slices.Chunk(ids, database.FewRows) {
		rows, _, err := database.ReadListing(db, l.Of(part), dispatch.Page{Limit: len(part)}, l.Cursor)
		if err != nil {
			return nil, "", err
		}
		if found = append(found, l.having(terms, rows)...); len(found) > limit {
			break
		}
	}
	found, next = database.Trim(found, limit, l.Cursor)
	return found, next, nil
}

// findInList reads the list from the page's cursor on, until it has found a page or read MaxReads rows. Each time it reads twice as many
// rows: where few rows match, few statements do.
func (l List[R]) findInList(db database.Tx, terms []Term, page dispatch.Page) (found []R, next string, err error) {
	next = page.Cursor
	size := max(page.Limit+1, minRead)
	for read := 0; read < MaxReads; read, size = read+size, 2*size {
		size = min(size, database.RowsPerStatement, MaxReads-read)
		var rows []R
		if rows, next, err = database.ReadListing(db, l.Of(nil), dispatch.Page{Cursor: next, Limit: size}, l.Cursor); err != nil {
			return nil, "", err
		}
		if found = append(found, l.having(terms, rows)...); len(found) > page.Limit || next == "" {
			break
		}
	}
	if len(found) > page.Limit {
		found, next = database.Trim(found, page.Limit, l.Cursor)
	}
	return found, next, nil
}

// having returns those of the rows that have all terms.
func (l List[R]) having(terms []Term, rows []R) []R {
	return slices.DeleteFunc(rows, func(row R) bool {
		if l.Text != nil && !mayHaveAll(terms, l.Text(&row)) {
			return true
		}
		id, words := l.Words(&row)
		return !HaveAll(terms, id, words)
	})
}
