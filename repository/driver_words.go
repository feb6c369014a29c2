package repository

import (
	"slices"
	"strings"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// The index of drivers by words is the table driver_words, by which Store.searchDrivers finds them.
//
// A driver is indexed if version and worded_version are equal. The indexer of driver_index.go finds the others by the column unworded. What
// changes a driver without their words adds one to both versions, so that a driver who is not indexed stays so.

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

func (s *Store) driverWords() wordIndex {
	return wordIndex{entries: "driver_words", id: "driver_id", rows: "drivers", unindexed: s.unwordedDrivers()}
}

// unwordedDrivers returns the FROM and WHERE of a statement that reads the drivers who may not be in the index, as v.
func (s *Store) unwordedDrivers() string {
	return "drivers v" + s.dialect.forceIndex("ix_drivers_unworded") + " WHERE v.unworded = 1"
}

// words returns the words by which the driver is found: of the uid, the digits of the phone, also from the last on, and the words of the name.
// Names in Korean, Chinese and Japanese are written with and without spaces, and are found by each character on.
// An erased driver is found by the pseudonym, whatever an instance of the version before writes.
func (row *driverRow) words() []string {
	if row.ErasedAt != nil {
		return wordsOf(nil, normalized(dispatch.Pseudonym(row.ID)), runsOnly)
	}
	all := wordsOf(nil, normalized(stringOrEmpty(row.FirebaseUID)), runsOnly)
	if number := digits(row.Phone); number != "" {
		all = append(all, shortened(number), phoneWord(row.Phone))
	}
	return wordsOf(all, normalized(row.Name), acrossSpace)
}

// driverTerms returns the terms of a text. One with minNumber digits and no letters is also the beginning of a phone number, as it is dialed in
// Korea too, or its end: a number within a country begins with zeros that are not in the international one.
func driverTerms(text string) []searchTerm {
	if flat := normalized(text); len(strings.Fields(flat)) > 1 && isNumber(flat) && len(digits(flat)) >= minNational {
		text = digits(flat) // one number that is written with spaces
	}
	terms := searchTerms(text, dispatch.DriverPrefix)
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
	return !strings.ContainsFunc(text, func(r rune) bool { return !inNoWord(r) && !isDigit(r) })
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

// addDriverWords indexes new drivers.
func (s *Store) addDriverWords(tx *gorm.DB, rows []driverRow) error {
	var entries []wordEntry
	for i := range rows {
		entries = append(entries, wordEntries(rows[i].ID, rows[i].words())...)
	}
	return s.addWords(tx, s.driverWords(), entries)
}

// indexWords makes the index say what the rows say, which tx has locked.
func (s *Store) indexWords(tx *gorm.DB, rows []driverRow) error {
	ids := make([]dispatch.DriverID, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	var found []struct{ Word, DriverID string }
	err := tx.Raw("SELECT word, driver_id FROM driver_words"+s.dialect.forceIndex("ix_driver_words_driver")+" WHERE driver_id IN ?", ids).Scan(&found).Error
	if err != nil {
		return unavailable(err)
	}
	before := map[string][]string{}
	for _, e := range found {
		before[e.DriverID] = append(before[e.DriverID], e.Word)
	}
	var fresh []wordEntry
	for i := range rows {
		was, is := before[string(rows[i].ID)], rows[i].words()
		if err := s.removeWords(tx, s.driverWords(), string(rows[i].ID), without(was, is)); err != nil {
			return err
		}
		fresh = append(fresh, wordEntries(rows[i].ID, without(is, was))...)
	}
	return s.addWords(tx, s.driverWords(), fresh)
}
