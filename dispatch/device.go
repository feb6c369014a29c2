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
	// QuarantinedAt is when the push service said that the token is dead. Nothing is pushed to it until the app
	// registers it again.
	QuarantinedAt *time.Time
	UpdatedAt     time.Time
}
