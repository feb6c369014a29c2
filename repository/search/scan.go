package search

import "slices"

const (
	// MaxReads bounds how many rows a search reads, and how many entries of a term.
	MaxReads = 10_000
	// A search reads a page of rows at first, as most of them match, but at least minStretch, and then twice as many each time up to
	// MaxStretch.
	minStretch = 32
	// MaxStretch is how many rows a search reads at once.
	MaxStretch = 250
)

// Scan reads the next rows of a list from the cursor on, up to size of them, the newest first. It may leave out rows that do not match. It
// returns the cursor to go on, "" at the end.
type Scan[R any] func(cursor string, size int) (rows []R, rest string, err error)

// Where is the scan that leaves out what does not match.
func (s Scan[R]) Where(match func(*R) bool) Scan[R] {
	return func(cursor string, size int) ([]R, string, error) {
		rows, rest, err := s(cursor, size)
		return slices.DeleteFunc(rows, func(row R) bool { return !match(&row) }), rest, err
	}
}

// Page returns the rows from the cursor on: more than limit, or those among MaxReads, or all. It returns the cursor to go on after all of
// them, "" at the end.
func (s Scan[R]) Page(cursor string, limit int) (rows []R, rest string, err error) {
	rest = cursor
	size := min(max(limit+1, minStretch), MaxStretch)
	for n := 0; n < MaxReads; {
		var next []R
		if next, rest, err = s(rest, size); err != nil {
			return nil, "", err
		}
		if rows = append(rows, next...); len(rows) > limit || rest == "" {
			break
		}
		n, size = n+size, min(2*size, MaxStretch)
	}
	return rows, rest, nil
}
