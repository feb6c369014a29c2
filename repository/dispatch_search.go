package repository

import (
	"slices"
	"strings"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// countedTerms is how many terms a search counts. The others are checked all the same.
const countedTerms = 8

// search is List with a text. It reads the dispatches that may have the rarest term, or the list if all terms are common, the newest first,
// and checks each by its row. After searchReads of them it returns what it has found so far, with a cursor to go on.
func (s *Store) search(db *gorm.DB, q dispatch.Query) ([]dispatch.Dispatch, string, error) {
	l := s.dispatchListing(q)
	if q.Cursor != "" {
		if _, _, err := parseCursor(l.kind, q.Cursor, dispatch.ParseID); err != nil {
			return nil, "", err
		}
	}
	terms := dispatchTerms(q.Text)
	if len(terms) == 0 {
		return nil, "", nil
	}
	read := s.listWay(db, q)
	if q.Driver == "" { // a driver's list has another order
		i, rare, err := s.rarest(db, s.dispatchWords(), terms[:min(len(terms), countedTerms)])
		if err != nil {
			return nil, "", err
		}
		if rare {
			read = s.idWay(db, q, s.rareIDs(db, s.dispatchWords(), terms[i]))
		}
	}
	matches, rest, err := read.to(matching(terms)).page(q.Cursor, q.Limit)
	if err != nil {
		return nil, "", err
	}
	if len(matches) > q.Limit {
		matches, rest = trimPage(&l, matches[:q.Limit+1], q.Limit, itself)
	}
	items, err := s.readMatches(db, q, matches)
	return items, rest, err
}

func itself(row *dispatchRow) *dispatchRow { return row }

// readMatches reads the rows of a page.
func (s *Store) readMatches(db *gorm.DB, q dispatch.Query, matches []dispatchRow) ([]dispatch.Dispatch, error) {
	if len(matches) == 0 {
		return nil, nil
	}
	ids := make([]string, len(matches))
	for i := range matches {
		ids[i] = string(matches[i].ID)
	}
	l := s.listingOf(q, ids)
	rows, err := s.readListing(db, &l, dispatch.Page{Limit: len(ids)})
	return dispatchesOf(rows), err
}

// listingOf is the listing of those of the dispatches that q selects.
func (s *Store) listingOf(q dispatch.Query, ids []string) listing {
	l := s.dispatchListing(q)
	for i := range l.parts {
		l.parts[i].index = "PRIMARY"
	}
	l.and("id IN ?", ids)
	return l
}

// matching returns a function that reports whether a dispatch has all the terms. Most that have not lack the letters of one: that is soon seen.
func matching(terms []searchTerm) func(*dispatchRow) bool {
	return func(row *dispatchRow) bool {
		letters := withoutPunctuation(normalized(stringOrEmpty(row.ExternalID) + " " + row.SiteAddress + " " + row.Note))
		if slices.ContainsFunc(terms, func(t searchTerm) bool { return t.ID == "" && !strings.Contains(letters, withoutPunctuation(t.Word)) }) {
			return false
		}
		return haveAll(terms, string(row.ID), row.texts())
	}
}

const searchColumns = "id, accepted_at, " + textColumns

// listWay reads all dispatches that q selects.
func (s *Store) listWay(db *gorm.DB, q dispatch.Query) way[dispatchRow] {
	return func(after string, size int) (rows []dispatchRow, rest string, err error) {
		l := s.dispatchListing(q)
		l.columns = searchColumns
		if rows, err = readSearched(db, &l, dispatch.Page{Limit: size, Cursor: after}); err != nil {
			return nil, "", err
		}
		rows, rest = trimPage(&l, rows, size, itself)
		return rows, rest, nil
	}
}

// idWay reads those dispatches of a source that q selects.
func (s *Store) idWay(db *gorm.DB, q dispatch.Query, source idSource) way[dispatchRow] {
	return func(after string, size int) (rows []dispatchRow, rest string, err error) {
		last, err := lastBefore(dispatchList, after)
		if err != nil {
			return nil, "", err
		}
		ids, err := source(last, size)
		if err != nil || len(ids) == 0 {
			return nil, "", err
		}
		if len(ids) > size {
			ids = ids[:size]
			rest = cursor(dispatchList, 0, dispatch.ID(ids[size-1]))
		}
		l := s.listingOf(q, ids)
		l.columns = searchColumns
		rows, err = readSearched(db, &l, dispatch.Page{Limit: size})
		return rows, rest, err
	}
}

func readSearched(db *gorm.DB, l *listing, page dispatch.Page) (rows []dispatchRow, err error) {
	source, args, err := l.sql(page)
	if err != nil {
		return nil, err
	}
	err = db.Raw(source, args...).Scan(&rows).Error
	return rows, unavailable(err)
}
