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

// lockDriver locks the driver's row until tx ends, and returns it and the time. ErrDriverNotFound.
func (s *Store) lockDriver(tx *gorm.DB, id dispatch.DriverID) (driverRow, time.Time, error) {
	var rows []driverRow
	err := tx.Raw("SELECT * FROM drivers WHERE id = ?"+s.dialect.forUpdate, id).Scan(&rows).Error
	if err != nil {
		return driverRow{}, time.Time{}, unavailable(err)
	}
	if len(rows) == 0 {
		return driverRow{}, time.Time{}, dispatch.ErrDriverNotFound
	}
	now, err := s.clock(tx) // now that the row is ours
	return rows[0], now, err
}

// CreateDriver writes a new driver. A request that has made the driver already gets it as it stands. ErrDuplicateDriver.
func (s *Store) CreateDriver(ctx context.Context, v dispatch.Driver) (dispatch.DriverRecord, error) {
	err := s.addDrivers(ctx, []dispatch.Driver{v}, dispatch.AuditDriverCreate, string(v.ID), nil)
	if err != nil {
		return dispatch.DriverRecord{}, err
	}
	return s.DriverRecord(ctx, v.ID)
}

// DriverRecord returns a driver as the backoffice sees them. ErrDriverNotFound.
func (s *Store) DriverRecord(ctx context.Context, id dispatch.DriverID) (dispatch.DriverRecord, error) {
	var rows []driverRow
	if err := s.general.WithContext(ctx).Where("id = ?", id).Find(&rows).Error; err != nil {
		return dispatch.DriverRecord{}, unavailable(err)
	}
	if len(rows) == 0 {
		return dispatch.DriverRecord{}, dispatch.ErrDriverNotFound
	}
	return rows[0].record()
}

func (row *driverRow) record() (dispatch.DriverRecord, error) {
	v, err := row.driver()
	return dispatch.DriverRecord{Driver: v, CreatedAt: fromMicros(row.CreatedAt), UpdatedAt: fromMicros(row.UpdatedAt)}, err
}

// ChangeDriver changes the locked driver, and writes the new version and its audit entry, which has the old and the new
// values beside what the change says of itself, or nothing. A change that
// leaves everything as it was writes nothing; nor does a request that was done already. ErrDriverNotFound,
// ErrDriverMoved, ErrDuplicateDriver; the change's own errors as they are; ErrUnavailable, ErrUnknown.
func (s *Store) ChangeDriver(ctx context.Context, id dispatch.DriverID, change dispatch.DriverChange) (dispatch.DriverRecord, error) {
	var record dispatch.DriverRecord
	err := s.persist(ctx, s.writes, func(tx *gorm.DB) error {
		row, now, err := s.lockDriver(tx, id)
		if err != nil {
			return err
		}
		if record, err = row.record(); err != nil {
			return unavailable(err)
		}
		if e, err := made(tx); err != nil || e != nil {
			return err
		}
		if change.Version != 0 && change.Version != record.Version {
			return dispatch.ErrDriverMoved
		}
		after := record.Driver
		after.Regions = slices.Clone(after.Regions)
		if err := change.Apply(&after, now); err != nil || reflect.DeepEqual(after, record.Driver) {
			return err
		}
		after.Version = record.Version + 1
		if err := saveDriver(tx, record, after, now); err != nil {
			return err
		}
		detail := changesOf(record.Driver, after)
		maps.Copy(detail, change.Detail)
		record.Driver, record.UpdatedAt = after, now
		return audit(tx, change.Action, string(id), detail, now)
	})
	return record, err
}

// saveDriver writes v over before. The row is locked; its version is a condition all the same.
func saveDriver(tx *gorm.DB, before dispatch.DriverRecord, v dispatch.Driver, now time.Time) error {
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
		return unavailable(errMoved)
	}
	return nil
}

// Drivers returns the drivers that q selects, newest first, and the cursor of the next page, "" after the last.
func (s *Store) Drivers(ctx context.Context, q dispatch.DriverQuery) ([]dispatch.DriverRecord, string, error) {
	db := s.general.WithContext(ctx).Table("drivers v").Where("1 = 1")
	if q.Region != "" {
		db = db.Where(s.dialect.hasRegion, q.Region)
	}
	if q.VehicleClass != "" {
		db = db.Where("v.vehicle_class = ?", q.VehicleClass)
	}
	if q.OnDuty != nil {
		db = db.Where("v.on_duty = ?", *q.OnDuty)
	}
	if now := s.dialect.now(); q.Suspended != nil && *q.Suspended {
		db = db.Where("v.suspended_until > " + now)
	} else if q.Suspended != nil {
		db = db.Where("(v.suspended_until IS NULL OR v.suspended_until <= " + now + ")")
	}
	if q.Text != "" {
		where, args := textSQL(q.Text, "v.name", "v.phone", "v.firebase_uid")
		db = db.Where(where, args...)
	}
	rows, next, err := newestFirst(db, "v.id", q.Page, func(row *driverRow) string { return string(row.ID) })
	items := make([]dispatch.DriverRecord, len(rows))
	for i := range rows {
		var bad error
		if items[i], bad = rows[i].record(); bad != nil {
			return nil, "", unavailable(bad)
		}
	}
	return items, next, err
}

// Devices returns the driver's devices, newest first, and the cursor of the next page, "" after the last.
// ErrDriverNotFound.
func (s *Store) Devices(ctx context.Context, driver dispatch.DriverID, page dispatch.Page) ([]dispatch.Device, string, error) {
	db := s.general.WithContext(ctx).Where("driver_id = ?", driver)
	rows, next, err := newestFirst(db, "id", page, func(row *deviceRow) string { return string(row.ID) })
	if err == nil && len(rows) == 0 {
		_, err = s.Driver(ctx, driver)
	}
	items := make([]dispatch.Device, len(rows))
	for i := range rows {
		items[i] = rows[i].device()
	}
	return items, next, err
}
