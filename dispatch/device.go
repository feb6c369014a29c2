package dispatch

import "time"

// Platform is what a device runs.
type Platform string

// The platforms.
const (
	Android Platform = "android"
	IOS     Platform = "ios"
	Web     Platform = "web"
)

// Device is one installation of the driver's app, and where to push to it.
type Device struct {
	ID           DeviceID
	Driver       DriverID
	Installation string // the app's own identifier of it
	Platform     Platform
	PushToken    string // belongs to one driver at a time, the newest
	AppVersion   string
	Locale       string // BCP 47; "" is the driver's
	// GoodAt is when the push service last took a push to this token, to within a day or so.
	GoodAt *time.Time
	// SuspectedAt is when the push service said that the token is dead, if it has not taken a push to it since.
	SuspectedAt *time.Time
	// QuarantinedAt is when it had said so twice, and was believed. Nothing is pushed to the device until the app
	// registers it again.
	QuarantinedAt *time.Time
	UpdatedAt     time.Time
}
