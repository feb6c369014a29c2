package drivers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/migrations"
	"firsttap/repository/database"
	"firsttap/repository/journal"
	"firsttap/repository/search"
)

// Drivers are the drivers, by what they are found, and their tokens. It is safe for concurrent use.
type Drivers struct {
	db    *database.DB
	words search.Index
}

// words is the index of drivers by words.
var words = search.Index{Entries: "driver_words", ID: "driver_id", Rows: "drivers"}

// New returns the drivers in a database.
func New(db *database.DB) *Drivers {
	s := &Drivers{db, words}
	s.words.TiDB = db.Dialect == migrations.TiDB
	return s
}

// driversPerInsert bounds one INSERT: SQLite takes 32,766 parameters, and a driver has 14.
const driversPerInsert = 500

// AddDrivers writes all drivers or none. If the request was carried out before, it writes nothing. ErrDuplicateDriver, ErrDuplicatePhone.
func (s *Drivers) AddDrivers(ctx context.Context, drivers []dispatch.Driver) error {
	_, err := s.addDrivers(ctx, drivers, dispatch.AuditDriversBulk, dispatch.AuditTargetDrivers, bulkDetail(drivers, false))
	return err
}

// AddDriversWithTokens is AddDrivers for drivers that each get a token, which is audited. The tokens must not be issued unless
// it returns nil.
func (s *Drivers) AddDriversWithTokens(ctx context.Context, drivers []dispatch.Driver) error {
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
func (s *Drivers) addDrivers(ctx context.Context, drivers []dispatch.Driver,
	action dispatch.AuditAction, target string, detail map[string]any,
) (added []Row, err error) {
	err = s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		added = nil
		if applied, err := journal.AlreadyApplied(tx, journal.AuditProof); applied || err != nil {
			return err
		}
		now, err := database.Clock(tx)
		if err != nil {
			return err
		}
		if err := journal.Record(tx, action, target, detail, now); err != nil {
			return err
		}
		rows := make([]Row, len(drivers))
		for i, v := range drivers {
			if rows[i], err = toDriverRow(v, now); err != nil {
				return err
			}
		}
		err = tx.CreateInBatches(rows, driversPerInsert).Error
		if errors.Is(err, database.ErrDuplicateKey) {
			return dispatch.ErrDuplicateDriver
		}
		if err != nil {
			return database.Unavailable(err)
		}
		if err := s.claimPhones(tx, drivers); err != nil {
			return err
		}
		added = rows
		return Index(tx, rows)
	})
	return added, err
}

// Driver returns a driver, but no erased one. ErrDriverNotFound.
func (s *Drivers) Driver(ctx context.Context, id dispatch.DriverID) (dispatch.Driver, error) {
	r, err := s.DriverRecord(ctx, id)
	if err == nil && r.ErasedAt != nil {
		err = dispatch.ErrDriverNotFound
	}
	return r.Driver, err
}

// SetDuty puts a driver on or off duty, and audits a change. changed is false if the driver was so already. ErrDriverNotFound, also for an
// erased driver, ErrUnavailable, ErrUnknown.
func (s *Drivers) SetDuty(ctx context.Context, id dispatch.DriverID, onDuty bool) (v dispatch.Driver, changed bool, err error) {
	var row Row // it is read before the COMMIT: after it, a failed read would say that nothing was changed
	err = s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		update := tx.Exec("UPDATE drivers SET version = version + 1, on_duty = ?, updated_at = {now}"+
			" WHERE id = ? AND on_duty <> ? AND erased_at IS NULL", onDuty, id, onDuty)
		if update.Error != nil {
			return database.Unavailable(update.Error)
		}
		changed = update.RowsAffected > 0
		var err error
		if row, err = Find(tx, id); err != nil || !changed {
			return err
		}
		if err := indexRegions(tx, &row); err != nil {
			return err
		}
		now, err := database.Clock(tx)
		if err != nil {
			return err
		}
		detail := journal.Changes{}
		journal.AddChange(detail, "on_duty", !onDuty, onDuty)
		return journal.RecordCoalesced(tx, dispatch.AuditDuty, string(id), detail, now)
	})
	if err != nil {
		return dispatch.Driver{}, false, err
	}
	if row.ErasedAt != nil {
		return dispatch.Driver{}, false, dispatch.ErrDriverNotFound
	}
	v, err = row.Driver()
	return v, changed, err
}

