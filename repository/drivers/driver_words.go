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
// name, which are found by each Korean, Chinese or Japanese character on. An erased driver is found by the pseudonym.
func (row *Row) words() []string {
	if row.ErasedAt != nil {
		return search.WordsOf([]string{dispatch.Pseudonym(row.ID)})
	}
	all := search.WordsOf([]string{digits(row.Phone), database.StringOrEmpty(row.FirebaseUID)}, row.Name)
	if word := phoneWord(row.Phone); word != "" {
		all = append(all, word)
	}
	return all
}

// phoneWord is the word by which a driver is found from the last digit of the number on, "" without a number.
func phoneWord(phone string) string {
	if number := digits(phone); number != "" {
		return backwards + reversed(number)
	}
	return ""
}

// driverTerms returns the terms of a text. One with minNumber digits and no letters is also the beginning of a phone number, as it is
// dialed in Korea too, or its end: a number within a country begins with zeros that are not in the international one.
func driverTerms(text string) []search.Term {
	if number, ok := numberOf(search.Normalized(text)); ok && len(strings.Fields(text)) > 1 && len(number) >= minNational {
		text = number // that was written with spaces
	}
	terms := search.Terms(text, dispatch.DriverPrefix)
	for i, t := range terms {
		number, ok := numberOf(t.Begins[0])
		if !ok || len(number) < minNumber {
			continue
		}
		if number != t.Begins[0] {
			t.Begins = append(t.Begins, number)
		}
		if within, ok := strings.CutPrefix(number, "0"); ok {
			t.Begins = append(t.Begins, koreaCode+within)
		}
		if end := strings.TrimLeft(number, "0"); len(number) >= minNational && len(end) >= minNumber {
			number = end
		}
		t.Begins = append(t.Begins, backwards+reversed(number))
		terms[i] = t
	}
	return terms
}

// numberOf returns the digits of a normalized text, and whether it has no letters.
func numberOf(text string) (number string, ok bool) {
	number = digits(text)
	return number, number == search.WithoutPunctuation(text)
}

// digits returns the digits of a text.
func digits(text string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
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
