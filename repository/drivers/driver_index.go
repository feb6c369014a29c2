package drivers

import (
	"cmp"
	"database/sql"
	"hash/crc32"
	"maps"
	"slices"

	"firsttap/dispatch"
	"firsttap/repository/database"
)

// The index of drivers is two tables: Store finds the eligible drivers by driver_regions, and counts the others by driver_counts. Each
// change of a driver updates both in its own transaction. No trigger writes them, because an account needs privileges for triggers that it
// may not have.

const (
	// countSlots is how many rows share a count.
	countSlots = 8
)

// indexEntry is a row of driver_regions.
type indexEntry struct {
	Region         string
	VehicleClass   string
	OnDuty         bool
	DriverID       dispatch.DriverID
	WorkingHeightM sql.NullFloat64
	SuspendedUntil sql.NullInt64
}

// entries returns the driver's rows of driver_regions. An erased driver has none.
func (row *Row) entries() ([]indexEntry, error) {
	if row.ErasedAt != nil {
		return nil, nil
	}
	v, err := row.Driver()
	if err != nil {
		return nil, err
	}
	e := indexEntry{VehicleClass: row.VehicleClass, OnDuty: row.OnDuty, DriverID: row.ID}
	if row.WorkingHeightM != nil {
		e.WorkingHeightM = sql.NullFloat64{Float64: *row.WorkingHeightM, Valid: true}
	}
	if row.SuspendedUntil != nil {
		e.SuspendedUntil = sql.NullInt64{Int64: *row.SuspendedUntil, Valid: true}
	}
	var all []indexEntry
	for _, e.Region = range slices.Compact(slices.Sorted(slices.Values(append(v.Regions, "")))) {
		all = append(all, e)
	}
	return all, nil
}

// countKey names a row of driver_counts.
type countKey struct {
	region, vehicleClass string
	workingHeightM       float64
	slot                 int
}

func (e *indexEntry) countKey() countKey {
	k := countKey{region: e.Region, workingHeightM: -1, slot: int(crc32.ChecksumIEEE([]byte(e.DriverID)) % countSlots)}
	if e.Region == "" {
		k.vehicleClass = e.VehicleClass
		if e.WorkingHeightM.Valid {
			k.workingHeightM = e.WorkingHeightM.Float64
		}
	}
	return k
}

func (k countKey) compare(other countKey) int {
	return cmp.Or(cmp.Compare(k.region, other.region), cmp.Compare(k.vehicleClass, other.vehicleClass),
		cmp.Compare(k.workingHeightM, other.workingHeightM), cmp.Compare(k.slot, other.slot))
}

type driverCount struct{ drivers, onDuty int }

// countChanges are changes of the counts.
type countChanges map[countKey]driverCount

// add adds the entries n times.
func (c countChanges) add(entries []indexEntry, n int) {
	for _, e := range entries {
		k := e.countKey()
		changed := c[k]
		changed.drivers += n
		if e.OnDuty {
			changed.onDuty += n
		}
		c[k] = changed
	}
}

// Index indexes new drivers by region and by words. ErrUnavailable.
func Index(tx database.Tx, rows []Row) error {
	if err := addRegions(tx, rows); err != nil {
		return err
	}
	return addWords(tx, rows)
}

func addRegions(tx database.Tx, rows []Row) error {
	var all []indexEntry
	for i := range rows {
		entries, err := rows[i].entries()
		if err != nil {
			return err
		}
		all = append(all, entries...)
	}
	return replaceEntries(tx, nil, all)
}

// indexRegions makes the index say what the driver's row says, which tx has locked.
func indexRegions(tx database.Tx, row *Row) error {
	is, err := row.entries()
	if err != nil {
		return err
	}
	var was []indexEntry
	err = tx.Raw(`SELECT region, vehicle_class, on_duty, driver_id, working_height_m, suspended_until FROM driver_regions
		WHERE driver_id = ? ORDER BY region`, row.ID).Scan(&was).Error
	if err != nil || slices.Equal(was, is) {
		return database.Unavailable(err)
	}
	return replaceEntries(tx, was, is)
}

// replaceEntries replaces the entries of one driver, none for new drivers.
func replaceEntries(tx database.Tx, was, is []indexEntry) error {
	if len(was) > 0 {
		// Without the index, a server may look at all rows of a small table, and wait for those that others change.
		err := tx.Exec("{delete r} FROM driver_regions AS r {force uq_driver_regions_driver} WHERE r.driver_id = ?", was[0].DriverID).Error
		if err != nil {
			return database.Unavailable(err)
		}
	}
	for part := range slices.Chunk(is, database.FewRows) {
		args := make([]any, 0, 6*len(part))
		for _, e := range part {
			args = append(args, e.Region, e.VehicleClass, e.OnDuty, e.DriverID, e.WorkingHeightM, e.SuspendedUntil)
		}
		err := tx.Exec("INSERT INTO driver_regions (region, vehicle_class, on_duty, driver_id, working_height_m, suspended_until) VALUES "+
			database.Placeholders(len(part), 6), args...).Error
		if err != nil {
			return database.Unavailable(err)
		}
	}
	counts := countChanges{}
	counts.add(was, -1)
	counts.add(is, 1)
	return database.Unavailable(changeCounts(tx, counts))
}

// changeCounts writes the changes in the order of their keys: transactions at the same time don't wait for each other in a circle.
func changeCounts(tx database.Tx, changes countChanges) error {
	maps.DeleteFunc(changes, func(_ countKey, c driverCount) bool { return c == driverCount{} })
	keys := slices.SortedFunc(maps.Keys(changes), countKey.compare)
	for part := range slices.Chunk(keys, database.FewRows) {
		args := make([]any, 0, 6*len(part))
		for _, k := range part {
			args = append(args, k.region, k.vehicleClass, k.workingHeightM, k.slot, changes[k].drivers, changes[k].onDuty)
		}
		err := tx.Exec("INSERT INTO driver_counts (region, vehicle_class, working_height_m, slot, drivers, on_duty) VALUES "+
			database.Placeholders(len(part), 6)+" {or_update} drivers = drivers + {new drivers}, on_duty = on_duty + {new on_duty}", args...).Error
		if err != nil {
			return err
		}
	}
	// A region, class or height that no driver has any more leaves no row behind.
	for _, k := range keys {
		if changes[k].drivers < 0 {
			err := tx.Exec(`DELETE FROM driver_counts WHERE region = ? AND vehicle_class = ? AND working_height_m = ? AND slot = ? AND drivers = 0`,
				k.region, k.vehicleClass, k.workingHeightM, k.slot).Error
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
