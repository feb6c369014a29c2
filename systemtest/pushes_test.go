package systemtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
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

// An offer's expiry is recorded and pushed once, by whichever instance.
func TestOfferExpires(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, url string) {
		p := startPushing(t, url)
		instances := []*Instance{p.start("one"), p.start("two")}
		drivers := MakeDriversWithPhones(t, instances[0], "seoul", 3)
		var ids []string
		for k := range 6 {
			ids = append(ids, MakeDispatch(t, instances[k%2]))
		}
		kept := MakeDispatch(t, instances[0])
		for _, id := range ids {
			p.allShow(drivers, id, "dispatch.opened")
			p.db.expire(id, 0)
		}
		for _, i := range instances {
			if r := runNow(t, i, "expire-offers"); r.Status != "SUCCEEDED" {
				t.Errorf("%+v", r)
			}
		}
		for _, id := range ids {
			if p.db.Count("dispatches WHERE id=? AND status='EXPIRED'", id) != 1 {
				t.Errorf("%s has not expired", id)
			}
			p.allShow(drivers, id)
			if n := p.db.Count("events WHERE dispatch_id=? AND type='dispatch.expired' AND round=1", id); n != 1 {
				t.Errorf("%d ends of one offer", n)
			}
			for _, d := range drivers {
				if n := p.silent(pushToken(d), id, "dispatch.expired"); n < 1 || n > 1+p.db.unanswered() {
					t.Errorf("told %d times that %s is over", n, id)
				}
			}
		}
		p.allShow(drivers, kept, "dispatch.opened")
		if a := Accept(instances[0], ids[0], drivers[0], 1); a.status != 410 {
			t.Errorf("after the end: %s", a)
		}
	})
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
		return testkit.Poll(effect, func() bool { return underWay() >= 10 })
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

// Without Redis pushes are sent all the same, even those that one instance commits and another sends.
func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{
		"all":                           {"FIRSTTAP_RELAY=all"},
		"leader":                        {"FIRSTTAP_RELAY=leader", "FIRSTTAP_JOB_LOCK=table"},
		"leader with its lock in Redis": {"FIRSTTAP_RELAY=leader"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, redis := startPushing(t, mariaDB(t)), servertest.StartRedis(t)
			settings = append(settings, "FIRSTTAP_REDIS_URL="+redis.URL())
			one, two := p.start("one", settings...), p.start("two", settings...)
			drivers := MakeDriversWithPhones(t, one, "seoul", 200)
			ids := []string{MakeDispatch(t, one)}
			p.await("every driver is notified", 200)
			before := p.mail.ByProject()

			redis.Kill()
			bothSend := func() bool {
				by := p.mail.ByProject()
				return by["one"] > before["one"] && by["two"] > before["two"]
			}
			commits, dispatches, answer := one, 2, func() {}
			switch {
			case name == "all":
				// More pushes than one instance leases while none is answered: five for each of at most 264 requests in flight.
				dispatches, answer = 8, p.holdAnswers()
			case before["one"] > before["two"]:
				commits = two // which does not send
			}
			for range dispatches {
				ids = append(ids, MakeDispatch(t, commits))
			}
			if name == "all" {
				testkit.Eventually(t, "both send", bothSend)
			}
			answer()
			p.await("every driver is notified without Redis", len(ids)*len(drivers))
			p.settle()
			if _, again := p.mail.Count(); again > p.db.unanswered() {
				t.Errorf("%d were told again, after %d attempts without an answer", again, p.db.unanswered())
			}
			if name == "leader" && bothSend() && !leadWasUnknown(one, two) {
				t.Errorf("sent by project: %v, and with Redis %v", p.mail.ByProject(), before)
			}
			for _, id := range ids {
				p.allShow(drivers, id, "dispatch.opened")
			}
		})
	}
}

