package main

import (
	"strings"
	"testing"

	"firsttap/servertest"
)

// onReplication runs test on a MariaDB and on a MySQL with an asynchronous replica each.
func onReplication(t *testing.T, test func(t *testing.T, r *servertest.Replication)) {
	t.Run("mariadb", func(t *testing.T) { test(t, servertest.StartMariaDBReplication(t)) })
	t.Run("mysql", func(t *testing.T) { test(t, servertest.StartMySQLReplication(t)) })
}

// A failover to a replica that lags loses claims whose drivers were told SUCCESS. That can't be prevented here; but it is
// said at the start, and when it has happened the operator hears of it, nobody is refused because of the lost claim any
// more, and the drivers are told that the dispatch is open.
func TestFailoverLosesAClaim(t *testing.T) {
	onReplication(t, func(t *testing.T, r *servertest.Replication) {
		url, redisURL := r.Primary.URL(t), servertest.RedisURL(t)
		proxy := servertest.StartProxy(t, r.Primary.Addr())
		settings := []string{"FIRSTTAP_DATABASE_URL=" + proxy.URL(url), "FIRSTTAP_REDIS_URL=" + redisURL}
		ops := nobodyHere(t)
		one, two := start(t, append(settings, "FIRSTTAP_OPS_ADDR="+ops)...), start(t, settings...)
		c := redisAt(t, redisURL)
		drivers := makeDrivers(t, one, 4)
		tapped, silent, spare := makeDispatch(t, one), makeDispatch(t, one), makeDispatch(t, one)
		r.Follow() // the replica has all of that, and nothing of what comes
		r.Lag()
		for _, i := range []*instance{one, two} {
			if log := i.log.String(); !strings.Contains(log, "MAY LOSE COMMITTED CLAIMS") || !strings.Contains(log, "_enabled is not ON") {
				t.Errorf("an asynchronous replica is no warning at the start: %s", log)
			}
		}
		for k, id := range []string{tapped, silent} {
			if a := accept(one, id, drivers[k], 1); !a.won() {
				t.Fatal(a)
			}
			if a := accept(two, id, drivers[2], 1); a.Code != "ALREADY_TAKEN" || !*a.Final {
				t.Fatal(a)
			}
		}
		r.Primary.Kill()
		if a := accept(one, spare, drivers[3], 1); a.status != 503 {
			t.Fatalf("without a database: %s", a)
		}
		r.Promote()
		proxy.Redirect(r.Replica.Addr())
		b := openBooks(t, strings.Replace(url, r.Primary.Addr(), r.Replica.Addr(), 1))

		alerted := func(i *instance, id, driver string) bool {
			for line := range strings.Lines(i.log.String()) {
				if strings.Contains(line, "ALERT the database has lost a claim") && strings.Contains(line, id) && strings.Contains(line, driver) {
					return true
				}
			}
			return false
		}
		refused := 0
		eventually(t, "an alert for the claim that taps meet", func() bool {
			a := accept(two, tapped, drivers[2], 1)
			if a.Code == "ALREADY_TAKEN" {
				refused++
			} else if a.status != 503 && !a.won() {
				t.Fatalf("while the claim is lost: %s", a)
			}
			return alerted(two, tapped, drivers[0].ID) || a.won()
		})
		eventually(t, "an alert for each, on the instance that has made them", func() bool {
			return alerted(one, tapped, drivers[0].ID) && alerted(one, silent, drivers[1].ID)
		})
		for _, id := range []string{tapped, silent} {
			eventually(t, "the marker is gone, or the next winner's", func() bool {
				value, _ := c.Get(t.Context(), "dispatch:lock:{"+id+"}").Result()
				return !strings.HasPrefix(value, "taken:"+drivers[0].ID) && !strings.HasPrefix(value, "taken:"+drivers[1].ID)
			})
		}
		// The other one may have been won before that could be told.
		eventually(t, "the drivers are told again", func() bool { return b.reannounced(silent) > 0 })
		for _, id := range []string{tapped, silent} {
			var a answer
			eventually(t, "somebody wins", func() bool { a = accept(two, id, drivers[2], 1); return a.won() })
			b.isWonBy(id, 1, drivers[2].ID, a.Claim.ID)
		}
		if served := send("GET", "http://"+ops+"/metrics", "", "").body; !strings.Contains(served, "\nfirsttap_lost_claims_total 2\n") {
			t.Error("two lost claims were not counted")
		}
		t.Logf("%d taps were refused before the alert", refused)
	})
}
