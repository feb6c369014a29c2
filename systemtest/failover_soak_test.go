//go:build soak

package systemtest

import (
	"testing"
	"time"

	"firsttap/internal/testkit"
)

// TestSoakFailovers prints the tables of docs/high-availability.md.
func TestSoakFailovers(t *testing.T) {
	failovers(t, 300, 0, func() <-chan time.Time { return time.After(testkit.SoakTime(t)) })
}
