package repository

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// driversPerInsert bounds one INSERT: SQLite takes 32,766 parameters, and a driver has 14.
const driversPerInsert = 500

// AddDrivers writes all drivers or none. If the request was carried out before, it writes nothing. ErrDuplicateDriver, ErrDuplicatePhone.
func (s *Store) AddDrivers(ctx context.Context, drivers []dispatch.Driver) error {
	_, err := s.addDrivers(ctx, drivers, dispatch.AuditDriversBulk, dispatch.AuditTargetDrivers, bulkDetail(drivers, false))
	return err
}

// AddDriversWithTokens is AddDrivers for drivers that each get a token, which is audited. The tokens must not be issued unless
// it returns nil.
func (s *Store) AddDriversWithTokens(ctx context.Context, drivers []dispatch.Driver) error {
	_, err := s.addDrivers(ctx, drivers, dispatch.AuditDriversBulk, dispatch.AuditTargetDrivers, bulkDetail(drivers, true))
	return err
}

func bulkDetail(drivers []dispatch.Driver, tokens bool) map[string]any {
	detail := map[string]any{"drivers": len(drivers), "tokens": tokens}
	if len(drivers) > 0 {
		detail["first"], detail["last"] = drivers[0].ID, drivers[len(drivers)-1].ID
	}
	return detail
}

// addDrivers returns the rows that it added, and none if the request was carried out before.
func (s *Store) addDrivers(ctx context.Context, drivers []dispatch.Driver,
	action dispatch.AuditAction, target string, detail map[string]any,
) (added []driverRow, err error) {
	err = s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		added = nil
		if applied, err := alreadyApplied(tx, auditProof); applied || err != nil {
			return err
		}
		now, err := s.clock(tx)
		if err != nil {
			return err
		}
		if err := audit(tx, action, target, detail, now); err != nil {
			return err
		}
		rows := make([]driverRow, len(drivers))
		for i, v := range drivers {
			if rows[i], err = toDriverRow(v, now); err != nil {
				return err
			}
		}
		err = tx.CreateInBatches(rows, driversPerInsert).Error
		if errors.Is(err, gorm.ErrDuplicatedKey) {
			return dispatch.ErrDuplicateDriver
		}
		if err != nil {
			return unavailable(err)
		}
		if err := s.claimPhones(tx, drivers); err != nil {
			return err
		}
		added = rows
		if err := s.addDriverRegions(tx, rows); err != nil {
			return err
		}
		return s.addDriverWords(tx, rows)
	})
	return added, err
}

// Driver returns a driver, but no erased one. ErrDriverNotFound.
func (s *Store) Driver(ctx context.Context, id dispatch.DriverID) (dispatch.Driver, error) {
	r, err := s.DriverRecord(ctx, id)
	if err == nil && r.ErasedAt != nil {
		err = dispatch.ErrDriverNotFound
	}
	return r.Driver, err
}

// SetDuty puts a driver on or off duty, and audits a change. changed is false if the driver was so already. ErrDriverNotFound, also for an
// erased driver, ErrUnavailable, ErrUnknown.
func (s *Store) SetDuty(ctx context.Context, id dispatch.DriverID, onDuty bool) (v dispatch.Driver, changed bool, err error) {
	var row driverRow // it is read before the COMMIT: after it, a failed read would say that nothing was changed
	err = s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		update := tx.Exec("UPDATE drivers SET version = version + 1, on_duty = ?, updated_at = {now}"+
			" WHERE id = ? AND on_duty <> ? AND erased_at IS NULL", onDuty, id, onDuty)
		if update.Error != nil {
			return unavailable(update.Error)
		}
		changed = update.RowsAffected > 0
		var err error
		if row, err = findDriver(tx, id); err != nil || !changed {
			return err
		}
		if err := s.indexRegions(tx, &row); err != nil {
			return err
		}
		now, err := s.clock(tx)
		if err != nil {
			return err
		}
		detail := fieldChanges{}
		addChange(detail, "on_duty", !onDuty, onDuty)
		return auditCoalesced(tx, dispatch.AuditDuty, string(id), detail, now)
	})
	if err != nil {
		return dispatch.Driver{}, false, err
	}
	if row.ErasedAt != nil {
		return dispatch.Driver{}, false, dispatch.ErrDriverNotFound
	}
	v, err = row.driver()
	return v, changed, err
}

// DriverByFirebaseUID returns the driver that has the uid. ErrDriverNotFound.
func (s *Store) DriverByFirebaseUID(ctx context.Context, uid string) (dispatch.DriverID, error) {
	var rows []driverRow
	err := s.serve.WithContext(ctx).Select("id", "firebase_uid").Where("firebase_uid = ?", uid).Find(&rows).Error
	if err != nil {
		return "", unavailable(err)
	}
	for _, row := range rows {
		if stringOrEmpty(row.FirebaseUID) == uid { // the column's collation may ignore case
			return row.ID, nil
		}
	}
	return "", dispatch.ErrDriverNotFound
}

