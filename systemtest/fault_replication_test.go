package systemtest

import (
	"regexp"
	"strings"
	"testing"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// onReplication runs test on servers of the kinds [servertest.Servers], with an asynchronous replica each.
func onReplication(t *testing.T, test func(t *testing.T, r *servertest.Replication)) {
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) { test(t, servertest.StartReplication(t, kind)) })
}

// A failover to a lagging replica loses claims after their SUCCESS. The service cannot prevent that. It warns at the
// start; afterwards it alerts the operator, refuses no driver because of the lost claim, and offers the dispatch again.
func TestFailoverLosesAClaim(t *testing.T) {
	t.Parallel()
	onReplication(t, func(t *testing.T, r *servertest.Replication) {
		url, redisURL := r.Primary.URL(t), servertest.StartRedis(t).URL()
		proxy := servertest.StartProxy(t, r.Primary.Addr())
		settings := []string{"FIRSTTAP_DATABASE_URL=" + proxy.URL(url), "FIRSTTAP_REDIS_URL=" + redisURL}
		ops := testkit.FreeAddress(t)
		one, two := Start(t, append(settings, "FIRSTTAP_OPS_ADDR="+ops)...), Start(t, settings...)
		c := redisAt(t, redisURL)
		drivers := MakeDrivers(t, one, 4)
		tapped, silent, spare := MakeDispatch(t, one), MakeDispatch(t, one), MakeDispatch(t, one)
		r.Follow() // the replica has everything so far, and gets nothing more
		r.Lag()
		for _, i := range []*Instance{one, two} {
			if log := i.log.String(); !strings.Contains(log, "MAY LOSE COMMITTED CLAIMS") || !strings.Contains(log, "_enabled is not ON") {
				t.Errorf("an asynchronous replica is no warning at the start: %s", log)
			}
		}
		for k, id := range []string{tapped, silent} {
			mustWin(t, one, id, drivers[k], 1)
			mustBeTaken(t, two, id, drivers[2])
		}
		r.Primary.Kill()
		if a := Accept(one, spare, drivers[3], 1); a.status != 503 {
			t.Fatalf("without a database: %s", a)
		}
		r.Promote()
		proxy.Redirect(r.Replica.Addr())
		b := OpenDatabase(t, strings.Replace(url, r.Primary.Addr(), r.Replica.Addr(), 1))

		alerted := func(i *Instance, id, driver string) bool {
			return regexp.MustCompile(`(?m)^.*ALERT: the database has lost a committed claim.*` + id + `.*` + driver).MatchString(i.log.String())
		}
		refused := 0
		testkit.Eventually(t, "an alert for the claim that taps meet", func() bool {
			a := Accept(two, tapped, drivers[2], 1)
			if a.Code == "ALREADY_TAKEN" {
				refused++
			} else if a.status != 503 && !a.Won() {
				t.Fatalf("while the claim is lost: %s", a)
			}
			return alerted(two, tapped, drivers[0].ID) || a.Won()
		})
		testkit.Eventually(t, "an alert for each, on the instance that has made them", func() bool {
			return alerted(one, tapped, drivers[0].ID) && alerted(one, silent, drivers[1].ID)
		})
		for _, id := range []string{tapped, silent} {
			testkit.Eventually(t, "the marker is gone, or the next winner's", func() bool {
				value, _ := c.Get(t.Context(), keyOf(id)).Result()
				return !strings.HasPrefix(value, "taken:"+drivers[0].ID) && !strings.HasPrefix(value, "taken:"+drivers[1].ID)
			})
		}
		// The other one may have been won before the offer was sent again.
		testkit.Eventually(t, "the drivers get the offer again", func() bool { return b.reannounced(silent) > 0 })
		for _, id := range []string{tapped, silent} {
			var a Response
			testkit.Eventually(t, "a driver wins", func() bool { a = Accept(two, id, drivers[2], 1); return a.Won() })
			b.mustBeWonBy(id, 1, drivers[2].ID, a.Claim.ID)
		}
		if served := send("GET", "http://"+ops+"/metrics", "", "").body; !strings.Contains(served, "\nfirsttap_lost_claims_total 2\n") {
			t.Error("two lost claims were not counted")
		}
		t.Logf("%d taps were refused before the alert", refused)
	})
}