// DriverByFirebaseUID returns the driver that has the uid. ErrDriverNotFound.
func (s *Drivers) DriverByFirebaseUID(ctx context.Context, uid string) (dispatch.DriverID, error) {
	var rows []Row
	err := s.db.Serve.With(ctx).Select("id", "firebase_uid").Where("firebase_uid = ?", uid).Find(&rows).Error
	if err != nil {
		return "", database.Unavailable(err)
	}
	for _, row := range rows {
		if database.StringOrEmpty(row.FirebaseUID) == uid { // the column's collation may ignore case
			return row.ID, nil
		}
	}
	return "", dispatch.ErrDriverNotFound
}

// CreateDriver writes a new driver. If the request was carried out before, it returns the driver as it is now.
// ErrDuplicateDriver, ErrDuplicatePhone.
func (s *Drivers) CreateDriver(ctx context.Context, v dispatch.Driver) (dispatch.DriverRecord, error) {
	added, err := s.addDrivers(ctx, []dispatch.Driver{v}, dispatch.AuditDriverCreate, string(v.ID), nil)
	if err != nil {
		return dispatch.DriverRecord{}, err
	}
	if len(added) > 0 {
		return added[0].Record()
	}
	return s.DriverRecord(ctx, v.ID)
}

// DriverRecord returns a driver, also an erased one, as the backoffice shows it. ErrDriverNotFound.
func (s *Drivers) DriverRecord(ctx context.Context, id dispatch.DriverID) (dispatch.DriverRecord, error) {
	row, err := Find(s.db.Serve.With(ctx), id)
	if err != nil {
		return dispatch.DriverRecord{}, err
	}
	return row.Record()
}

// Find returns a driver's row, also an erased one's. ErrDriverNotFound.
func Find(db database.Tx, id dispatch.DriverID) (Row, error) {
	var rows []Row
	if err := db.Where("id = ?", id).Find(&rows).Error; err != nil {
		return Row{}, database.Unavailable(err)
	}
	if len(rows) == 0 {
		return Row{}, dispatch.ErrDriverNotFound
	}
	return rows[0], nil
}

// Record returns the driver as the backoffice shows it.
func (row *Row) Record() (dispatch.DriverRecord, error) {
	v, err := row.Driver()
	return dispatch.DriverRecord{
		Driver: v, CreatedAt: database.Time(row.CreatedAt), UpdatedAt: database.Time(row.UpdatedAt),
		ErasedAt: database.OptionalTime(row.ErasedAt),
	}, err
}

// ChangeDriver applies the change to the locked driver, and commits the new version together with an audit entry: the old and
// new values and change.Detail. It writes nothing if no value changes, or if the request was carried out before.
// ErrDriverNotFound, ErrDriverErased, ErrDriverVersionConflict, ErrDuplicateDriver, ErrDuplicatePhone; the change's own errors unchanged;
// ErrUnavailable, ErrUnknown.
func (s *Drivers) ChangeDriver(ctx context.Context, id dispatch.DriverID, change dispatch.DriverChange) (dispatch.DriverRecord, error) {
	var record dispatch.DriverRecord
	err := s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		row, now, err := Lock(tx, id)
		if err != nil {
			return err
		}
		if record, err = row.Record(); err != nil {
			return database.Unavailable(err)
		}
		if applied, err := journal.AlreadyApplied(tx, journal.AuditProof); applied || err != nil {
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
		return journal.Record(tx, change.Action, string(id), detail, now)
	})
	return record, err
}

// saveDriver replaces before with v. The row is locked; its version is a condition all the same.
func (s *Drivers) saveDriver(tx database.Tx, before dispatch.DriverRecord, v dispatch.Driver, now time.Time) error {
	row, err := toDriverRow(v, now)
	if err != nil {
		return err
	}
	saved := tx.Model(&Row{}).Where("id = ? AND version = ?", before.ID, before.Version).
		Select("*").Omit("id", "created_at").Updates(&row)
	switch {
	case errors.Is(saved.Error, database.ErrDuplicateKey):
		return dispatch.ErrDuplicateDriver
	case saved.Error != nil:
		return database.Unavailable(saved.Error)
	case saved.RowsAffected != 1:
		return database.Unavailable(database.ErrConflict)
	}
	if err := indexRegions(tx, &row); err != nil {
		return err
	}
	return indexWords(tx, &row)
}

