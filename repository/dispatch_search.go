package repository

import (
	"context"
	"fmt"
	"strings"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

const (
	// fewEntries is up to how many entries are counted of each term at first: the words of a term with more are followed.
	fewEntries = 500
	// countedTerms is how many terms a search counts, and soughtTerms of how many it looks up the words. The others are checked all the same.
	countedTerms, soughtTerms = 8, 4
	// followedWords is how many words that begin with a term it follows at once.
	followedWords = 8
)

// search is List with a text. It reads the dispatches that may have one of the terms, or the list, whichever is the faster way into the
// past, the newest first, and checks each by its row. After searchReads of them it returns what it has found so far, with a
// cursor to go on.
func (s *Store) search(ctx context.Context, q dispatch.Query) ([]dispatch.Dispatch, string, error) {
	l := s.dispatchListing(q)
	if q.Cursor != "" {
		if _, _, err := parseCursor(l.kind, q.Cursor, dispatch.ParseID); err != nil {
			return nil, "", err
		}
	}
	terms := searchTerms(q.Text, dispatch.DispatchPrefix)
	if len(terms) == 0 {
		return nil, "", nil
	}
	db := s.general.WithContext(ctx)
	read, err := s.fastest(db, q, terms)
	if err != nil {
		return nil, "", err
	}
	matches, rest, err := read.page(q.Cursor, q.Limit)
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

// fastest returns the way to dispatches with all the terms whose first stretch fills the page or is all there is, and otherwise the one whose
// first stretch reaches back further.
func (s *Store) fastest(db *gorm.DB, q dispatch.Query, terms []searchTerm) (best way[dispatchRow], err error) {
	size := firstStretch(q.Limit)
	source, err := s.sourceByTerms(db, q, terms, size)
	if err != nil {
		return nil, err
	}
	list := s.listWay(db, q).to(matching(terms))
	if source == nil {
		return list, nil
	}
	var oldest dispatch.ID
	for _, next := range []way[dispatchRow]{s.idWay(db, q, source).to(matching(terms)), list} {
		rows, rest, err := next(q.Cursor, size)
		if err != nil {
			return nil, err
		}
		next = next.begun(q.Cursor, rows, rest)
		if rest == "" || len(rows) > q.Limit {
			return next, nil
		}
		_, end, err := parseCursor(dispatchList, rest, dispatch.ParseID)
		if err != nil {
			return nil, err
		}
		if best == nil || end < oldest {
			best, oldest = next, end
		}
	}
	return best, nil
}

// sourceByTerms returns the source of the dispatches that may have the rarest term, or, if all are common, that of the term whose first stretch
// reaches back the furthest among those that are the beginnings of few words. Where one is the beginning of many, there are more than
// soughtTerms, or some dispatches are not indexed, a term with up to searchReads entries is rare, too. It returns nil if there is none, and
// for a driver's list, which has another order.
func (s *Store) sourceByTerms(db *gorm.DB, q dispatch.Query, terms []searchTerm, size int) (idSource, error) {
	if q.Driver != "" {
		return nil, nil
	}
	terms = terms[:min(len(terms), countedTerms)]
	rare, unindexed, err := s.rareTerm(db, terms, fewEntries)
	if err != nil || rare != nil {
		return rare, err
	}
	var followed [][]idPart
	if !unindexed { // otherwise the indexer may add words while they are followed
		if followed, err = s.followedTerms(db, terms[:min(len(terms), soughtTerms)]); err != nil {
			return nil, err
		}
	}
	if len(followed) < len(terms) {
		if rare, unindexed, err = s.rareTerm(db, terms, searchReads); err != nil || rare != nil || unindexed {
			return rare, err
		}
	}
	last, err := dispatchCursor(q.Cursor)
	if err != nil {
		return nil, err
	}
	return furthest(db, followed, last, size)
}

// rareTerm returns the source of the dispatches that may have the rarest term, nil if each term has more than most entries, and whether some dispatches
// are not indexed.
func (s *Store) rareTerm(db *gorm.DB, terms []searchTerm, most int) (source idSource, unindexed bool, err error) {
	counted, err := s.countTerms(db, s.dispatchWords(), terms, most)
	if err != nil {
		return nil, false, err
	}
	if i, rare := counted.rarest(); rare {
		source = s.rareIDs(db, s.dispatchWords(), terms[i])
	}
	return source, counted.unindexed, nil
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
