// Package testkit is what tests of several packages share: waiting for a state, starting together, settings, logs.
package testkit