// Lock locks the driver's row until tx ends, and returns it and the database's time. ErrDriverNotFound.
func Lock(tx database.Tx, id dispatch.DriverID) (Row, time.Time, error) {
	var rows []Row
	err := tx.Raw("SELECT * FROM drivers WHERE id = ? {for_update}", id).Scan(&rows).Error
	if err != nil {
		return Row{}, time.Time{}, database.Unavailable(err)
	}
	if len(rows) == 0 {
		return Row{}, time.Time{}, dispatch.ErrDriverNotFound
	}
	now, err := database.Clock(tx) // after the wait for the row's lock
	return rows[0], now, err
}

// Row is a row of the table drivers.
type Row struct {
	ID             dispatch.DriverID `gorm:"primaryKey"`
	Name           string
	Phone          string
	Regions        string
	VehicleClass   string
	WorkingHeightM *float64
	FirebaseUID    *string `gorm:"column:firebase_uid"`
	Locale         string
	OnDuty         bool
	SuspendedUntil *int64
	Version        int
	CreatedAt      int64 `gorm:"autoCreateTime:false"`
	UpdatedAt      int64 `gorm:"autoUpdateTime:false"`
	// Only RevokeTokens writes these.
	TokenGeneration int    `gorm:"->"`
	TokensRevokedAt *int64 `gorm:"->"`
	// Only EraseDriver writes it.
	ErasedAt *int64 `gorm:"->"`
}

// TableName implements gorm.Tabler.
func (Row) TableName() string { return "drivers" }

func toDriverRow(v dispatch.Driver, now time.Time) (Row, error) {
	regions, err := json.Marshal(v.Regions)
	if err != nil {
		return Row{}, fmt.Errorf("regions of %s: %w", v.ID, err)
	}
	return Row{
		ID: v.ID, Name: v.Name, Phone: v.Phone, Regions: string(regions), VehicleClass: v.VehicleClass,
		WorkingHeightM: v.WorkingHeightM, FirebaseUID: database.Nullable(v.FirebaseUID), Locale: v.Locale, OnDuty: v.OnDuty,
		SuspendedUntil: database.OptionalMicros(v.SuspendedUntil), Version: v.Version,
		CreatedAt: database.Micros(now), UpdatedAt: database.Micros(now),
	}, nil
}

// Driver returns the driver of the row.
func (row *Row) Driver() (dispatch.Driver, error) {
	v := dispatch.Driver{
		ID: row.ID, Name: row.Name, Phone: row.Phone, VehicleClass: row.VehicleClass,
		WorkingHeightM: row.WorkingHeightM, FirebaseUID: database.StringOrEmpty(row.FirebaseUID), Locale: row.Locale,
		OnDuty: row.OnDuty, SuspendedUntil: database.OptionalTime(row.SuspendedUntil), Version: row.Version,
	}
	if err := json.Unmarshal([]byte(row.Regions), &v.Regions); err != nil {
		return v, fmt.Errorf("regions of %s: %w", row.ID, err)
	}
	return v, nil
}

// driverChanges returns the driver's changed fields by their names in the API, without the version.
func driverChanges(from, to dispatch.Driver) journal.Changes {
	c := journal.Changes{}
	journal.AddPersonal(c, "name", from.Name, to.Name)
	journal.AddPersonal(c, "phone", from.Phone, to.Phone)
	if !slices.Equal(from.Regions, to.Regions) {
		c["regions"] = map[string]any{"from": from.Regions, "to": to.Regions}
	}
	journal.AddChange(c, "vehicle_class", from.VehicleClass, to.VehicleClass)
	journal.AddChange(c, "working_height_m", journal.NullableNumber(from.WorkingHeightM), journal.NullableNumber(to.WorkingHeightM))
	journal.AddPersonal(c, "firebase_uid", from.FirebaseUID, to.FirebaseUID)
	journal.AddChange(c, "locale", journal.NullableText(from.Locale), journal.NullableText(to.Locale))
	journal.AddChange(c, "on_duty", from.OnDuty, to.OnDuty)
	journal.AddChange(c, "suspended_until", journal.NullableTime(from.SuspendedUntil), journal.NullableTime(to.SuspendedUntil))
	return c
}
