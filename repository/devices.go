package repository

import (
	"context"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

type deviceRow struct {
	ID             dispatch.DeviceID `gorm:"primaryKey"`
	DriverID       dispatch.DriverID
	InstallationID string
	Platform       dispatch.Platform
	PushToken      string
	AppVersion     string
	Locale         string
	GoodAt         *int64
	SuspectedAt    *int64
	QuarantinedAt  *int64
	CreatedAt      int64 `gorm:"autoCreateTime:false"`
	UpdatedAt      int64 `gorm:"autoUpdateTime:false"`
}

func (deviceRow) TableName() string { return "devices" }

func (row *deviceRow) device() dispatch.Device {
	return dispatch.Device{
		ID: row.ID, Driver: row.DriverID, Installation: row.InstallationID, Platform: row.Platform,
		PushToken: row.PushToken, AppVersion: row.AppVersion, Locale: row.Locale,
		PushAcceptedAt: fromOptionalMicros(row.GoodAt), SuspectedAt: fromOptionalMicros(row.SuspectedAt),
		QuarantinedAt: fromOptionalMicros(row.QuarantinedAt), UpdatedAt: fromMicros(row.UpdatedAt),
	}
}

// maxDevices bounds a driver's devices. One more replaces the device that was registered the longest ago.
const maxDevices = 10

// PutDevice registers an installation of the driver's app, or replaces its registration, and returns the device. It deletes
// any other device with the same push token. It ends a quarantine: with the same token the device is suspect then, with another
// one it is as good as new. ErrDriverNotFound, also for an erased driver; ErrUnavailable if nothing was written.
func (s *Store) PutDevice(ctx context.Context, v dispatch.Device) (dispatch.Device, error) {
	var put dispatch.Device
	err := s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		// The lock keeps two registrations at the same time from exceeding maxDevices.
		var driver []dispatch.DriverID
		err := tx.Raw("SELECT id FROM drivers WHERE id = ? AND erased_at IS NULL {for_update}", v.Driver).Scan(&driver).Error
		if err != nil {
			return unavailable(err)
		}
		if len(driver) == 0 {
			return dispatch.ErrDriverNotFound
		}
		now, err := s.clock(tx)
		if err != nil {
			return err
		}
		elsewhere := tx.Where("push_token = ? AND NOT (driver_id = ? AND installation_id = ?)", v.PushToken, v.Driver, v.Installation)
		var previous []deviceRow
		if err := elsewhere.Session(&gorm.Session{}).Limit(1).Find(&previous).Error; err != nil {
			return unavailable(err)
		}
		if err := elsewhere.Session(&gorm.Session{}).Delete(&deviceRow{}).Error; err != nil {
			return unavailable(err)
		}
		before, after, err := putDevice(tx, v, now)
		if put = after; err != nil {
			return unavailable(err)
		}
		detail := deviceChanges(before, after)
		if len(detail) == 0 {
			return nil
		}
		detail["device_id"] = string(after.ID)
		if len(previous) > 0 {
			detail["token_was_of"] = string(previous[0].DriverID)
		}
		return auditCoalesced(tx, dispatch.AuditDevicePut, string(v.Driver), detail, now)
	})
	return put, err
}

// putDevice writes the device, whose token no other device has. It returns the installation's device before, a zero device for
// none, and after.
func putDevice(tx *gorm.DB, v dispatch.Device, now time.Time) (before, after dispatch.Device, err error) {
	row := deviceRow{
		ID: dispatch.NewDeviceID(now), DriverID: v.Driver, InstallationID: v.Installation, Platform: v.Platform,
		PushToken: v.PushToken, AppVersion: v.AppVersion, Locale: v.Locale, CreatedAt: micros(now), UpdatedAt: micros(now),
	}
	var all []deviceRow
	if err := tx.Where("driver_id = ?", v.Driver).Order("updated_at DESC, id DESC").Find(&all).Error; err != nil {
		return before, after, err
	}
	others := make([]dispatch.DeviceID, 0, len(all))
	for i := range all {
		if all[i].InstallationID != v.Installation {
			others = append(others, all[i].ID)
			continue
		}
		row.ID, before = all[i].ID, all[i].device()
		if all[i].PushToken == v.PushToken {
			row.GoodAt, row.SuspectedAt = all[i].GoodAt, all[i].SuspectedAt
			if all[i].QuarantinedAt != nil {
				row.SuspectedAt = &row.UpdatedAt
			}
		}
		written := tx.Model(&deviceRow{}).Where("id = ?", row.ID).Select("*").Omit("id", "created_at").Updates(&row)
		if written.Error == nil && written.RowsAffected == 0 {
			return before, after, errConflict // another registration has just taken its token, and deleted it
		}
		return before, row.device(), written.Error
	}
	if len(others) >= maxDevices {
		if err := tx.Where("id IN ?", others[maxDevices-1:]).Delete(&deviceRow{}).Error; err != nil {
			return before, after, err
		}
	}
	return before, row.device(), tx.Create(&row).Error
}

