package repository

import (
	"context"
	"maps"
	"slices"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// claimPhones returns a PhoneTakenError if another driver has the number of one of these, new or about to be saved, that asks for a number
// of its own. Two transactions with one number come one after the other: while they check it, they have an entry of its word without a driver.
func (s *Store) claimPhones(tx *gorm.DB, drivers []dispatch.Driver) error {
	of := map[string][]int{} // the drivers' places by the word of their number
	for i, v := range drivers {
		if word := phoneWord(v.Phone); word != "" {
			of[word] = append(of[word], i)
		}
	}
	locks := map[string]wordEntry{}
	taken := &dispatch.PhoneTakenError{By: map[int]dispatch.DriverID{}}
	for i, v := range drivers {
		word := phoneWord(v.Phone)
		if !v.OwnPhone || word == "" {
			continue
		}
		if len(of[word]) > 1 {
			taken.By[i] = ""
		}
		locks[word] = wordEntry{word: word}
	}
	if err := s.addWords(tx, s.driverWords(), slices.Collect(maps.Values(locks))); err != nil {
		return err
	}
	for part := range slices.Chunk(slices.Sorted(maps.Keys(locks)), entriesPerStatement) {
		found, err := phoneHolders(tx, part)
		if err != nil {
			return err
		}
		for _, f := range found {
			for _, i := range of[f.Word] {
				if drivers[i].OwnPhone && drivers[i].ID != f.DriverID {
					taken.By[i] = f.DriverID
				}
			}
		}
		if err := s.removeWords(tx, s.driverWords(), "", part); err != nil {
			return err
		}
	}
	if len(taken.By) > 0 {
		return taken
	}
	return nil
}

// SamePhones returns, by the places of the drivers, another driver who has the same phone number.
func (s *Store) SamePhones(ctx context.Context, drivers []dispatch.Driver) (map[int]dispatch.DriverID, error) {
	of := map[string][]int{}
	for i, v := range drivers {
		if word := phoneWord(v.Phone); word != "" {
			of[word] = append(of[word], i)
		}
	}
	others := map[int]dispatch.DriverID{}
	for part := range slices.Chunk(slices.Collect(maps.Keys(of)), entriesPerStatement) {
		found, err := phoneHolders(s.general.WithContext(ctx), part)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			for _, i := range of[f.Word] {
				if drivers[i].ID != f.DriverID {
					others[i] = f.DriverID
				}
			}
		}
	}
	return others, nil
}

// phoneHolder is a driver with the word of their phone number.
type phoneHolder struct {
	Word     string
	DriverID dispatch.DriverID
}

func phoneHolders(db *gorm.DB, words []string) (found []phoneHolder, err error) {
	err = db.Raw("SELECT word, driver_id FROM driver_words WHERE word IN ? AND driver_id <> ''", words).Scan(&found).Error
	return found, unavailable(err)
}

// phoneWord is the word by which a driver is found from the last digit of the number on, "" without a number.
func phoneWord(phone string) string {
	if number := digits(phone); number != "" {
		return shortened(backwards + reversed(number))
	}
	return ""
}
