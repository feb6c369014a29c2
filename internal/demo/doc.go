// Package demo runs a service of its own with simulated drivers and an office, to be tried in the browser.
package demo
