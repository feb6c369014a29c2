package systemtest

import (
	"encoding/json"
	"testing"
	"time"

	"firsttap/servertest"
	"firsttap/testkit"
)

// TestTooEarly: a dispatch that opens later is pushed and offered at once. A claim before the opening gets its time, and
// leaves nothing behind, here or in Redis, that could refuse a later claim.
func TestTooEarly(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		server := servertest.StartRedis(t)
		c := redisAt(t, server.URL())
		settings := []string{"FIRSTTAP_DATABASE_URL=" + url, "FIRSTTAP_REDIS_URL=" + server.URL()}
		one, two := Start(t, settings...), Start(t, settings...)
		db := OpenDatabase(t, url)
		drivers := MakeDrivers(t, one, 20)
		phones(t, one, drivers)
		opens := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		id := MakeDispatchWith(t, one, DispatchOptions{opens: opens, starts: opens.Add(24 * time.Hour)})
		wire := opens.UTC().Format("2006-01-02T15:04:05.000Z")
		early := func(a Response) {
			t.Helper()
			var p struct {
				OpensAt string `json:"opens_at"`
			}
			if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.status != 409 || a.Code != "NOT_OPEN_YET" || p.OpensAt != wire {
				t.Fatalf("before the opening: %s", a)
			}
		}
		for k, d := range drivers {
			early(Accept([]*Instance{one, two}[k%2], id, d, k%3%2))
		}
		if n, err := c.Exists(t.Context(), keyOf(id)).Result(); err != nil || n != 0 {
			t.Errorf("the lock of a dispatch before its opening: %d, %v", n, err)
		}
		testkit.Eventually(t, "every driver gets the push of the offer", func() bool {
			return db.Count("notifications WHERE dispatch_id = ? AND type = 'dispatch.opened' AND state = 1", id) == len(drivers)
		})
		var list struct {
			Items []struct{ ID, Status, Offer_status, Opens_at string }
		}
		offers := send("GET", two.URL+"/v1/me/offers", drivers[0].Token, "")
		if err := json.Unmarshal([]byte(offers.body), &list); err != nil || len(list.Items) == 0 || list.Items[0].ID != id ||
			list.Items[0].Status != "SCHEDULED" || list.Items[0].Offer_status != "SENT" || list.Items[0].Opens_at != wire {
			t.Errorf("offered: %s", offers)
		}
		db.exec("UPDATE dispatches SET opens_at = opens_at - ? WHERE id = ?", time.Hour.Microseconds(), id)
		// The same claim as before the opening.
		if a := Accept(two, id, drivers[7], 1); !a.Won() {
			t.Fatalf("the dispatch is open, and the driver got %s", a)
		}
		if a := Accept(one, id, drivers[8], 1); a.Code != "ALREADY_TAKEN" || !*a.Final {
			t.Errorf("after the opening: %s", a)
		}
		if n := db.Count("claims WHERE dispatch_id = ? AND driver_id = ? AND outcome = 'WON'", id, drivers[7].ID); n != 1 {
			t.Errorf("%d claims", n)
		}
	})
}
