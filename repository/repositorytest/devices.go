package repositorytest

import (
	"testing"

	"firsttap/dispatch"
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
