package devices

import "firsttap/dispatch"

// What the tests see of the package.

func (r *deviceRow) Device() dispatch.Device { return r.device() }

type DeviceRow = deviceRow

const DevicesPerStatement = devicesPerStatement
const MaxDevices = maxDevices
