package drivers

import (
	"cmp"
	"hash/crc32"
	"maps"
	"reflect"
	"slices"

	"firsttap/dispatch"
	"firsttap/repository/database"
)

// The index of drivers by region is two tables: driver_regions finds the eligible drivers, and driver_counts counts the others. Each change
// of a driver updates both in its own transaction. No trigger writes them, because an account needs privileges for triggers that it may not
// have.

// countSlots is how many rows share a count.
const countSlots = 8

// indexEntry is a row of driver_regions.
type indexEntry struct {
	Region         string
	VehicleClass   string
	OnDuty         bool
	DriverID       dispatch.DriverID
	WorkingHeightM *float64
	SuspendedUntil *int64
}

// TableName implements gorm.Tabler.
func (indexEntry) TableName() string { return "driver_regions" }

// entriesOf returns the drivers' rows of driver_regions: one for each region, and one for the region "", which has all drivers. An erased
// driver has none.
func entriesOf(rows []Row) ([]indexEntry, error) {
	var all []indexEntry
	for _, row := range rows {
		if row.ErasedAt != nil {
			continue
		}
		v, err := row.Driver()
		if err != nil {
			return nil, err
		}
		for _, region := range slices.Compact(slices.Sorted(slices.Values(append(v.Regions, "")))) {
			all = append(all, indexEntry{region, row.VehicleClass, row.OnDuty, row.ID, row.WorkingHeightM, row.SuspendedUntil})
		}
	}
	return all, nil
}

// Index makes the index of drivers, by region and by words, say what is now in the rows that tx has written and locked. It takes what it
// says until then from the row of before, was, which is empty for new drivers and one row for a change of one. All words of a changed
// driver are replaced, also those that the index should not have, so that nothing is left of an erased one. ErrUnavailable.
func Index(tx database.Tx, was, is []Row) error {
	before, err := entriesOf(was)
	if err != nil {
		return err
	}
	after, err := entriesOf(is)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(before, after) {
		if err := replaceEntries(tx, before, after); err != nil {
			return database.Unavailable(err)
		}
	}
	words := wordsOf(is)
	if slices.Equal(wordsOf(was), words) {
		return nil
	}
	if len(was) > 0 {
		err := tx.Exec("{delete w} FROM driver_words AS w {force ix_driver_words_driver} WHERE w.driver_id = ?", was[0].ID).Error
		if err != nil {
			return database.Unavailable(err)
		}
	}
	return wordIndex.Add(tx, words)
}

// replaceEntries replaces the entries of one driver, none for new drivers.
func replaceEntries(tx database.Tx, was, is []indexEntry) error {
	if len(was) > 0 {
		// Without the index, a server may look at all rows of a small table, and wait for those that others change.
		err := tx.Exec("{delete r} FROM driver_regions AS r {force uq_driver_regions_driver} WHERE r.driver_id = ?", was[0].DriverID).Error
		if err != nil {
			return err
		}
	}
	if err := tx.CreateInBatches(is, database.FewRows).Error; err != nil {
		return err
	}
	counts := regionCounts{}
	counts.add(was, -1)
	counts.add(is, 1)
	return counts.write(tx)
}

// countKey names a row of driver_counts. Only the region "" tells classes and heights apart; -1 is no height.
type countKey struct {
	Region         string
	VehicleClass   string
	WorkingHeightM float64
	Slot           int
}

func (k countKey) compare(other countKey) int {
	return cmp.Or(cmp.Compare(k.Region, other.Region), cmp.Compare(k.VehicleClass, other.VehicleClass),
		cmp.Compare(k.WorkingHeightM, other.WorkingHeightM), cmp.Compare(k.Slot, other.Slot))
}

type driverCount struct{ Drivers, OnDuty int }

// regionCounts are counts of drivers, or changes of them.
type regionCounts map[countKey]driverCount

// add adds the entries n times.
func (c regionCounts) add(entries []indexEntry, n int) {
	for _, e := range entries {
		k := countKey{e.Region, "", -1, int(crc32.ChecksumIEEE([]byte(e.DriverID)) % countSlots)}
		if e.Region == "" {
			k.VehicleClass = e.VehicleClass
			if e.WorkingHeightM != nil {
				k.WorkingHeightM = *e.WorkingHeightM
			}
		}
		changed := c[k]
		changed.Drivers += n
		if e.OnDuty {
			changed.OnDuty += n
		}
		c[k] = changed
	}
}

// write writes the changes in the order of their keys: transactions at the same time don't wait for each other in a circle.
func (c regionCounts) write(tx database.Tx) error {
	maps.DeleteFunc(c, func(_ countKey, n driverCount) bool { return n == driverCount{} })
	keys := slices.SortedFunc(maps.Keys(c), countKey.compare)
	for part := range slices.Chunk(keys, database.FewRows) {
		args := make([]any, 0, 6*len(part))
		for _, k := range part {
			args = append(args, k.Region, k.VehicleClass, k.WorkingHeightM, k.Slot, c[k].Drivers, c[k].OnDuty)
		}
		err := tx.Exec("INSERT INTO driver_counts (region, vehicle_class, working_height_m, slot, drivers, on_duty) VALUES "+
			database.Placeholders(len(part), 6)+
			" {or_update} drivers = drivers + {new drivers}, on_duty = on_duty + {new on_duty}", args...).Error
		if err != nil {
			return err
		}
	}
	// A region, class or height that no driver has any more leaves no row behind.
	for _, k := range keys {
		if c[k].Drivers < 0 {
			err := tx.Exec("DELETE FROM driver_counts WHERE region = ? AND vehicle_class = ? AND working_height_m = ? AND slot = ?"+
				" AND drivers = 0",
				k.Region, k.VehicleClass, k.WorkingHeightM, k.Slot).Error
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// OnDuty counts the drivers on duty who are not suspended in each region that has some, and in all, with the region "". ErrUnavailable.
func OnDuty(db database.Tx) (map[string]int, error) {
	var rows []struct {
		Region  string
		Drivers int
	}
	// The two parts are one statement, which sees one state of the tables. Few of the drivers on duty are suspended.
	err := db.Raw(`SELECT region, SUM(on_duty) drivers FROM driver_counts GROUP BY region
		UNION ALL SELECT r.region, -COUNT(*) FROM drivers v {force ix_drivers_suspended} JOIN driver_regions r
		{force uq_driver_regions_driver} ON r.driver_id = v.id
		WHERE v.on_duty = 1 AND v.suspended_until > {now} GROUP BY r.region`).Scan(&rows).Error
	counts := map[string]int{}
	for _, row := range rows {
		counts[row.Region] += row.Drivers
	}
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n <= 0 })
	return counts, database.Unavailable(err)
}
