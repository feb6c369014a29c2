package drivers

import (
	"slices"
	"strings"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/search"
)

// The index of drivers by words is the table driver_words, by which the list of drivers finds them.

const (
	// minNumber is how many digits a search has to have to find a phone number by its end.
	minNumber = 4
	// minNational is how many digits a whole phone number has at least.
	minNational = 7
	// koreaCode is the country of the numbers without a country's code.
	koreaCode = "82"
	// backwards begins the word that a phone number is from its last digit on. No other word begins so.
	backwards = "~"
)

// words returns the words by which the driver is found: of the uid, the digits of the phone, also from the last on, and the words of the
// name. Names in Korean, Chinese and Japanese are written with and without spaces, and are found by each character on. An erased driver is
// found by the pseudonym.
func (row *Row) words() []string {
	if row.ErasedAt != nil {
		return search.WordsOf(nil, search.Normalized(dispatch.Pseudonym(row.ID)), search.RunsOnly)
	}
	all := search.WordsOf(nil, search.Normalized(database.StringOrEmpty(row.FirebaseUID)), search.RunsOnly)
	if number := digits(row.Phone); number != "" {
		all = append(all, search.Shortened(number), phoneWord(row.Phone))
	}
	return search.WordsOf(all, search.Normalized(row.Name), search.AcrossSpace)
}

// driverTerms returns the terms of a text. One with minNumber digits and no letters is also the beginning of a phone number, as it is
// dialed in Korea too, or its end: a number within a country begins with zeros that are not in the international one.
func driverTerms(text string) []search.Term {
	if flat := search.Normalized(text); len(strings.Fields(flat)) > 1 && isNumber(flat) && len(digits(flat)) >= minNational {
		text = digits(flat) // one number that is written with spaces
	}
	terms := search.Terms(text, dispatch.DriverPrefix)
	for i := range terms {
		number := digits(terms[i].Word)
		if len(number) < minNumber || !isNumber(terms[i].Word) {
			continue
		}
		if number != terms[i].Word {
			terms[i].Also = append(terms[i].Also, number)
		}
		if within, ok := strings.CutPrefix(number, "0"); ok {
			terms[i].Also = append(terms[i].Also, koreaCode+within)
		}
		if end := strings.TrimLeft(number, "0"); len(number) >= minNational && len(end) >= minNumber {
			number = end
		}
		terms[i].Also = append(terms[i].Also, backwards+reversed(number))
	}
	return terms
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

// isNumber reports whether a text has no letters.
func isNumber(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !search.InNoWord(r) && !isDigit(r) })
}

// digits returns the digits of a text.
func digits(text string) string {
	return strings.Map(func(r rune) rune {
		if isDigit(r) {
			return r
		}
		return -1
	}, text)
}

func reversed(text string) string {
	b := []byte(text)
	slices.Reverse(b)
	return string(b)
}

// wordsOf returns the drivers' entries of driver_words.
func wordsOf(rows []Row) (all []search.Entry) {
	for i := range rows {
		all = append(all, search.Entries(rows[i].ID, rows[i].words())...)
	}
	return all
}
