package repository

import (
	"slices"
	"strings"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// A way reads the next stretch of a list from the cursor on, up to size dispatches. It may leave out dispatches that do not match.
type way func(cursor string, size int) (stretch, error)

// to is the way that leaves out what does not have all the terms.
func (w way) to(terms []searchTerm) way {
	return func(cursor string, size int) (stretch, error) {
		p, err := w(cursor, size)
		p.rows = slices.DeleteFunc(p.rows, func(row dispatchRow) bool { return !haveAll(terms, string(row.ID), row.words()) })
		return p, err
	}
}

// stretch is some dispatches, the newest first.
type stretch struct {
	rows []dispatchRow // with searchColumns
	last dispatch.ID   // the last dispatch that was read or left out, "" at the end
	rest string        // the cursor to go on, "" at the end
}

const searchColumns = "id, accepted_at, " + textColumns

// listWay reads all dispatches that q selects.
func (s *Store) listWay(db *gorm.DB, q dispatch.Query) way {
	return func(after string, size int) (p stretch, err error) {
		l := s.dispatchListing(q)
		l.columns = searchColumns
		if p.rows, err = readSearched(db, &l, dispatch.Page{Limit: size, Cursor: after}); err != nil {
			return p, err
		}
		if p.rows, p.rest = trimPage(&l, p.rows, size, itself); p.rest != "" {
			p.last = p.rows[len(p.rows)-1].ID
		}
		return p, nil
	}
}

// idWay reads those dispatches of a source that q selects.
func (s *Store) idWay(db *gorm.DB, q dispatch.Query, source idSource) way {
	return func(after string, size int) (p stretch, err error) {
		var last dispatch.ID
		if after != "" {
			if _, last, err = parseCursor(dispatchList, after, dispatch.ParseID); err != nil {
				return p, err
			}
		}
		ids, err := source(string(last), size)
		if err != nil || len(ids) == 0 {
			return p, err
		}
		if len(ids) > size {
			ids = ids[:size]
			p.last = dispatch.ID(ids[size-1])
			p.rest = cursor(dispatchList, 0, p.last)
		}
		l := s.listingOf(q, ids)
		l.columns = searchColumns
		p.rows, err = readSearched(db, &l, dispatch.Page{Limit: size})
		return p, err
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

// wordsThatBegin returns the words of the index that begin with the term, and whether those are all: it seeks up to followedWords.
func (s *Store) wordsThatBegin(db *gorm.DB, t searchTerm) (words []string, all bool, err error) {
	from := s.rangeOf(s.dispatchWords(), t.Word)
	for after := " AND word >= ?"; len(words) <= followedWords; after = " AND word > ?" {
		least := t.Word
		if len(words) > 0 {
			least = words[len(words)-1]
		}
		var next []string
		err := db.Raw("SELECT word FROM "+from.from+after+" ORDER BY word LIMIT 1", append(slices.Clone(from.args), least)...).Scan(&next).Error
		if err != nil || len(next) == 0 {
			return words, true, unavailable(err)
		}
		words = append(words, next[0])
	}
	return nil, false, nil
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
