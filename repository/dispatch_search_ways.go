package repository

import (
	"strings"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// matching reports whether a dispatch has all the terms.
func matching(terms []searchTerm) func(*dispatchRow) bool {
	return func(row *dispatchRow) bool { return haveAll(terms, string(row.ID), row.words()) }
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

// wordsThatBegin returns the words of the index that begin with each term, or nil for a term that is the beginning of more than
// followedWords. One statement seeks the next word of each term.
func (s *Store) wordsThatBegin(db *gorm.DB, terms []searchTerm) (words [][]string, err error) {
	words = make([][]string, len(terms))
	var open []int // the terms that may have more words
	for i := range terms {
		words[i], open = []string{}, append(open, i)
	}
	for len(open) > 0 {
		seeks, args := make([]string, len(open)), []any(nil)
		found, into := make([]*string, len(open)), make([]any, len(open))
		for k, i := range open {
			from := s.rangeOf(s.dispatchWords(), terms[i].Word)
			args = append(args, from.args...)
			if n := len(words[i]); n > 0 {
				from.from, args = from.from+" AND word > ?", append(args, words[i][n-1])
			}
			seeks[k], into[k] = "(SELECT word FROM "+from.from+" ORDER BY word LIMIT 1)", &found[k]
		}
		if err := db.Raw("SELECT "+strings.Join(seeks, ", "), args...).Row().Scan(into...); err != nil {
			return nil, unavailable(err)
		}
		var more []int
		for k, i := range open {
			switch {
			case found[k] == nil:
			case len(words[i]) == followedWords:
				words[i] = nil
			default:
				words[i], more = append(words[i], *found[k]), append(more, i)
			}
		}
		open = more
	}
	return words, nil
}

// followedTerms returns the sources of those terms that are the beginnings of few words.
func (s *Store) followedTerms(db *gorm.DB, terms []searchTerm) (sources []idSource, err error) {
	words, err := s.wordsThatBegin(db, terms)
	for i, t := range terms {
		if err == nil && words[i] != nil {
			sources = append(sources, s.followedIDs(db, t, words[i]))
		}
	}
	return sources, err
}

// followedIDs is the source of the dispatches that may have a term, which is the beginning of these words. For each word it follows the index from
// the newest dispatch on, and reads no further than it needs.
func (s *Store) followedIDs(db *gorm.DB, t searchTerm, words []string) idSource {
	all := s.withoutWords(s.dispatchWords(), t)
	for _, word := range words {
		all = append(all, idPart{"dispatch_id", "dispatch_words" + s.dialect.forceIndex("PRIMARY") + " WHERE word = ?", []any{word}})
	}
	return func(last string, size int) (ids []string, err error) {
		parts, args := make([]string, len(all)), []any(nil)
		for i, p := range all {
			args = append(args, p.args...)
			if last != "" {
				p.from += " AND " + p.column + " < ?"
				args = append(args, last)
			}
			parts[i] = "SELECT * FROM (SELECT " + p.column + " id FROM " + p.from + " ORDER BY " + p.column + " DESC LIMIT ?) p"
			args = append(args, size+1)
		}
		err = db.Raw("SELECT id FROM ("+strings.Join(parts, " UNION ")+") c ORDER BY id DESC LIMIT ?", append(args, size+1)...).Scan(&ids).Error
		return ids, unavailable(err)
	}
}