// CreateDriver writes a new driver. If the request was carried out before, it returns the driver as it is now.
// ErrDuplicateDriver, ErrDuplicatePhone.
func (s *Store) CreateDriver(ctx context.Context, v dispatch.Driver) (dispatch.DriverRecord, error) {
	added, err := s.addDrivers(ctx, []dispatch.Driver{v}, dispatch.AuditDriverCreate, string(v.ID), nil)
	if err != nil {
		return dispatch.DriverRecord{}, err
	}
	if len(added) > 0 {
		return added[0].record()
	}
	return s.DriverRecord(ctx, v.ID)
}

// DriverRecord returns a driver, also an erased one, as the backoffice shows it. ErrDriverNotFound.
func (s *Store) DriverRecord(ctx context.Context, id dispatch.DriverID) (dispatch.DriverRecord, error) {
	row, err := findDriver(s.serve.WithContext(ctx), id)
	if err != nil {
		return dispatch.DriverRecord{}, err
	}
	return row.record()
}

// findDriver returns a driver's row, also an erased one's. ErrDriverNotFound.
func findDriver(db *gorm.DB, id dispatch.DriverID) (driverRow, error) {
	var rows []driverRow
	if err := db.Where("id = ?", id).Find(&rows).Error; err != nil {
		return driverRow{}, unavailable(err)
	}
	if len(rows) == 0 {
		return driverRow{}, dispatch.ErrDriverNotFound
	}
	return rows[0], nil
}

func (row *driverRow) record() (dispatch.DriverRecord, error) {
	v, err := row.driver()
	return dispatch.DriverRecord{
		Driver: v, CreatedAt: fromMicros(row.CreatedAt), UpdatedAt: fromMicros(row.UpdatedAt), ErasedAt: fromOptionalMicros(row.ErasedAt),
	}, err
}

// ChangeDriver applies the change to the locked driver, and commits the new version together with an audit entry: the old and
// new values and change.Detail. It writes nothing if no value changes, or if the request was carried out before.
// ErrDriverNotFound, ErrDriverErased, ErrDriverVersionConflict, ErrDuplicateDriver, ErrDuplicatePhone; the change's own errors unchanged; ErrUnavailable,
// ErrUnknown.
func (s *Store) ChangeDriver(ctx context.Context, id dispatch.DriverID, change dispatch.DriverChange) (dispatch.DriverRecord, error) {
	var record dispatch.DriverRecord
	err := s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		row, now, err := s.lockDriver(tx, id)
		if err != nil {
			return err
		}
		if record, err = row.record(); err != nil {
			return unavailable(err)
		}
		if applied, err := alreadyApplied(tx, auditProof); applied || err != nil {
			return err
		}
		if record.ErasedAt != nil {
			return dispatch.ErrDriverErased
		}
		if change.Version != 0 && change.Version != record.Version {
			return dispatch.ErrDriverVersionConflict
		}
		after := record.Driver
		after.Regions = slices.Clone(after.Regions)
		if err := change.Apply(&after, now); err != nil {
			return err
		}
		changed := after
		if changed.OwnPhone = false; reflect.DeepEqual(changed, record.Driver) {
			return nil
		}
		if after.Phone != record.Phone {
			if err := s.claimPhones(tx, []dispatch.Driver{after}); err != nil {
				return err
			}
		}
		after = changed
		after.Version = record.Version + 1
		if err := s.saveDriver(tx, record, after, now); err != nil {
			return err
		}
		detail := driverChanges(record.Driver, after)
		maps.Copy(detail, change.Detail)
		record.Driver, record.UpdatedAt = after, now
		return audit(tx, change.Action, string(id), detail, now)
	})
	return record, err
}

// saveDriver replaces before with v. The row is locked; its version is a condition all the same.
func (s *Store) saveDriver(tx *gorm.DB, before dispatch.DriverRecord, v dispatch.Driver, now time.Time) error {
	row, err := toDriverRow(v, now)
	if err != nil {
		return err
	}
	saved := tx.Model(&driverRow{}).Where("id = ? AND version = ?", before.ID, before.Version).
		Select("*").Omit("id", "created_at").Updates(&row)
	switch {
	case errors.Is(saved.Error, gorm.ErrDuplicatedKey):
		return dispatch.ErrDuplicateDriver
	case saved.Error != nil:
		return unavailable(saved.Error)
	case saved.RowsAffected != 1:
		return unavailable(errConflict)
	}
	if err := s.indexRegions(tx, &row); err != nil {
		return err
	}
	return s.indexWords(tx, &row)
}

// lockDriver locks the driver's row until tx ends, and returns it and the database's time. ErrDriverNotFound.
func (s *Store) lockDriver(tx *gorm.DB, id dispatch.DriverID) (driverRow, time.Time, error) {
	var rows []driverRow
	err := tx.Raw("SELECT * FROM drivers WHERE id = ? {for_update}", id).Scan(&rows).Error
	if err != nil {
		return driverRow{}, time.Time{}, unavailable(err)
	}
	if len(rows) == 0 {
		return driverRow{}, time.Time{}, dispatch.ErrDriverNotFound
	}
	now, err := s.clock(tx) // after the wait for the row's lock
	return rows[0], now, err
}
