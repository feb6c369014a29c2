// Package testkit has what the tests of several packages share: waiting for a state, concurrent calls, settings, logs.
package testkit
