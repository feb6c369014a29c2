package search

import (
	"cmp"
	"slices"
	"strings"

	"firsttap/repository/database"
)

// Index is a table with an entry for each word of each row of another table, by which a search finds the rows. Whatever changes a row's
// text updates the index in its own transaction. Words are compared by bytes. A search checks the rows that it finds, so a word that is
// left over in the index finds nothing.
type Index struct {
	Entries, ID string // the table of the entries, and its column of the row's identifier
	Rows        string // the table of the rows
	TiDB        bool
}

// Entry is an entry of an index.
type Entry struct{ Word, ID string }

// Entries returns an entry for each word of a row.
func Entries[ID ~string](id ID, words []string) []Entry {
	entries := make([]Entry, len(words))
	for i, word := range words {
		entries[i] = Entry{word, string(id)}
	}
	return entries
}

// Change replaces the words of one row.
func (x *Index) Change(tx database.Tx, id string, was, is []string) error {
	if err := x.Remove(tx, id, without(was, is)); err != nil {
		return err
	}
	return x.Add(tx, Entries(id, without(is, was)))
}

// without returns the words that are not among the others.
func without(words, others []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(word string) bool { return slices.Contains(others, word) })
}

// Remove removes words of one row.
func (x *Index) Remove(tx database.Tx, id string, words []string) error {
	if len(words) == 0 {
		return nil
	}
	// Without the index, a server may look at all rows of a small table, and wait for those that others change.
	return database.Unavailable(
		tx.Exec("{delete w} FROM "+x.Entries+" AS w {force PRIMARY} WHERE w.word IN ? AND w."+x.ID+" = ?", words, id).Error,
	)
}

// Add writes the entries that are not there yet, in the order of their keys: transactions at the same time don't wait for each other
// in a circle.
func (x *Index) Add(tx database.Tx, entries []Entry) error {
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Word, b.Word), cmp.Compare(a.ID, b.ID)) })
	for part := range slices.Chunk(entries, database.FewRows) {
		args := make([]any, 0, 2*len(part))
		for _, e := range part {
			args = append(args, e.Word, e.ID)
		}
		err := tx.Exec(
			"INSERT INTO "+x.Entries+" (word, "+x.ID+") VALUES "+database.Placeholders(len(part), 2)+" {or_update} word = {new word}",
			args...).Error
		if err != nil {
			return database.Unavailable(err)
		}
	}
	return nil
}

// Part is the SQL for some of the rows that may have a term: what follows FROM, with the column that has the identifier.
type Part struct {
	Column, From string
	Args         []any
}

// afterAll is after everything that begins with a word, when it is appended to it.
const afterAll = "\U0010FFFF"

// rangeOf is the part of the index with the words that begin so.
func (x *Index) rangeOf(begin string) Part {
	return Part{x.ID, x.Entries + " {force PRIMARY} WHERE word >= ? AND word < ?", []any{begin, begin + afterAll}}
}

// partsOf are the rows that may have the term: those with a word that begins so, with such an identifier, or with one of the other words.
func (x *Index) partsOf(t Term) []Part {
	parts := []Part{x.rangeOf(t.Word)}
	if t.ID != "" {
		parts = append(parts, Part{"id", x.Rows + " {force PRIMARY} WHERE id >= ? AND id < ?", []any{t.ID, t.ID + "~"}})
	}
	for _, word := range t.Also {
		parts = append(parts, x.rangeOf(word))
	}
	if len(t.Ends) > 0 {
		parts = append(parts, Part{x.ID, x.Entries + " {force PRIMARY} WHERE word IN ?", []any{t.Ends}})
	}
	return parts
}

// Rarest returns the index of the rarest term, and whether no more than searchReads rows may have it, which it counts up to some more.
func (x *Index) Rarest(db database.Tx, terms []Term) (term int, rare bool, err error) {
	sums, args := make([]string, len(terms)), []any(nil)
	for i, t := range terms {
		var sum []string
		for _, p := range x.partsOf(t) {
			query, values := x.countSome(p)
			sum, args = append(sum, query), append(args, values...)
		}
		sums[i] = strings.Join(sum, " + ")
	}
	counts, into := make([]int, len(terms)), make([]any, len(terms))
	for i := range counts {
		into[i] = &counts[i]
	}
	if err := db.Raw("SELECT "+strings.Join(sums, ", "), args...).Row().Scan(into...); err != nil {
		return 0, false, database.Unavailable(err)
	}
	fewest := slices.Min(counts)
	return slices.Index(counts, fewest), fewest <= MaxReads, nil
}

// countSome is the SQL for how many entries a part has, up to some more than searchReads.
func (x *Index) countSome(p Part) (query string, args []any) {
	if x.TiDB { // it evaluates both branches of a CASE
		return "(SELECT COUNT(*) FROM (SELECT 1 FROM " + p.From + " LIMIT ?) c)", slices.Concat(p.Args, []any{MaxReads + 1})
	}
	// A COUNT with a LIMIT would write what it counts to a temporary table.
	return "CASE WHEN (SELECT 1 FROM " + p.From + " LIMIT 1 OFFSET ?) = 1 THEN ? ELSE (SELECT COUNT(*) FROM " + p.From + ") END",
		slices.Concat(p.Args, []any{MaxReads, MaxReads + 1}, p.Args)
}

// Source returns the rows after last, or from the newest on, and at least one more than size unless it ends.
type Source func(last string, size int) ([]string, error)

// Rare is the source of the rows that may have a rare term.
func (x *Index) Rare(db database.Tx, t Term) Source {
	return ReadOnce(db, x.partsOf(t))
}

// ReadOnce is the source of the rows of the parts, for one search. It reads them once, and no more than a search may ask for.
func ReadOnce(db database.Tx, of []Part) Source {
	var ids []string
	return func(last string, _ int) ([]string, error) {
		if ids != nil {
			i, _ := slices.BinarySearchFunc(ids, last, func(id, last string) int { return strings.Compare(last, id) })
			return ids[min(i+1, len(ids)):], nil
		}
		var parts []string
		var args []any
		for _, p := range of {
			parts, args = append(parts, "SELECT "+p.Column+" id FROM "+p.From), append(args, p.Args...)
		}
		query := "SELECT id FROM (" + strings.Join(parts, " UNION ") + ") c"
		if last != "" {
			query, args = query+" WHERE id < ?", append(args, last)
		}
		ids = []string{}
		err := db.Raw(query+" ORDER BY id DESC LIMIT ?", append(args, MaxReads+MaxStretch)...).Scan(&ids).Error
		return ids, database.Unavailable(err)
	}
}

// CountedTerms is how many terms a search counts. The others are checked all the same.
const CountedTerms = 8
