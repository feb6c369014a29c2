package repository

import (
	"cmp"
	"context"
	"database/sql"
	"hash/crc32"
	"maps"
	"slices"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// The index of drivers is two tables: Store finds the eligible drivers by driver_regions, and counts the others by driver_counts. Each
// change of a driver updates both in its own transaction.
//
// A driver whose version is not indexed_version is not in the index as they are: the migration to this version added the tables empty, and
// an instance of the version before increments version and knows no index. The column unindexed finds these drivers. Until RunIndexer has
// indexed them, every query that uses the index also reads them, or the drivers themselves if it counts. So its answers are right
// meanwhile, and as slow as before. No trigger writes the index, because an account needs privileges for triggers that it may not have.

const (
	// countSlots is how many rows share a count.
	countSlots = 8
	// entriesPerStatement bounds an INSERT: the driver of SQLite takes time by the square of a statement's parameters.
	entriesPerStatement = 200
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

// entries returns the driver's rows of driver_regions. An erased driver has none, whatever an instance of the version before writes.
func (row *driverRow) entries() ([]indexEntry, error) {
	if row.ErasedAt != nil {
		return nil, nil
	}
	v, err := row.driver()
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

// indexDrivers makes the index say what the rows say, which tx has locked.
func (s *Store) indexDrivers(tx *gorm.DB, rows []driverRow) error {
	before, err := indexedEntries(tx, rows)
	if err != nil {
		return err
	}
	return s.replaceEntries(tx, before, rows)
}

// replaceEntries replaces what the index has of the drivers, nil for new ones, with what their rows say.
func (s *Store) replaceEntries(tx *gorm.DB, before map[dispatch.DriverID][]indexEntry, rows []driverRow) error {
	counts := countChanges{}
	var stale []dispatch.DriverID
	var fresh []indexEntry
	for i := range rows {
		was := before[rows[i].ID]
		is, err := rows[i].entries()
		if err != nil {
			return err
		}
		if slices.Equal(was, is) {
			continue
		}
		if len(was) > 0 {
			stale = append(stale, rows[i].ID)
		}
		fresh = append(fresh, is...)
		counts.add(was, -1)
		counts.add(is, 1)
	}
	if len(stale) > 0 {
		remove := "DELETE FROM driver_regions WHERE driver_id IN ?"
		if s.dialect.skipLocked != "" { // a server may look at all rows of a small table instead, and wait for those that others change
			remove = "DELETE r FROM driver_regions r FORCE INDEX (uq_driver_regions_driver) WHERE r.driver_id IN ?"
		}
		if err := tx.Exec(remove, stale).Error; err != nil {
			return unavailable(err)
		}
	}
	for part := range slices.Chunk(fresh, entriesPerStatement) {
		args := make([]any, 0, 6*len(part))
		for _, e := range part {
			args = append(args, e.Region, e.VehicleClass, e.OnDuty, e.DriverID, e.WorkingHeightM, e.SuspendedUntil)
		}
		err := tx.Exec("INSERT INTO driver_regions (region, vehicle_class, on_duty, driver_id, working_height_m, suspended_until) VALUES "+
			placeholders(len(part), 6), args...).Error
		if err != nil {
			return unavailable(err)
		}
	}
	return unavailable(s.changeCounts(tx, counts))
}

// indexedEntries returns the rows of driver_regions that the drivers have, by region.
func indexedEntries(tx *gorm.DB, rows []driverRow) (map[dispatch.DriverID][]indexEntry, error) {
	ids := make([]dispatch.DriverID, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	var found []indexEntry
	err := tx.Raw(`SELECT region, vehicle_class, on_duty, driver_id, working_height_m, suspended_until FROM driver_regions
		WHERE driver_id IN ? ORDER BY driver_id, region`, ids).Scan(&found).Error
	all := map[dispatch.DriverID][]indexEntry{}
	for _, e := range found {
		all[e.DriverID] = append(all[e.DriverID], e)
	}
	return all, unavailable(err)
}

// changeCounts writes the changes in the order of their keys: transactions at the same time don't wait for each other in a circle.
func (s *Store) changeCounts(tx *gorm.DB, changes countChanges) error {
	maps.DeleteFunc(changes, func(_ countKey, c driverCount) bool { return c == driverCount{} })
	keys := slices.SortedFunc(maps.Keys(changes), countKey.compare)
	upsert := " ON DUPLICATE KEY UPDATE drivers = drivers + VALUES(drivers), on_duty = on_duty + VALUES(on_duty)"
	if s.dialect.skipLocked == "" {
		upsert = " ON CONFLICT DO UPDATE SET drivers = drivers + excluded.drivers, on_duty = on_duty + excluded.on_duty"
	}
	for part := range slices.Chunk(keys, entriesPerStatement) {
		args := make([]any, 0, 6*len(part))
		for _, k := range part {
			args = append(args, k.region, k.vehicleClass, k.workingHeightM, k.slot, changes[k].drivers, changes[k].onDuty)
		}
		err := tx.Exec("INSERT INTO driver_counts (region, vehicle_class, working_height_m, slot, drivers, on_duty) VALUES "+
			placeholders(len(part), 6)+upsert, args...).Error
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

// unindexedDrivers is the SQL for the drivers v that are not in the index as they are.
func (s *Store) unindexedDrivers() string {
	return "drivers v" + s.dialect.forceIndex("ix_drivers_unindexed") + " WHERE v.unindexed = 1"
}

// IndexDrivers indexes up to indexBatch drivers whose regions or words are not indexed, and returns how many. It skips drivers that are being
// changed. ErrUnavailable, ErrUnknown.
func (s *Store) IndexDrivers(ctx context.Context) (n int, err error) {
	var ids []dispatch.DriverID // without locks, as there are mostly none
	query := "SELECT * FROM (SELECT v.id FROM " + s.unindexedDrivers() + " LIMIT ?) some UNION SELECT * FROM (SELECT v.id FROM " + s.unwordedDrivers() + " LIMIT ?) others LIMIT ?"
	err = s.general.WithContext(ctx).Raw(query, indexBatch, indexBatch, indexBatch).Scan(&ids).Error
	if err != nil || len(ids) == 0 {
		return 0, unavailable(err)
	}
	err = s.transactWithRetry(ctx, s.writes, func(tx *gorm.DB) error {
		var rows []driverRow
		err := tx.Raw("SELECT * FROM drivers WHERE id IN ? AND (unindexed = 1 OR unworded = 1) ORDER BY id"+s.dialect.skipLocked, ids).Scan(&rows).Error
		if n = len(rows); err != nil || n == 0 {
			return unavailable(err)
		}
		if err := s.indexDrivers(tx, rows); err != nil {
			return err
		}
		if err := s.indexWords(tx, rows); err != nil {
			return err
		}
		locked := make([]dispatch.DriverID, n)
		for i := range rows {
			locked[i] = rows[i].ID
		}
		return unavailable(tx.Exec("UPDATE drivers"+s.dialect.forceIndex("PRIMARY")+
			" SET indexed_version = version, worded_version = version WHERE id IN ?", locked).Error)
	})
	return n, err
}

// IndexAllDrivers indexes drivers until none is left but those that are being changed, and returns how many there were. Several processes may do so
// together, and any may be interrupted.
func (s *Store) IndexAllDrivers(ctx context.Context) (total int, err error) {
	return untilNone(ctx, s.IndexDrivers)
}
