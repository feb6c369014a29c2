package repositorytest

import (
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
)

// SomeDevice is a device of the driver's.
func SomeDevice(driver dispatch.DriverID, installation, token string) dispatch.Device {
	return dispatch.Device{
		Driver: driver, Installation: installation, Platform: dispatch.Android, PushToken: token, AppVersion: "1.2", Locale: "ko-KR",
	}
}

// MustPut registers a device.
func (db *Bench) MustPut(t testing.TB, v dispatch.Device) dispatch.Device {
	t.Helper()
	put, err := db.PutDevice(t.Context(), v)
	Must(t, err)
	return put
}

// NewDevice is a device of the driver's that is not stored.
func NewDevice(driver dispatch.DriverID, now time.Time) dispatch.Device {
	id := dispatch.NewDeviceID(now)
	return dispatch.Device{
		ID: id, Driver: driver, Installation: "of " + string(id), Platform: dispatch.Android,
		PushToken: "token of " + string(id), AppVersion: "1.0", Locale: "en",
	}
}

// Device adds a device of the driver's, as edit changes it.
func (db *Bench) Device(t testing.TB, driver dispatch.DriverID, edit func(*dispatch.Device)) dispatch.Device {
	t.Helper()
	now := time.Now()
	v := NewDevice(driver, now)
	if edit != nil {
		edit(&v)
	}
	db.Exec(t, `INSERT INTO devices (id, driver_id, installation_id, platform, push_token, app_version, locale,
		quarantined_at, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		v.ID, v.Driver, v.Installation, v.Platform, v.PushToken, v.AppVersion, v.Locale,
		database.OptionalMicros(v.QuarantinedAt), now.UnixMicro(), now.UnixMicro())
	return v
}

// Equipped adds n eligible drivers with one device each.
func (db *Bench) Equipped(t testing.TB, n int) []dispatch.Device {
	t.Helper()
	now := time.Now()
	devices, args := make([]dispatch.Device, n), make([]any, 0, 6*n)
	for i, v := range db.Fleet(t, n) {
		d := NewDevice(v.ID, now)
		devices[i] = d
		args = append(args, d.ID, d.Driver, d.Installation, d.PushToken, now.UnixMicro(), now.UnixMicro())
	}
	db.Exec(t, `INSERT INTO devices (id, driver_id, installation_id, push_token, created_at, updated_at, platform, app_version, locale)
		VALUES `+strings.ReplaceAll(database.Placeholders(n, 6), "?)", "?, 'android', '1.0', 'en')"), args...)
	return devices
}
