package repository

import (
	"context"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

const (
	// A search counts up to fewEntries entries of each term first. It follows the words of terms that all have more.
	fewEntries = 500
	// countedTerms is how many terms a search counts, and soughtTerms of how many it looks up the words. The others are checked all the same.
	countedTerms, soughtTerms = 8, 4
	// followedWords is how many words of a term a search follows at most.
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
	terms := dispatchTerms(q.Text)
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

// fastest returns the fastest way to the dispatches with all the terms:
//   - that of the rarest term, if it has few entries;
//   - otherwise that of a term whose words are followed, or the list, whichever fills the page with its first stretch;
//   - otherwise that of a term with up to searchReads entries;
//   - otherwise, of the second two, the one whose first stretch reaches back further.
//
// A driver's list has another order: it is the only way there.
func (s *Store) fastest(db *gorm.DB, q dispatch.Query, terms []searchTerm) (way[dispatchRow], error) {
	list := s.listWay(db, q).to(matching(terms))
	if q.Driver != "" {
		return list, nil
	}
	rare, err := s.rareWay(db, q, terms, fewEntries)
	if err != nil || rare != nil {
		return rare, err
	}
	ways := []way[dispatchRow]{list}
	followed, err := s.followedWay(db, q, terms)
	if err != nil {
		return nil, err
	}
	if followed != nil {
		ways = []way[dispatchRow]{followed, list}
	}
	best, filled, err := furthestWay(ways, q.Page)
	if err != nil || filled {
		return best, err
	}
	if rare, err = s.rareWay(db, q, terms, searchReads); err != nil || rare != nil {
		return rare, err
	}
	return best, nil
}

// furthestWay returns the first way whose first stretch fills the page or is all there is, and true, or else the one whose first stretch reaches
// back the furthest.
func furthestWay(ways []way[dispatchRow], page dispatch.Page) (best way[dispatchRow], filled bool, err error) {
	var oldest dispatch.ID
	for _, next := range ways {
		rows, rest, err := next(page.Cursor, firstStretch(page.Limit))
		if err != nil {
			return nil, false, err
		}
		next = next.begun(page.Cursor, rows, rest)
		if rest == "" || len(rows) > page.Limit {
			return next, true, nil
		}
		_, end, err := parseCursor(dispatchList, rest, dispatch.ParseID)
		if err != nil {
			return nil, false, err
		}
		if best == nil || end < oldest {
			best, oldest = next, end
		}
	}
	return best, false, nil
}

// rareWay returns the way of the rarest term, nil if each term has more than most entries.
func (s *Store) rareWay(db *gorm.DB, q dispatch.Query, terms []searchTerm, most int) (way[dispatchRow], error) {
	i, rare, err := s.rarest(db, s.dispatchWords(), terms[:min(len(terms), countedTerms)], most)
	if err != nil || !rare {
		return nil, err
	}
	return s.idWay(db, q, s.rareIDs(db, s.dispatchWords(), terms[i])).to(matching(terms)), nil
}

// followedWay returns the way of that one of the first terms whose entries reach back the furthest, among those that are the beginnings of few
// words, nil if none is.
func (s *Store) followedWay(db *gorm.DB, q dispatch.Query, terms []searchTerm) (way[dispatchRow], error) {
	last, err := dispatchCursor(q.Cursor)
	if err != nil {
		return nil, err
	}
	followed, err := s.followedTerms(db, terms[:min(len(terms), soughtTerms)])
	if err != nil {
		return nil, err
	}
	source, err := furthest(db, followed, last, firstStretch(q.Limit))
	if err != nil || source == nil {
		return nil, err
	}
	return s.idWay(db, q, source).to(matching(terms)), nil
}