// DeleteDevice deletes the device of an installation of the driver's app, if there is one. ErrDriverNotFound.
func (s *Store) DeleteDevice(ctx context.Context, driver dispatch.DriverID, installation string) error {
	return s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		_, now, err := s.lockDriver(tx, driver)
		if err != nil {
			return err
		}
		registered := tx.Where("driver_id = ? AND installation_id = ?", driver, installation)
		var rows []deviceRow
		if err := registered.Session(&gorm.Session{}).Find(&rows).Error; err != nil || len(rows) == 0 {
			return unavailable(err)
		}
		if err := registered.Session(&gorm.Session{}).Delete(&deviceRow{}).Error; err != nil {
			return unavailable(err)
		}
		detail := deviceChanges(rows[0].device(), dispatch.Device{})
		detail["device_id"] = string(rows[0].ID)
		if dispatch.CallerFrom(ctx).Actor != string(driver) {
			return audit(tx, dispatch.AuditDeviceDelete, string(driver), detail, now)
		}
		return auditCoalesced(tx, dispatch.AuditDeviceDelete, string(driver), detail, now)
	})
}

const devicesPerStatement = 200

// MarkPushAccepted marks the devices as good, as the push service has just accepted a push to each, and ends suspicion and quarantine.
// Like MarkDevicesSuspect and QuarantineDevices, it skips a device whose token is no longer the given one.
func (s *Store) MarkPushAccepted(ctx context.Context, devices []dispatch.Device) error {
	return s.markDevices(ctx, devices, "good_at = {now}, suspected_at = NULL, quarantined_at = NULL", "1 = 1")
}

// MarkDevicesSuspect marks the devices whose tokens the push service calls dead, unless they are marked or quarantined already.
func (s *Store) MarkDevicesSuspect(ctx context.Context, devices []dispatch.Device) error {
	return s.markDevices(ctx, devices, "suspected_at = {now}", "suspected_at IS NULL AND quarantined_at IS NULL")
}

// QuarantineDevices ends all pushes to those of the devices that are still suspect.
func (s *Store) QuarantineDevices(ctx context.Context, devices []dispatch.Device) error {
	return s.markDevices(ctx, devices, "quarantined_at = {now}, suspected_at = NULL", "suspected_at IS NOT NULL")
}

func (s *Store) markDevices(ctx context.Context, devices []dispatch.Device, set, where string) error {
	for some := range slices.Chunk(devices, devicesPerStatement) {
		ids, pairs := make([]dispatch.DeviceID, len(some)), make([]any, 0, 2*len(some))
		for i, v := range some {
			ids[i] = v.ID
			pairs = append(pairs, v.ID, v.PushToken)
		}
		same := strings.TrimPrefix(strings.Repeat(" OR id = ? AND push_token = ?", len(some)), " OR ")
		err := s.transactWithRetry(ctx, s.work, func(tx *gorm.DB) error {
			return unavailable(tx.Exec("UPDATE devices {force PRIMARY} SET "+set+" WHERE id IN ? AND ("+same+") AND "+where,
				append([]any{ids}, pairs...)...).Error)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Devices returns the driver's devices, newest first, and the cursor of the next page, "" after the last.
// ErrDriverNotFound.
func (s *Store) Devices(ctx context.Context, driver dispatch.DriverID, page dispatch.Page) ([]dispatch.Device, string, error) {
	db := s.serve.WithContext(ctx).Where("driver_id = ?", driver)
	rows, next, err := newestFirst(db, deviceList, "id", page, func(row *deviceRow) string { return string(row.ID) })
	if err == nil && len(rows) == 0 {
		_, err = s.DriverRecord(ctx, driver)
	}
	items := make([]dispatch.Device, len(rows))
	for i := range rows {
		items[i] = rows[i].device()
	}
	return items, next, err
}
