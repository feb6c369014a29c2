package systemtest

import (
	"path/filepath"
	"testing"
	"time"

	"firsttap/servertest"
)

// TestRatesHoldOverInstances: a driver or a key that uses two instances at once has one share, and not two.
func TestRatesHoldOverInstances(t *testing.T) {
	t.Parallel()
	settings := []string{
		"FIRSTTAP_DATABASE_URL=sqlite://" + filepath.Join(t.TempDir(), "test.db"), "FIRSTTAP_REDIS_URL=" + servertest.StartRedis(t).URL(),
		"FIRSTTAP_RATE_LIMIT_DRIVER=10/s", "FIRSTTAP_RATE_LIMIT_ADMIN=10/s",
	}
	instances := []*Instance{Start(t, settings...), Start(t, settings...)}
	d := MakeDrivers(t, instances[0], 1)[0]
	for path, token := range map[string]string{"/v1/me": d.Token, "/v1/admin/dispatches": AdminKey} {
		began, allowed := time.Now(), 0
		for _, a := range Together(100, func(k int) Response { return send("GET", instances[k%2].URL+path, token, "") }) {
			switch a.status {
			case 200:
				allowed++
			case 429:
				if a.header.Get("Retry-After") != "1" {
					t.Errorf("%s: Retry-After %q", path, a.header.Get("Retry-After"))
				}
			default:
				t.Errorf("%s: %s", path, a)
			}
		}
		// The burst, the refill since then, and an eighth for each instance.
		if most := 20 + int(10*time.Since(began).Seconds()) + 2*2 + 1; allowed < 18 || allowed > most {
			t.Errorf("%s: %d of 100 were let through, want 20 to %d", path, allowed, most)
		}
	}
}
