package repository

import "slices"

const (
	// searchReads bounds how many rows a search reads, and how many entries of a term.
	searchReads = 10_000
	// A search reads a page of rows at first, as most of them match, but at least minStretch, and then twice as many each time up to maxStretch.
	minStretch, maxStretch = 32, 250
)

// A way reads the next stretch of a list from the cursor on, up to size rows, the newest first. It may leave out rows that do not match. It
// returns the cursor to go on, "" at the end.
type way[R any] func(cursor string, size int) (rows []R, rest string, err error)

// to is the way that leaves out what does not match.
func (w way[R]) to(match func(*R) bool) way[R] {
	return func(cursor string, size int) ([]R, string, error) {
		rows, rest, err := w(cursor, size)
		return slices.DeleteFunc(rows, func(row R) bool { return !match(&row) }), rest, err
	}
}

// page returns the rows from the cursor on: more than limit, or those among searchReads, or all. It returns the cursor to go on after all of
// them, "" at the end.
func (w way[R]) page(cursor string, limit int) (rows []R, rest string, err error) {
	rest = cursor
	size := min(max(limit+1, minStretch), maxStretch)
	for n := 0; n < searchReads; {
		var next []R
		if next, rest, err = w(rest, size); err != nil {
			return nil, "", err
		}
		if rows = append(rows, next...); len(rows) > limit || rest == "" {
			break
		}
		n, size = n+size, min(2*size, maxStretch)
	}
	return rows, rest, nil
}
