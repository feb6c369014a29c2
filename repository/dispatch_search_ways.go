package repository

import (
	"slices"
	"strings"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/migrations"
)

// A way reads the next stretch of a list from the cursor on, up to size dispatches. It may leave out dispatches that do not match.
type way func(cursor string, size int) (stretch, error)

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
		ids, err := source(last, size)
		if err != nil || len(ids) == 0 {
			return p, err
		}
		if len(ids) > size {
			ids = ids[:size]
			p.last = ids[size-1]
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

// idSource returns the dispatches after last, or from the newest on, and at least one more than size unless it ends.
type idSource func(last dispatch.ID, size int) ([]dispatch.ID, error)

// idPart is the SQL for some of the dispatches that may have a term: what follows FROM, with the column that has the dispatch.
type idPart struct {
	column, from string
	args         []any
}

// afterAll is after everything that begins with a word, when it is appended to it.
const afterAll = "\U0010FFFF"

// rangeOf is the part of the index with the words that begin with the term.
func (s *Store) rangeOf(t searchTerm) idPart {
	return idPart{"dispatch_id", "dispatch_words" + s.dialect.forceIndex("PRIMARY") + " WHERE word >= ? AND word < ?", []any{t.Word, t.Word + afterAll}}
}

// withoutWords are the dispatches that may have the term without having such a word in the index: those that are not indexed, and those with such
// an identifier.
func (s *Store) withoutWords(t searchTerm) []idPart {
	parts := []idPart{{column: "id", from: s.unindexedDispatches()}}
	if t.ID != "" {
		parts = append(parts, idPart{"id", "dispatches" + s.dialect.forceIndex("PRIMARY") + " WHERE id >= ? AND id < ?", []any{t.ID, t.ID + "~"}})
	}
	return parts
}

// counts are how many dispatches may have each term, up to some more than searchReads, and whether any is not indexed.
type counts struct {
	terms     []int
	unindexed bool
}

func (s *Store) countTerms(db *gorm.DB, terms []searchTerm) (counts, error) {
	sums, args := make([]string, len(terms)), []any(nil)
	for i, t := range terms {
		var sum []string
		for _, p := range append(s.withoutWords(t), s.rangeOf(t)) {
			query, values := s.countSome(p)
			sum, args = append(sum, query), append(args, values...)
		}
		sums[i] = strings.Join(sum, " + ")
	}
	c := counts{terms: make([]int, len(terms))}
	into := []any{&c.unindexed}
	for i := range terms {
		into = append(into, &c.terms[i])
	}
	query := "SELECT EXISTS (SELECT 1 FROM " + s.unindexedDispatches() + "), " + strings.Join(sums, ", ")
	err := db.Raw(query, args...).Row().Scan(into...)
	return c, unavailable(err)
}

// countSome is the SQL for how many entries a part has, up to some more than searchReads.
func (s *Store) countSome(p idPart) (query string, args []any) {
	if s.dialect.name == migrations.TiDB { // it evaluates both branches of a CASE
		return "(SELECT COUNT(*) FROM (SELECT 1 FROM " + p.from + " LIMIT ?) c)", slices.Concat(p.args, []any{searchReads + 1})
	}
	// A COUNT with a LIMIT would write what it counts to a temporary table.
	return "CASE WHEN (SELECT 1 FROM " + p.from + " LIMIT 1 OFFSET ?) = 1 THEN ? ELSE (SELECT COUNT(*) FROM " + p.from + ") END",
		slices.Concat(p.args, []any{searchReads, searchReads + 1}, p.args)
}

// rareIDs is the source of the dispatches that may have a rare term. It reads them once.
func (s *Store) rareIDs(db *gorm.DB, t searchTerm) idSource {
	var ids []dispatch.ID
	return func(last dispatch.ID, _ int) ([]dispatch.ID, error) {
		if ids != nil {
			i, _ := slices.BinarySearchFunc(ids, last, func(id, last dispatch.ID) int { return strings.Compare(string(last), string(id)) })
			return ids[min(i+1, len(ids)):], nil
		}
		var parts []string
		var args []any
		for _, p := range append(s.withoutWords(t), s.rangeOf(t)) {
			parts, args = append(parts, "SELECT "+p.column+" id FROM "+p.from), append(args, p.args...)
		}
		query := "SELECT id FROM (" + strings.Join(parts, " UNION ") + ") c"
		if last != "" {
			query, args = query+" WHERE id < ?", append(args, last)
		}
		ids = []dispatch.ID{}
		err := db.Raw(query+" ORDER BY id DESC LIMIT ?", append(args, searchReads+1)...).Scan(&ids).Error
		return ids, unavailable(err)
	}
}

// wordsThatBegin returns the words of the index that begin with the term, and whether those are all: it seeks up to followedWords.
func (s *Store) wordsThatBegin(db *gorm.DB, t searchTerm) (words []string, all bool, err error) {
	from := s.rangeOf(t)
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
	all := s.withoutWords(t)
	for _, word := range words {
		all = append(all, idPart{"dispatch_id", "dispatch_words" + s.dialect.forceIndex("PRIMARY") + " WHERE word = ?", []any{word}})
	}
	return func(last dispatch.ID, size int) (ids []dispatch.ID, err error) {
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
