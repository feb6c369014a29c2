package drivers

import (
	"context"
	"maps"
	"slices"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/search"
)

// claimPhones returns a PhoneTakenError if another driver has the number of one of these, new or about to be saved, that asks for a number
// of its own. Two transactions with one number come one after the other: while they check it, they have an entry of its word without a
// driver.
func (s *Drivers) claimPhones(tx database.Tx, drivers []dispatch.Driver) error {
	locked := map[string][]int{}
	taken := &dispatch.PhoneTakenError{By: map[int]dispatch.DriverID{}}
	for word, places := range placesByPhone(drivers) {
		for _, i := range places {
			if !drivers[i].OwnPhone {
				continue
			}
			locked[word] = append(locked[word], i)
			if len(places) > 1 {
				taken.By[i] = ""
			}
		}
	}
	words := slices.Sorted(maps.Keys(locked))
	locks := make([]search.Entry, len(words))
	for i, word := range words {
		locks[i].Word = word
	}
	if err := s.words.Add(tx, locks); err != nil {
		return err
	}
	if err := otherHolders(tx, drivers, locked, taken.By); err != nil {
		return err
	}
	for part := range slices.Chunk(words, database.FewRows) {
		if err := s.words.Remove(tx, "", part); err != nil {
			return err
		}
	}
	if len(taken.By) > 0 {
		return taken
	}
	return nil
}

// SamePhones returns, by the places of the drivers, another driver who has the same phone number.
func (s *Drivers) SamePhones(ctx context.Context, drivers []dispatch.Driver) (map[int]dispatch.DriverID, error) {
	others := map[int]dispatch.DriverID{}
	return others, otherHolders(s.db.Serve.With(ctx), drivers, placesByPhone(drivers), others)
}

// placesByPhone returns the places of the drivers by the words of their numbers.
func placesByPhone(drivers []dispatch.Driver) map[string][]int {
	places := map[string][]int{}
	for i, v := range drivers {
		if word := phoneWord(v.Phone); word != "" {
			places[word] = append(places[word], i)
		}
	}
	return places
}

// otherHolders looks up who has the numbers of the drivers, and adds another driver to others for each place where there is one. The answer
// has two holders of a number, however many there are, because one may be the driver itself.
func otherHolders(db database.Tx, drivers []dispatch.Driver, places map[string][]int, others map[int]dispatch.DriverID) error {
	const statement = "SELECT word, MIN(driver_id) first, MAX(driver_id) last FROM driver_words " +
		"WHERE word IN ? AND driver_id <> '' GROUP BY word"
	for part := range slices.Chunk(slices.Sorted(maps.Keys(places)), database.FewRows) {
		var found []struct {
			Word        string
			First, Last dispatch.DriverID
		}
		if err := db.Raw(statement, part).Scan(&found).Error; err != nil {
			return database.Unavailable(err)
		}
		for _, f := range found {
			for _, i := range places[f.Word] {
				if f.First != drivers[i].ID {
					others[i] = f.First
				} else if f.Last != drivers[i].ID {
					others[i] = f.Last
				}
			}
		}
	}
	return nil
}

// phoneWord is the word by which a driver is found from the last digit of the number on, "" without a number.
func phoneWord(phone string) string {
	if number := digits(phone); number != "" {
		return search.Shortened(backwards + reversed(number))
	}
	return ""
}