// After SIGTERM an instance finishes the sends in flight, and releases the rest to others.
func TestStoppedInstanceGivesBack(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		const drivers, dispatches = 125, 4
		const inFlight = 64 // requests of an instance, until the first is answered
		p := startPushing(t, url)
		one := p.start("one", pushLease+"=1h", pushTimeout+"=10m", stopTimeout+"=10m") // no lease ends while the test goes on
		MakeDriversWithPhones(t, one, "seoul", drivers)
		p.start("two", pushLease+"=1h", pushTimeout+"=10m", stopTimeout+"=10m")
		answer := p.holdAnswers()
		p.answerAfter(2 * time.Second) // from answer() on: the relay has stopped by then
		// A sender waits 15 s for its answer, so the dispatches are made at once.
		for _, made := range Together(dispatches, func(int) Response { return createDispatch(one, DispatchOptions{}) }) {
			if made.status != 201 {
				t.Fatal(made)
			}
		}
		testkit.Eventually(t, "both send, and lease more", func() bool {
			sent := p.mail.ByProject()
			const more = "(SELECT claim FROM notifications WHERE state=0 AND claim<>'' GROUP BY claim HAVING COUNT(*) > ?) x"
			// After an attempt without an answer they lease less.
			return sent["one"] >= inFlight && sent["two"] >= inFlight && (p.db.Count(more, inFlight) == 2 || p.db.unanswered() > 0)
		})
		unanswered := p.db.unanswered() // only their pushes may be sent again, none that was in flight at the signal
		one.signal(syscall.SIGTERM)
		testkit.Eventually(t, "it takes no more requests", func() bool {
			return send("GET", one.URL+"/livez", "", "").err != nil
		})
		answer()
		testkit.Within(t, startOrEnd, "the instance ends", one.ended)
		byOne := p.mail.ByProject()["one"]
		p.answerAfter(0)
		p.await("the other sends the rest", drivers*dispatches)
		p.settle() // its events, too, whose leases were as long
		if _, again := p.mail.Count(); again > unanswered || p.mail.ByProject()["one"] != byOne {
			t.Errorf("%d duplicates, although the sends in flight had ended; by project: %v", again, p.mail.ByProject())
		}
		t.Logf("the instance that was stopped sent %d of %d", byOne, drivers*dispatches)
	})
}

// The winner is reminded once, even when the instance of the claim is killed and all others run the reminder job.
func TestReminderOutlivesItsInstance(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		p := startPushing(t, url)
		start := func(name string) *Instance { return p.start(name, "FIRSTTAP_REMIND_BEFORE=1h") }
		i := start("one")
		drivers := MakeDriversWithPhones(t, i, "seoul", 3)
		id := MakeDispatchWith(t, i, DispatchOptions{starts: time.Now().Add(3 * time.Hour)})
		mustWin(t, i, id, drivers[0], 1)
		p.settle()
		if r := runNow(t, i, "remind"); r.Result != "0 drivers reminded" {
			t.Errorf("before the reminder is due: %+v", r)
		}
		i.Kill()
		p.db.exec("UPDATE dispatches SET work_starts_at = accepted_at + ? WHERE id = ?", time.Hour.Microseconds()+1, id)
		two, three := start("two"), start("three")
		for _, i := range []*Instance{two, three, two} {
			if r := runNow(t, i, "remind"); r.Status != "SUCCEEDED" {
				t.Errorf("%+v", r)
			}
		}
		p.settle()
		reminded := 0
		for _, r := range p.fcm.Sends() {
			if r.Data["type"] == "dispatch.reminder" {
				reminded++
				if r.Token != pushToken(drivers[0]) || r.Data["dispatch_id"] != id {
					t.Errorf("reminded was %s of %s", r.Token, r.Data["dispatch_id"])
				}
			}
		}
		if reminded != 1 || p.db.Count("notifications WHERE type='dispatch.reminder'") != 1 {
			t.Errorf("reminded %d times", reminded)
		}
		if shown := shownTypes(p.fcm, pushToken(drivers[0]), id); len(shown) == 0 || shown[len(shown)-1] != "dispatch.reminder" {
			t.Errorf("the phone shows %v", shown)
		}
	})
}

// With FIRSTTAP_PUSH=log nothing is sent, and all records are as if it had been.
func TestPushesAreLogged(t *testing.T) {
	t.Parallel()
	p := startPushing(t, mariaDB(t))
	i := p.start("demo", "FIRSTTAP_PUSH=log", "FIRSTTAP_FCM_ENDPOINT=", "FIRSTTAP_LOG=info")
	driver := MakeDriversWithPhones(t, i, "seoul", 1)[0]
	id := MakeDispatch(t, i)
	testkit.Eventually(t, "it counts as sent", func() bool {
		n := notificationsOf(i, id)
		return n.byTypeAndStatus()["dispatch.opened SENT"] == 1
	})
	if n := p.fcm.Requests(); n != 0 {
		t.Errorf("%d requests to FCM", n)
	}
	if i.log.Count("dispatch.opened") == 0 || i.log.Count(id) == 0 {
		t.Errorf("the log does not say what would be pushed:\n%s", i.log)
	}
	if i.log.Count(pushToken(driver)) > 0 {
		t.Error("the log has a push token")
	}
}

// effect is how long a call waits for its effect before it is repeated.
const effect = 20 * time.Second
