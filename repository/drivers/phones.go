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
	places := placesByPhone(drivers)
	maps.DeleteFunc(places, func(_ string, at []int) bool {
		return !slices.ContainsFunc(at, func(i int) bool { return drivers[i].OwnPhone })
	})
	words := slices.Collect(maps.Keys(places))
	if err := wordIndex.Add(tx, search.Entries("", words)); err != nil {
		return err
	}
	others, err := otherHolders(tx, drivers, places)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(words, database.FewRows) {
		if err := wordIndex.Remove(tx, "", part); err != nil {
			return err
		}
	}
	taken := &dispatch.PhoneTakenError{By: map[int]dispatch.DriverID{}}
	for _, at := range places {
		for _, i := range at {
			if other, found := others[i]; drivers[i].OwnPhone && (found || len(at) > 1) {
				taken.By[i] = other
			}
		}
	}
	if len(taken.By) > 0 {
		return taken
	}
	return nil
}

// SamePhones returns, by the places of the drivers, another driver who has the same phone number. ErrUnavailable.
func (s *Drivers) SamePhones(ctx context.Context, drivers []dispatch.Driver) (map[int]dispatch.DriverID, error) {
	return otherHolders(s.db.Serve.With(ctx), drivers, placesByPhone(drivers))
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

// otherHolders returns, by the places of the drivers, another driver who has the number. The answer to its query has two holders of a
// number, however many there are, because one may be the driver itself.
func otherHolders(db database.Tx, drivers []dispatch.Driver, places map[string][]int) (map[int]dispatch.DriverID, error) {
	const statement = "SELECT word, MIN(driver_id) first, MAX(driver_id) last FROM driver_words " +
		"WHERE word IN ? AND driver_id <> '' GROUP BY word"
	others := map[int]dispatch.DriverID{}
	for part := range slices.Chunk(slices.Collect(maps.Keys(places)), database.FewRows) {
		var found []struct {
			Word        string
			First, Last dispatch.DriverID
		}
		if err := db.Raw(statement, part).Scan(&found).Error; err != nil {
			return nil, database.Unavailable(err)
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
	return others, nil
}
