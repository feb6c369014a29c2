//go:build soak

package systemtest

import (
	"fmt"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// TestSoakIdleInstances counts what instances ask the database while nothing is due: two statements a second each at most.
func TestSoakIdleInstances(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("of %d", n), func(t *testing.T) {
			redis, server := servertest.StartRedis(t), servertest.StartMariaDB(t)
			url := server.URL(t)
			for range n {
				Start(t, "FIRSTTAP_DATABASE_URL="+url, "FIRSTTAP_REDIS_URL="+redis.URL())
			}
			db := OpenDatabase(t, url)
			questions := func() int {
				t.Helper()
				var name string
				var asked int
				if err := db.DB.QueryRow("SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &asked); err != nil {
					t.Fatal(err)
				}
				return asked
			}
			time.Sleep(time.Minute) // until the jobs that run at the start have run
			before, length := questions(), max(testkit.SoakTime(t), 2*time.Minute)
			time.Sleep(length)
			each := float64(questions()-before) / length.Seconds() / float64(n)
			t.Logf("%d instances: %.2f statements a second each", n, each)
			if each > 2 {
				t.Errorf("%d idle instances send %.2f statements a second each, want 2 at most", n, each)
			}
		})
	}
}
