package repository

import (
	"context"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

const (
	// searchReads bounds how many dispatches a search reads, and how many entries of a term.
	searchReads = 10_000
	// fewEntries is up to how many entries are counted of each term at first: the words of a term with more are followed.
	fewEntries = 2500
	// It reads a page of dispatches at first, as most of them match, but at least minStretch, and then twice as many each time up to
	// maxStretch.
	minStretch, maxStretch = 32, 250
	// countedTerms is how many terms it counts, and followedTerms of how many it looks up the words. The others are checked all the same.
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
	size := min(max(q.Limit+1, minStretch), maxStretch)
	next, read, err := s.fastest(db, q, terms, size)
	if err != nil {
		return nil, "", err
	}
	var matches []dispatchRow
	for n := size; ; n += size {
		matches = append(matches, read.rows...)
		if len(matches) > q.Limit || read.rest == "" || n >= searchReads {
			break
		}
		size = min(2*size, maxStretch)
		if read, err = next(read.rest, size); err != nil {
			return nil, "", err
		}
	}
	rest := read.rest
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

// fastest returns the way to dispatches with all the terms that reaches back the furthest with its first stretch of that size, and that stretch.
// The first way whose stretch fills the page will do.
func (s *Store) fastest(db *gorm.DB, q dispatch.Query, terms []searchTerm, size int) (way, stretch, error) {
	ways := []way{s.listWay(db, q)}
	if q.Driver == "" { // a driver's list has another order
		byTerms, err := s.waysByTerms(db, q, terms)
		if err != nil {
			return nil, stretch{}, err
		}
		ways = append(byTerms, ways...)
	}
	var best way
	var first stretch
	for _, next := range ways {
		next = next.to(terms)
		p, err := next(q.Cursor, size)
		if err != nil {
			return nil, stretch{}, err
		}
		if p.rest == "" || len(p.rows) > q.Limit {
			return next, p, nil
		}
		if best == nil || p.last < first.last {
			best, first = next, p
		}
	}
	return best, first, nil
}

// waysByTerms returns one way if a term is rare, and otherwise those of the terms that are the beginnings of few words. Where one is the
// beginning of many, there are more than followedTerms, or some dispatches are not indexed, a term with up to searchReads entries is rare, too.
func (s *Store) waysByTerms(db *gorm.DB, q dispatch.Query, terms []searchTerm) (ways []way, err error) {
	terms = terms[:min(len(terms), countedTerms)]
	for _, most := range []int{fewEntries, searchReads} {
		counted, err := s.countTerms(db, s.dispatchWords(), terms, most)
		if err != nil {
			return nil, err
		}
		if i, rare := counted.rarest(); rare {
			return []way{s.idWay(db, q, s.rareIDs(db, s.dispatchWords(), terms[i]))}, nil
		}
		switch {
		case counted.unindexed: // the indexer may add words while they are followed
			ways = nil
		case most == fewEntries:
			if ways, err = s.followedWays(db, q, terms[:min(len(terms), followedTerms)]); err != nil {
				return nil, err
			}
		}
		if len(ways) == len(terms) {
			break
		}
	}
	return ways, nil
}

// followedWays returns the ways of those terms that are the beginnings of few words.
func (s *Store) followedWays(db *gorm.DB, q dispatch.Query, terms []searchTerm) (ways []way, err error) {
	for _, t := range terms {
		words, all, err := s.wordsThatBegin(db, t)
		if err != nil {
			return nil, err
		}
		if all {
			ways = append(ways, s.idWay(db, q, s.followedIDs(db, t, words)))
		}
	}
	return ways, nil
}
