package repository

import (
	"context"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

const (
	// fewEntries is up to how many entries are counted of each term at first: the words of a term with more are followed.
	fewEntries = 500
	// countedTerms is how many terms a search counts, and followedTerms of how many it looks up the words. The others are checked all the same.
	countedTerms, followedTerms = 8, 4
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

// fastest returns the way to dispatches with all the terms whose first stretch fills the page, or the one that reaches back the furthest with it.
func (s *Store) fastest(db *gorm.DB, q dispatch.Query, terms []searchTerm) (way[dispatchRow], error) {
	size := firstStretch(q.Limit)
	list := s.listWay(db, q).to(matching(terms))
	source, err := s.sourceByTerms(db, q, terms, size)
	if err != nil || source == nil {
		return list, err
	}
	byTerm := s.idWay(db, q, source).to(matching(terms))
	rows, rest, err := byTerm(q.Cursor, size)
	if err != nil || rest == "" || len(rows) > q.Limit {
		return byTerm.begun(q.Cursor, rows, rest), err
	}
	listed, restOfList, err := list(q.Cursor, size)
	if err != nil {
		return nil, err
	}
	if restOfList == "" || len(listed) > q.Limit {
		return list.begun(q.Cursor, listed, restOfList), nil
	}
	further, err := reachesFurther(restOfList, rest)
	if further {
		return list.begun(q.Cursor, listed, restOfList), err
	}
	return byTerm.begun(q.Cursor, rows, rest), err
}

// reachesFurther reports whether a list goes on with an older dispatch after one cursor than after the other.
func reachesFurther(rest, than string) (bool, error) {
	_, a, err := parseCursor(dispatchList, rest, dispatch.ParseID)
	if err != nil {
		return false, err
	}
	_, b, err := parseCursor(dispatchList, than, dispatch.ParseID)
	return a < b, err
}

// sourceByTerms returns the source of the dispatches that may have the rarest term, or, if all are common, that of the term whose first stretch
// reaches back the furthest among those that are the beginnings of few words. Where one is the beginning of many, there are more than
// followedTerms, or some dispatches are not indexed, a term with up to searchReads entries is rare, too. It returns nil if there is none, and
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
	var followed []idSource
	if !unindexed { // otherwise the indexer may add words while they are followed
		if followed, err = s.followedTerms(db, terms[:min(len(terms), followedTerms)]); err != nil {
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
	return furthest(followed, last, size)
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

// furthest returns the source that reaches back the furthest with a stretch after last, nil if there are none.
func furthest(sources []idSource, last string, size int) (idSource, error) {
	var best idSource
	var first []string
	var reach string
	for _, source := range sources {
		ids, err := source(last, size)
		if err != nil {
			return nil, err
		}
		end := "" // older than all
		if len(ids) > size {
			end = ids[size-1]
		}
		if best == nil || end < reach {
			best, first, reach = source, ids, end
		}
	}
	if best == nil {
		return nil, nil
	}
	return func(after string, size int) ([]string, error) {
		if after == last {
			return first, nil
		}
		return best(after, size)
	}, nil
}
