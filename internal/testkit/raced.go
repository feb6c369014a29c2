//go:build race

package testkit

// raced reports whether the race detector watches the tests.
const raced = true
