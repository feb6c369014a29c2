package repository

import (
	"fmt"
	"slices"
	"strings"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

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
		last, err := dispatchCursor(after)
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

// dispatchCursor returns the last dispatch of the page before, "" for none. ErrBadCursor.
func dispatchCursor(after string) (last string, err error) {
	if after == "" {
		return "", nil
	}
	_, id, err := parseCursor(dispatchList, after, dispatch.ParseID)
	return string(id), err
}

func readSearched(db *gorm.DB, l *listing, page dispatch.Page) (rows []dispatchRow, err error) {
	source, args, err := l.sql(page)
	if err != nil {
		return nil, err
	}
	err = db.Raw(source, args...).Scan(&rows).Error
	return rows, unavailable(err)
}

// entriesAtOnce is how many entries of each term one statement reads to find the words that begin with it.
const entriesAtOnce = 50

// wordsThatBegin returns the words of the index that begin with each term, or nil for a term that is the beginning of more than
// followedWords. Each statement reads the next entries of all terms: where they are of the same word, the next one begins after it.
func (s *Store) wordsThatBegin(db *gorm.DB, terms []searchTerm) (words [][]string, err error) {
	words = make([][]string, len(terms))
	var open []int // the terms that may have more words
	for i := range terms {
		words[i], open = []string{}, append(open, i)
	}
	table := "dispatch_words" + s.dialect.forceIndex("PRIMARY")
	for len(open) > 0 {
		var parts []string
		var args []any
		for _, i := range open {
			where, bound := "word >= ?", terms[i].Word
			if n := len(words[i]); n > 0 { // in place of the first bound: SQLite seeks by one only
				where, bound = "word > ?", words[i][n-1]
			}
			parts = append(parts, fmt.Sprintf("SELECT DISTINCT term, word FROM (SELECT %d term, word FROM %s WHERE %s AND word < ? ORDER BY word LIMIT %d) p",
				i, table, where, entriesAtOnce))
			args = append(args, bound, terms[i].Word+afterAll)
		}
		var found []struct {
			Term int
			Word string
		}
		if err := db.Raw(strings.Join(parts, " UNION ALL ")+" ORDER BY term, word", args...).Scan(&found).Error; err != nil {
			return nil, unavailable(err)
		}
		more := make([]bool, len(terms))
		for _, f := range found {
			words[f.Term], more[f.Term] = append(words[f.Term], f.Word), true
		}
		open = nil
		for i := range terms {
			if len(words[i]) > followedWords {
				words[i] = nil
			} else if more[i] {
				open = append(open, i)
			}
		}
	}
	return words, nil
}

// followedTerms returns the parts of those terms that are the beginnings of few words.
func (s *Store) followedTerms(db *gorm.DB, terms []searchTerm) (all [][]idPart, err error) {
	words, err := s.wordsThatBegin(db, terms)
	for i, t := range terms {
		if err != nil || words[i] == nil {
			continue
		}
		if parts := s.followedParts(t, words[i]); len(parts) > 0 {
			all = append(all, parts)
		}
	}
	return all, err
}

// followedParts are the dispatches that may have a term, which is the beginning of these words.
func (s *Store) followedParts(t searchTerm, words []string) []idPart {
	parts := s.otherParts(s.dispatchWords(), t)
	for _, word := range slices.Concat(words, t.Ends) {
		parts = append(parts, idPart{"dispatch_id", "dispatch_words" + s.dialect.forceIndex("PRIMARY") + " WHERE word = ?", []any{word}})
	}
	return parts
}

// followedIDs is the source of the dispatches of the parts. For each part it follows an index from the newest dispatch on, and reads no further
// than it needs.
func followedIDs(db *gorm.DB, parts []idPart) idSource {
	return func(last string, size int) (ids []string, err error) {
		query, args := follow(parts, last, size)
		err = db.Raw(query, args...).Scan(&ids).Error
		return ids, unavailable(err)
	}
}

// follow is the SQL for the dispatches of the parts after last, one more than size.
func follow(parts []idPart, last string, size int) (query string, args []any) {
	all := make([]string, len(parts))
	for i, p := range parts {
		args = append(args, p.args...)
		if last != "" {
			p.from += " AND " + p.column + " < ?"
			args = append(args, last)
		}
		all[i] = "SELECT * FROM (SELECT " + p.column + " id FROM " + p.from + " ORDER BY " + p.column + " DESC LIMIT ?) p"
		args = append(args, size+1)
	}
	return "SELECT id FROM (" + strings.Join(all, " UNION ") + ") c ORDER BY id DESC LIMIT ?", append(args, size+1)
}

// furthest returns the source of the term whose entries reach back the furthest with a stretch after last, nil without terms. One statement reads
// the stretches of all.
func furthest(db *gorm.DB, terms [][]idPart, last string, size int) (idSource, error) {
	switch len(terms) {
	case 0:
		return nil, nil
	case 1:
		return followedIDs(db, terms[0]), nil
	}
	stretches, args := make([]string, len(terms)), []any(nil)
	for i, parts := range terms {
		query, values := follow(parts, last, size)
		stretches[i], args = fmt.Sprintf("SELECT %d term, id FROM (%s) s", i, query), append(args, values...)
	}
	var found []struct {
		Term int
		ID   string
	}
	if err := db.Raw(strings.Join(stretches, " UNION ALL ")+" ORDER BY id DESC", args...).Scan(&found).Error; err != nil {
		return nil, unavailable(err)
	}
	ids := make([][]string, len(terms))
	for _, f := range found {
		ids[f.Term] = append(ids[f.Term], f.ID)
	}
	end := func(term int) string {
		if len(ids[term]) <= size {
			return "" // before all dispatches
		}
		return ids[term][size-1]
	}
	best := 0
	for i := range ids {
		if end(i) < end(best) {
			best = i
		}
	}
	source := followedIDs(db, terms[best])
	return func(after string, size int) ([]string, error) {
		if after == last {
			return ids[best], nil
		}
		return source(after, size)
	}, nil
}
