package repository

import (
	"cmp"
	"slices"
	"strings"

	"gorm.io/gorm"

	"firsttap/migrations"
)

// wordIndex is a table with an entry for each word of each row of another table, by which a search finds the rows. Whatever changes a row's
// text updates the index in its own transaction. Words are compared by bytes. A search checks the rows that it finds, so a word that is
// left over in the index finds nothing.
type wordIndex struct {
	entries, id string // the table of the entries, and its column of the row's identifier
	rows        string // the table of the rows
}

// wordEntry is an entry of an index.
type wordEntry struct{ word, id string }

func wordEntries[ID ~string](id ID, words []string) []wordEntry {
	entries := make([]wordEntry, len(words))
	for i, word := range words {
		entries[i] = wordEntry{word, string(id)}
	}
	return entries
}

func (s *Store) dispatchWords() wordIndex {
	return wordIndex{entries: "dispatch_words", id: "dispatch_id", rows: "dispatches"}
}

// changeWords replaces the words of one row.
func (s *Store) changeWords(tx *gorm.DB, x wordIndex, id string, was, is []string) error {
	if err := s.removeWords(tx, x, id, without(was, is)); err != nil {
		return err
	}
	return s.addWords(tx, x, wordEntries(id, without(is, was)))
}

// without returns the words that are not among the others.
func without(words, others []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(word string) bool { return slices.Contains(others, word) })
}

// removeWords removes words of one row.
func (s *Store) removeWords(tx *gorm.DB, x wordIndex, id string, words []string) error {
	if len(words) == 0 {
		return nil
	}
	// Without the index, a server may look at all rows of a small table, and wait for those that others change.
	return unavailable(tx.Exec("{delete w} FROM "+x.entries+" AS w {force PRIMARY} WHERE w.word IN ? AND w."+x.id+" = ?", words, id).Error)
}

// addWords writes the entries that are not there yet, in the order of their keys: transactions at the same time don't wait for each other
// in a circle.
func (s *Store) addWords(tx *gorm.DB, x wordIndex, entries []wordEntry) error {
	slices.SortFunc(entries, func(a, b wordEntry) int { return cmp.Or(cmp.Compare(a.word, b.word), cmp.Compare(a.id, b.id)) })
	for part := range slices.Chunk(entries, entriesPerStatement) {
		args := make([]any, 0, 2*len(part))
		for _, e := range part {
			args = append(args, e.word, e.id)
		}
		err := tx.Exec("INSERT INTO "+x.entries+" (word, "+x.id+") VALUES "+placeholders(len(part), 2)+" {or_update} word = {new word}", args...).Error
		if err != nil {
			return unavailable(err)
		}
	}
	return nil
}

// idPart is the SQL for some of the rows that may have a term: what follows FROM, with the column that has the identifier.
type idPart struct {
	column, from string
	args         []any
}

// afterAll is after everything that begins with a word, when it is appended to it.
const afterAll = "\U0010FFFF"

// rangeOf is the part of the index with the words that begin so.
func (s *Store) rangeOf(x wordIndex, begin string) idPart {
	return idPart{x.id, x.entries + " {force PRIMARY} WHERE word >= ? AND word < ?", []any{begin, begin + afterAll}}
}

// partsOf are the rows that may have the term: those with a word that begins so, with such an identifier, or with one of the other words.
func (s *Store) partsOf(x wordIndex, t searchTerm) []idPart {
	parts := []idPart{s.rangeOf(x, t.Word)}
	if t.ID != "" {
		parts = append(parts, idPart{"id", x.rows + " {force PRIMARY} WHERE id >= ? AND id < ?", []any{t.ID, t.ID + "~"}})
	}
	for _, word := range t.Also {
		parts = append(parts, s.rangeOf(x, word))
	}
	if len(t.Ends) > 0 {
		parts = append(parts, idPart{x.id, x.entries + " {force PRIMARY} WHERE word IN ?", []any{t.Ends}})
	}
	return parts
}

// rarest returns the index of the rarest term, and whether no more than searchReads rows may have it, which it counts up to some more.
func (s *Store) rarest(db *gorm.DB, x wordIndex, terms []searchTerm) (term int, rare bool, err error) {
	sums, args := make([]string, len(terms)), []any(nil)
	for i, t := range terms {
		var sum []string
		for _, p := range s.partsOf(x, t) {
			query, values := s.countSome(p)
			sum, args = append(sum, query), append(args, values...)
		}
		sums[i] = strings.Join(sum, " + ")
	}
	counts, into := make([]int, len(terms)), make([]any, len(terms))
	for i := range counts {
		into[i] = &counts[i]
	}
	if err := db.Raw("SELECT "+strings.Join(sums, ", "), args...).Row().Scan(into...); err != nil {
		return 0, false, unavailable(err)
	}
	fewest := slices.Min(counts)
	return slices.Index(counts, fewest), fewest <= searchReads, nil
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

// idSource returns the rows after last, or from the newest on, and at least one more than size unless it ends.
type idSource func(last string, size int) ([]string, error)

// rareIDs is the source of the rows that may have a rare term.
func (s *Store) rareIDs(db *gorm.DB, x wordIndex, t searchTerm) idSource {
	return readOnce(db, s.partsOf(x, t))
}

// readOnce is the source of the rows of the parts, for one search. It reads them once, and no more than a search may ask for.
func readOnce(db *gorm.DB, of []idPart) idSource {
	var ids []string
	return func(last string, _ int) ([]string, error) {
		if ids != nil {
			i, _ := slices.BinarySearchFunc(ids, last, func(id, last string) int { return strings.Compare(last, id) })
			return ids[min(i+1, len(ids)):], nil
		}
		var parts []string
		var args []any
		for _, p := range of {
			parts, args = append(parts, "SELECT "+p.column+" id FROM "+p.from), append(args, p.args...)
		}
		query := "SELECT id FROM (" + strings.Join(parts, " UNION ") + ") c"
		if last != "" {
			query, args = query+" WHERE id < ?", append(args, last)
		}
		ids = []string{}
		err := db.Raw(query+" ORDER BY id DESC LIMIT ?", append(args, searchReads+maxStretch)...).Scan(&ids).Error
		return ids, unavailable(err)
	}
}
