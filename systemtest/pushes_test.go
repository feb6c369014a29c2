package systemtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/testkit"
)

// TestPhonesShowWhatIsTrue through a dispatch's life, and the backoffice sees which drivers were notified.
func TestPhonesShowWhatIsTrue(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, url string) {
		p := startPushing(t, url)
		i := p.start("demo")
		drivers := MakeDriversWithPhones(t, i, "seoul", 4)
		winner, loser, third, idle := drivers[0], drivers[1], drivers[2], drivers[3]
		tablet := "tablet-" + winner.ID
		addPhone(t, i, winner, "ios", tablet)
		i.must(200, "PUT", "/v1/me/duty", idle.Token, `{"on_duty":false}`)
		// The winner has two phones; the last phone belongs to a driver who is off duty.
		show := func(id string, winners, others []string) {
			t.Helper()
			p.mustShow(id, map[string][]string{
				pushToken(winner): winners, tablet: winners, pushToken(loser): others, pushToken(third): others, pushToken(idle): {},
			})
		}
		opened, accepted, reopened, nothing := []string{"dispatch.opened"}, []string{"dispatch.accepted"}, []string{"dispatch.reopened"}, []string{}

		id := MakeDispatch(t, i)
		show(id, opened, opened)
		i.must(204, "POST", "/v1/dispatches/"+id+"/seen", loser.Token, "")
		mustWin(t, i, id, winner, 1)
		show(id, accepted, nothing)
		if a := withdraw(i, id, winner); a.Round != 2 {
			t.Fatal(a)
		}
		show(id, accepted, reopened) // who gave it back is not alerted again; the app that did so takes its notification off the screen
		cancel(t, i, id)
		show(id, accepted, nothing)

		seen := notificationsOf(i, id)
		testkit.Eventually(t, "all is settled", func() bool {
			seen = notificationsOf(i, id)
			return !strings.Contains(fmt.Sprint(seen.byTypeAndStatus()), "PENDING")
		})
		testkit.Equal(t, "the backoffice sees", map[string]int{
			"dispatch.opened SENT": 4, "dispatch.accepted SENT": 2, "dispatch.taken SENT": 2,
			"dispatch.reopened SENT": 2, "dispatch.canceled SENT": 2,
		}, seen.byTypeAndStatus())
		testkit.Equal(t, "the funnel", []funnelRound{
			{Round: 1, Told: 3, AcceptedByFCM: 3, Seen: 1, Won: 1}, {Round: 2, Told: 2, AcceptedByFCM: 2},
		}, seen.Funnel)

		// The winner gets a visible notification that the dispatch is canceled.
		id = MakeDispatch(t, i)
		show(id, opened, opened)
		mustWin(t, i, id, winner, 1)
		show(id, accepted, nothing)
		cancel(t, i, id)
		show(id, []string{"dispatch.canceled"}, nothing)
		if s := p.fcm.Stats(); s.Duplicates > p.db.unanswered() || s.Statuses[200] != s.Requests {
			t.Errorf("told twice, or refused: %+v", s)
		}
	})
}

func cancel(t *testing.T, i *Instance, id string) {
	t.Helper()
	seen := send("GET", i.URL+"/v1/admin/dispatches/"+id, AdminKey, "")
	a := i.must(200, "POST", "/v1/admin/dispatches/"+id+"/cancel", AdminKey, `{"reason_code":"SITE_CLOSED"}`, "If-Match", seen.header.Get("ETag"))
	if a.Status != "CANCELED" {
		t.Fatalf("cancel: %s", a)
	}
}

// With FIRSTTAP_RELAY=leader one instance sends for all. When it is killed, another takes over, and sends again what was
// in flight.
func TestLeaderIsKilled(t *testing.T) {
	t.Parallel()
	p, redis := startPushing(t, mariaDB(t)), ownRedis(t)
	instances, ops := map[string]*Instance{}, map[string]string{}
	leases := map[string]time.Duration{"one": time.Hour, "two": 2 * time.Hour} // no lease ends by itself
	for name, lease := range leases {
		ops[name] = testkit.FreeAddress(t)
		instances[name] = p.start(name, "FIRSTTAP_RELAY=leader", redis, pushLease+"="+lease.String(), "FIRSTTAP_OPS_ADDR="+ops[name])
	}
	drivers := MakeDriversWithPhones(t, instances["one"], "seoul", 40)
	var ids []string
	for range 3 {
		ids = append(ids, MakeDispatch(t, instances["one"]), MakeDispatch(t, instances["two"]))
	}
	p.await("the leader sends", 240)
	by := p.mail.ByProject()
	if by["one"] > 0 && by["two"] > 0 && !leadWasUnknown(instances["one"], instances["two"]) {
		t.Errorf("both have sent, although the leader was known: %v", by)
	}
	for name := range instances {
		testkit.Eventually(t, "the metrics agree", func() bool {
			return Metric(t, ops[name], "firsttap_push_attempts_total") == float64(p.mail.ByProject()[name])
		})
	}
	leader, other := "one", "two"
	testkit.Eventually(t, "the relay's leader is shown", func() bool {
		holder := relayHolder(instances[leader])
		if strings.HasSuffix(holder, instances[other].pid()) {
			leader, other = other, leader
		}
		return strings.HasSuffix(holder, instances[leader].pid())
	})

	before := p.mail.ByProject()[leader]
	underWay := func() int { return p.mail.ByProject()[leader] - before } // none is answered before the kill
	answer := p.holdAnswers()
	testkit.Within(t, 3*testkit.Patience, "some are under way", func() bool {
		ids = append(ids, MakeDispatch(t, instances[other])) // the other sends it if it does not know the leader at the moment
		return testkit.Poll(20*time.Second, func() bool { return underWay() >= 10 })
	})
	instances[leader].Kill()
	answer()
	p.db.endLeases(leases[leader])
	p.await("the other takes over", 40*len(ids))
	p.settle()
	messages, again := p.mail.Count()
	if messages != 40*len(ids) || again < underWay() || again > underWay()+p.db.unanswered() {
		t.Errorf("%d messages, %d duplicates, %d in flight; by project: %v", messages, again, underWay(), p.mail.ByProject())
	}
	for _, id := range ids {
		p.allShow(drivers, id, "dispatch.opened")
	}
	t.Logf("%d of 40 were under way, %d were sent again", underWay(), again)
}

// Texts in the logs of instances of which one leads.
const (
	undecided = "the leader can't be determined"
	lostLead  = "this instance has lost the lead"
)

// leadWasUnknown reports whether an instance has logged that it can't determine the leader, or that it has lost the lead. Such an instance
// may send beside the leader.
func leadWasUnknown(instances ...*Instance) bool {
	return slices.ContainsFunc(instances, func(i *Instance) bool {
		return i.log.Count(undecided) > 0 || i.log.Count(lostLead) > 0
	})
}

// relayHolder is the name of the instance that holds the lock of the relay, as the backoffice shows it; "" also while that is not known.
func relayHolder(i *Instance) string {
	var list struct {
		Items []struct{ Name, Holder string }
	}
	a := send("GET", i.URL+"/v1/admin/locks", AdminKey, "")
	if a.status == 503 {
		return ""
	}
	if err := json.Unmarshal([]byte(a.body), &list); err != nil {
		i.T.Fatalf("%s: %v", a, err)
	}
	for _, l := range list.Items {
		if l.Name == "relay" {
			name, _, _ := strings.Cut(l.Holder, "/")
			return name
		}
	}
	return ""
}

// pid is how the name of the instance ends.
func (i *Instance) pid() string { return fmt.Sprintf(":%d", i.cmd.Process.Pid) }
