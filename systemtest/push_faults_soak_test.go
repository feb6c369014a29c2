//go:build soak

package systemtest

import (
	"testing"
	"time"

	"firsttap/internal/testkit"
)

// TestSoakKilledInstancesLoseNothing is TestKilledInstancesLoseNothing with 100,000 pushes a minute.
func TestSoakKilledInstancesLoseNothing(t *testing.T) {
	killWhilePushing(t, mariaDB(t), int(100_000*testkit.SoakTime(t).Minutes()), 200, 100*time.Millisecond)
}

// TestSoakKilledInstancesTellALargeAudience is TestKilledInstancesTellALargeAudience with 100,000 drivers.
func TestSoakKilledInstancesTellALargeAudience(t *testing.T) {
	killWhileTelling(t, mariaDB(t), 100_000)
}
