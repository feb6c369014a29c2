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

// Change replaces the words of one row. ErrUnavailable.
func (x Index) Change(tx database.Tx, id string, was, is []string) error {
	if err := x.Remove(tx, id, without(was, is)); err != nil {
		return err
	}
	return x.Add(tx, Entries(id, without(is, was)))
}

// without returns the words that are not among the others.
func without(words, others []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(word string) bool { return slices.Contains(others, word) })
}

// Remove removes words of one row. ErrUnavailable.
func (x Index) Remove(tx database.Tx, id string, words []string) error {
	if len(words) == 0 {
		return nil
	}
	// Without the index, a server may look at all rows of a small table, and wait for those that others change.
	query := "{delete w} FROM " + x.Entries + " AS w {force PRIMARY} WHERE w.word IN ? AND w." + x.ID + " = ?"
	return database.Unavailable(tx.Exec(query, words, id).Error)
}

// Add writes the entries that are not there yet, in the order of their keys: transactions at the same time don't wait for each other
// in a circle. ErrUnavailable.
func (x Index) Add(tx database.Tx, entries []Entry) error {
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Word, b.Word), cmp.Compare(a.ID, b.ID)) })
	for part := range slices.Chunk(entries, database.FewRows) {
		args := make([]any, 0, 2*len(part))
		for _, e := range part {
			args = append(args, e.Word, e.ID)
		}
		query := "INSERT INTO " + x.Entries + " (word, " + x.ID + ") VALUES " + database.Placeholders(len(part), 2)
		if err := tx.Exec(query+" {or_update} word = {new word}", args...).Error; err != nil {
			return database.Unavailable(err)
		}
	}
	return nil
}

const (
	// MaxReads bounds how many rows a search reads, and how many entries of a term.
	MaxReads = 10_000
	// countedTerms is how many terms a search looks up in the index. The others are checked all the same.
	countedTerms = 8
	// fewRows are so few that a search does not look for a term that is rarer still.
	fewRows = 100
	// afterAll is after everything that begins with a word, when it is appended to it.
	afterAll = "\U0010FFFF"
)

// rarest returns the identifiers of the rows that may have the rarest term, the newest first. Common is true, and there are none, if each
// term has more than MaxReads entries.
func (x Index) rarest(db database.Tx, terms []Term) (ids []string, common bool, err error) {
	common = true
	for _, t := range terms[:min(len(terms), countedTerms)] {
		if many, err := x.isCommon(db, t); err != nil {
			return nil, false, err
		} else if many {
			continue
		}
		having, err := x.having(db, t)
		if err != nil {
			return nil, false, err
		}
		if common || len(having) < len(ids) {
			ids, common = having, false
		}
		if len(ids) <= fewRows {
			break
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	slices.Reverse(ids)
	return ids, common, nil
}

// entriesOf returns the condition on an index's entries for a term.
func entriesOf(t Term) (where string, args []any) {
	parts := make([]string, len(t.Begins))
	for i, begin := range t.Begins {
		parts[i], args = "word >= ? AND word < ?", append(args, begin, begin+afterAll)
	}
	return strings.Join(parts, " OR "), args
}

// namedBy is the condition on the identifiers that begin so.
const namedBy = "id >= ? AND id < ?"

// isCommon reports whether the term has more than MaxReads entries: the server counts them, and sends none.
func (x Index) isCommon(db database.Tx, t Term) (many bool, err error) {
	where, args := entriesOf(t)
	query := "SELECT (SELECT 1 FROM " + x.Entries + " {force PRIMARY} WHERE " + where + " LIMIT 1 OFFSET ?) IS NOT NULL"
	args = append(args, MaxReads)
	if t.ID != "" {
		query += " OR (SELECT 1 FROM " + x.Rows + " {force PRIMARY} WHERE " + namedBy + " LIMIT 1 OFFSET ?) IS NOT NULL"
		args = append(args, t.ID, t.ID+"~", MaxReads)
	}
	return many, database.Unavailable(db.Raw(query, args...).Scan(&many).Error)
}

// having returns an identifier for each entry of a term that has no more than MaxReads.
func (x Index) having(db database.Tx, t Term) (ids []string, err error) {
	where, args := entriesOf(t)
	query := "SELECT " + x.ID + " FROM " + x.Entries + " {force PRIMARY} WHERE " + where + " LIMIT ?"
	if err := db.Raw(query, append(args, MaxReads)...).Scan(&ids).Error; err != nil || t.ID == "" {
		return ids, database.Unavailable(err)
	}
	var named []string
	query = "SELECT id FROM " + x.Rows + " {force PRIMARY} WHERE " + namedBy + " LIMIT ?"
	err = db.Raw(query, t.ID, t.ID+"~", MaxReads).Scan(&named).Error
	return append(ids, named...), database.Unavailable(err)
}
