//go:build soak

package systemtest

import (
	"math/rand/v2"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

// TestSoakWebhooksOutliveKills is TestWebhooksOutliveKills with 100,000 deliveries, however long that takes.
func TestSoakWebhooksOutliveKills(t *testing.T) {
	testkit.SoakTime(t)
	killWhileDelivering(t, mariaDB(t), 100_000, 10, func(int) time.Duration { return 2*time.Second + rand.N(4*time.Second) })
}
