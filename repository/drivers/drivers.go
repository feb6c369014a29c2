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
	"firsttap/repository/database"
	"firsttap/repository/journal"
	"firsttap/repository/search"
)

// Drivers are the drivers, by what they are found, and their tokens. It is safe for concurrent use.
type Drivers struct{ db *database.DB }

// wordIndex is the index of drivers by words.
var wordIndex = search.Index{Entries: "driver_words", ID: "driver_id", Rows: "drivers"}

// New returns the drivers in a database.
func New(db *database.DB) *Drivers { return &Drivers{db} }

// driversPerInsert bounds one INSERT: SQLite takes 32,766 parameters, and a driver has 16.
const driversPerInsert = 500

// AddDrivers writes all drivers or none, and audits whether each gets a token, which must not be issued unless AddDrivers returns nil. If
// the request was carried out before, it writes nothing. ErrDuplicateDriver, ErrDuplicatePhone, ErrUnavailable, ErrUnknown.
func (s *Drivers) AddDrivers(ctx context.Context, drivers []dispatch.Driver, tokens bool) error {
	detail := map[string]any{"drivers": len(drivers), "tokens": tokens}
	if len(drivers) > 0 {
		detail["first"], detail["last"] = drivers[0].ID, drivers[len(drivers)-1].ID
	}
	_, err := s.addDrivers(ctx, drivers, dispatch.AuditDriversBulk, dispatch.AuditTargetDrivers, detail)
	return err
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
			rows[i] = Row{CreatedAt: database.Micros(now)}.with(v, now)
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
		return Index(tx, nil, rows)
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

// SetDuty puts a driver on or off duty, and audits a change. Changed is false if the driver was so already. ErrDriverNotFound, also for an
// erased driver, ErrUnavailable, ErrUnknown.
func (s *Drivers) SetDuty(ctx context.Context, id dispatch.DriverID, onDuty bool) (v dispatch.Driver, changed bool, err error) {
	record, err := s.ChangeDriver(ctx, id, dispatch.DriverChange{
		Action: dispatch.AuditDuty, Apply: func(v *dispatch.Driver, _ time.Time) error {
			changed, v.OnDuty = v.OnDuty != onDuty, onDuty
			return nil
		},
	})
	switch {
	case errors.Is(err, dispatch.ErrDriverErased):
		return dispatch.Driver{}, false, dispatch.ErrDriverNotFound
	case err != nil:
		return dispatch.Driver{}, false, err
	}
	return record.Driver, changed, nil
}

// DriverByFirebaseUID returns the driver that has the uid. ErrDriverNotFound.
func (s *Drivers) DriverByFirebaseUID(ctx context.Context, uid string) (dispatch.DriverID, error) {
	var rows []Row
	err := s.db.Serve.With(ctx).Select("id", "firebase_uid").Where("firebase_uid = ?", uid).Find(&rows).Error
	if err != nil {
		return "", database.Unavailable(err)
	}
	// A server ignores spaces at the end.
	if len(rows) == 0 || database.StringOrEmpty(rows[0].FirebaseUID) != uid {
		return "", dispatch.ErrDriverNotFound
	}
	return rows[0].ID, nil
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
		if after.Phone != record.Phone {
			if err := s.claimPhones(tx, []dispatch.Driver{after}); err != nil {
				return err
			}
		}
		after.OwnPhone = false
		if reflect.DeepEqual(after, record.Driver) {
			return nil
		}
		after.Version = record.Version + 1
		if err := save(tx, row, row.with(after, now)); err != nil {
			return err
		}
		detail := driverChanges(record.Driver, after)
		maps.Copy(detail, change.Detail)
		record.Driver, record.UpdatedAt = after, now
		if change.Action == dispatch.AuditDuty { // drivers may repeat it at any rate
			return journal.RecordCoalesced(tx, change.Action, string(id), detail, now)
		}
		return journal.Record(tx, change.Action, string(id), detail, now)
	})
	return record, err
}

// save replaces the driver's row, which tx has locked, and makes the index say what it says. ErrDuplicateDriver, ErrUnavailable.
func save(tx database.Tx, was, is Row) error {
	err := tx.Select("*").Omit("created_at").Updates(&is).Error
	if errors.Is(err, database.ErrDuplicateKey) {
		return dispatch.ErrDuplicateDriver
	}
	if err != nil {
		return database.Unavailable(err)
	}
	return Index(tx, []Row{was}, []Row{is})
}

// Find returns a driver's row, also an erased one's. ErrDriverNotFound.
func Find(db database.Tx, id dispatch.DriverID) (Row, error) { return find(db, id, "") }

// Share is Find that keeps others from changing the row until tx ends.
func Share(tx database.Tx, id dispatch.DriverID) (Row, error) { return find(tx, id, "{for_share}") }

// Lock locks the driver's row until tx ends, and returns it and the database's time. ErrDriverNotFound.
func Lock(tx database.Tx, id dispatch.DriverID) (row Row, now time.Time, err error) {
	if row, err = find(tx, id, "{for_update}"); err == nil {
		now, err = database.Clock(tx) // after the wait for the row's lock
	}
	return row, now, err
}

func find(db database.Tx, id dispatch.DriverID, lock string) (Row, error) {
	var rows []Row
	if err := db.Raw("SELECT * FROM drivers WHERE id = ? "+lock, id).Scan(&rows).Error; err != nil {
		return Row{}, database.Unavailable(err)
	}
	if len(rows) == 0 {
		return Row{}, dispatch.ErrDriverNotFound
	}
	return rows[0], nil
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
	// TokenGeneration counts the revocations of the driver's tokens, and TokensRevokedAt is when the last one was.
	TokenGeneration int
	TokensRevokedAt *int64
	ErasedAt        *int64
}

// TableName implements gorm.Tabler.
func (Row) TableName() string { return "drivers" }

// with returns the row with what v says, changed at that time.
func (row Row) with(v dispatch.Driver, at time.Time) Row {
	row.ID, row.Name, row.Phone, row.VehicleClass, row.WorkingHeightM = v.ID, v.Name, v.Phone, v.VehicleClass, v.WorkingHeightM
	row.FirebaseUID, row.Locale, row.OnDuty, row.Version = database.Nullable(v.FirebaseUID), v.Locale, v.OnDuty, v.Version
	row.SuspendedUntil, row.UpdatedAt = database.OptionalMicros(v.SuspendedUntil), database.Micros(at)
	regions, _ := json.Marshal(v.Regions) // strings have no error
	row.Regions = string(regions)
	return row
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

// Record returns the driver as the backoffice shows it.
func (row *Row) Record() (dispatch.DriverRecord, error) {
	v, err := row.Driver()
	return dispatch.DriverRecord{
		Driver: v, CreatedAt: database.Time(row.CreatedAt), UpdatedAt: database.Time(row.UpdatedAt),
		ErasedAt: database.OptionalTime(row.ErasedAt),
	}, err
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
