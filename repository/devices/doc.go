// Package devices keeps the devices of drivers, to which pushes go. It owns the table devices.
package devices
