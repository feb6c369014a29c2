package dispatches

import (
	"slices"
	"strings"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/search"
)

// search is List with a text. It reads the dispatches that may have the rarest term, or the list if all terms are common, the newest first,
// and checks each by its row. After searchReads of them it returns what it has found so far, with a cursor to go on.
func (s *Dispatches) search(db database.Tx, q dispatch.Query) ([]dispatch.Dispatch, string, error) {
	l := dispatchListing(q)
	if q.Cursor != "" {
		if _, _, err := database.ParseCursor(l.Kind, q.Cursor, dispatch.ParseID); err != nil {
			return nil, "", err
		}
	}
	terms := dispatchTerms(q.Text)
	if len(terms) == 0 {
		return nil, "", nil
	}
	read := s.scanList(db, q)
	if q.Driver == "" { // a driver's list has another order
		i, rare, err := s.words.Rarest(db, terms[:min(len(terms), search.CountedTerms)])
		if err != nil {
			return nil, "", err
		}
		if rare {
			read = s.scanIDs(db, q, s.words.Rare(db, terms[i]))
		}
	}
	matches, rest, err := read.Where(matching(terms)).Page(q.Cursor, q.Limit)
	if err != nil {
		return nil, "", err
	}
	if len(matches) > q.Limit {
		matches, rest = TrimPage(&l, matches[:q.Limit+1], q.Limit, itself)
	}
	items, err := s.readMatches(db, q, matches)
	return items, rest, err
}

func itself(row *Row) *Row { return row }

// readMatches reads the rows of a page.
func (s *Dispatches) readMatches(db database.Tx, q dispatch.Query, matches []Row) ([]dispatch.Dispatch, error) {
	if len(matches) == 0 {
		return nil, nil
	}
	ids := make([]string, len(matches))
	for i := range matches {
		ids[i] = string(matches[i].ID)
	}
	l := s.listingOf(q, ids)
	rows, err := readListing(db, &l, dispatch.Page{Limit: len(ids)})
	return dispatchesOf(rows), err
}

// listingOf is the listing of those of the dispatches that q selects.
func (s *Dispatches) listingOf(q dispatch.Query, ids []string) Listing {
	l := dispatchListing(q)
	for i := range l.Parts {
		l.Parts[i].Index = "PRIMARY"
	}
	l.And("id IN ?", ids)
	return l
}

// matching returns a function that reports whether a dispatch has all the terms. Most that have not lack the letters of one: that is soon
// seen.
func matching(terms []search.Term) func(*Row) bool {
	return func(row *Row) bool {
		letters := search.WithoutPunctuation(search.Normalized(database.StringOrEmpty(row.ExternalID) + " " + row.SiteAddress + " " + row.Note))
		if slices.ContainsFunc(terms, func(t search.Term) bool {
			return t.ID == "" && !strings.Contains(letters, search.WithoutPunctuation(t.Word))
		}) {
			return false
		}
		return search.HaveAll(terms, string(row.ID), row.texts())
	}
}

const searchColumns = "id, accepted_at, " + textColumns

// scanList reads all dispatches that q selects.
func (s *Dispatches) scanList(db database.Tx, q dispatch.Query) search.Scan[Row] {
	return func(after string, size int) (rows []Row, rest string, err error) {
		l := dispatchListing(q)
		l.columns = searchColumns
		if rows, err = readSearched(db, &l, dispatch.Page{Limit: size, Cursor: after}); err != nil {
			return nil, "", err
		}
		rows, rest = TrimPage(&l, rows, size, itself)
		return rows, rest, nil
	}
}

// scanIDs reads those dispatches of a source that q selects.
func (s *Dispatches) scanIDs(db database.Tx, q dispatch.Query, source search.Source) search.Scan[Row] {
	return func(after string, size int) (rows []Row, rest string, err error) {
		last, err := database.LastBefore(database.DispatchList, after)
		if err != nil {
			return nil, "", err
		}
		ids, err := source(last, size)
		if err != nil || len(ids) == 0 {
			return nil, "", err
		}
		if len(ids) > size {
			ids = ids[:size]
			rest = database.Cursor(database.DispatchList, 0, dispatch.ID(ids[size-1]))
		}
		l := s.listingOf(q, ids)
		l.columns = searchColumns
		rows, err = readSearched(db, &l, dispatch.Page{Limit: size})
		return rows, rest, err
	}
}

func readSearched(db database.Tx, l *Listing, page dispatch.Page) (rows []Row, err error) {
	source, args, err := l.SQL(page)
	if err != nil {
		return nil, err
	}
	err = db.Raw(source, args...).Scan(&rows).Error
	return rows, database.Unavailable(err)
}

// ForgetWords deletes the words by which a dispatch is found.
func ForgetWords(tx database.Tx, id string) error {
	var row Row
	if err := tx.Raw("SELECT "+textColumns+" FROM dispatches WHERE id = ?", id).Scan(&row).Error; err != nil {
		return err
	}
	return WordIndex.Remove(tx, id, row.Words())
}

// WordIndex is the index of dispatches by words.
var WordIndex = search.Index{Entries: "dispatch_words", ID: "dispatch_id", Rows: "dispatches"}

// Words returns the words by which the dispatch is found: of the external id, also without its punctuation, the address and the note.
func (row *Row) Words() []string {
	externalID := search.Normalized(database.StringOrEmpty(row.ExternalID))
	all := search.WordsOf(nil, externalID, search.RunsOnly)
	if whole := search.Shortened(search.WithoutPunctuation(externalID)); whole != "" && len(all) < search.MaxWords &&
		!slices.Contains(all, whole) {
		all = append(all, whole)
	}
	address, note := search.Normalized(row.SiteAddress), search.Normalized(row.Note)
	all = search.WordsOf(search.WordsOf(all, address, search.RunsOnly), note, search.RunsOnly)
	return search.WordsOf(search.WordsOf(all, address, search.ToSpace), note, search.ToSpace)
}

// texts returns the words, and those that go on after a space that does not count. These are not in the index: see searchTerm.Ends.
func (row *Row) texts() []string {
	all := search.WordsOf(nil, search.Normalized(row.SiteAddress), search.AcrossSpace)
	return append(row.Words(), search.WordsOf(all, search.Normalized(row.Note), search.AcrossSpace)...)
}

// textColumns are what words reads.
const textColumns = "external_id, site_address, note"

func (row *Row) sameText(other *Row) bool {
	return database.StringOrEmpty(row.ExternalID) == database.StringOrEmpty(other.ExternalID) && row.SiteAddress == other.SiteAddress &&
		row.Note == other.Note
}

// dispatchTerms returns the terms of a search for dispatches.
func dispatchTerms(text string) []search.Term {
	terms := search.Terms(text, dispatch.DispatchPrefix)
	for i := range terms {
		before := '-'
		for end, r := range terms[i].Word {
			if before != '-' && r != '-' && (search.IsFree(before) || search.IsFree(r)) {
				terms[i].Ends = append(terms[i].Ends, terms[i].Word[:end])
			}
			before = r
		}
	}
	return terms
}
