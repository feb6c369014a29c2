package systemtest

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"firsttap/notify/fcmtest"
	"firsttap/servertest"
	"firsttap/testkit"
)

// TestPhonesShowWhatIsTrue through a dispatch's life, and the backoffice sees which drivers were notified.
func TestPhonesShowWhatIsTrue(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, url string) {
		fcm := StartFCM(t)
		i := Start(t, PushSettings(url, fcm, "demo")...)
		drivers := MakeDrivers(t, i, 4)
		phones(t, i, drivers)
		winner, loser, third, idle := drivers[0], drivers[1], drivers[2], drivers[3]
		tablet := "tablet-" + winner.ID
		addPhone(t, i, winner, "ios", tablet)
		if a := send("PUT", i.URL+"/v1/me/duty", idle.Token, `{"on_duty":false}`); a.status != 200 {
			t.Fatal(a)
		}
		// The winner has two phones; the last phone belongs to a driver who is off duty.
		show := func(id string, winners, others []string) {
			t.Helper()
			mustShow(t, fcm, id, map[string][]string{
				pushToken(winner): winners, tablet: winners, pushToken(loser): others, pushToken(third): others, pushToken(idle): {},
			})
		}
		opened, reopened, nothing := []string{"dispatch.opened"}, []string{"dispatch.reopened"}, []string{}

		id := MakeDispatch(t, i)
		show(id, opened, opened)
		if a := send("POST", i.URL+"/v1/dispatches/"+id+"/seen", loser.Token, ""); a.status != 204 {
			t.Fatal(a)
		}
		mustWin(t, i, id, winner, 1)
		show(id, []string{"dispatch.accepted"}, nothing)
		if a := withdraw(i, id, winner); a.Round != 2 {
			t.Fatal(a)
		}
		show(id, reopened, reopened)
		cancel(t, i, id)
		show(id, nothing, nothing)

		seen := notificationsOf(i, id)
		testkit.Eventually(t, "all is settled", func() bool {
			seen = notificationsOf(i, id)
			return !strings.Contains(fmt.Sprint(seen.byTypeAndStatus()), "PENDING")
		})
		want := map[string]int{
			"dispatch.opened SENT": 4, "dispatch.accepted SENT": 2, "dispatch.taken SENT": 2,
			"dispatch.reopened SENT": 4, "dispatch.canceled SENT": 4,
		}
		if diff := cmp.Diff(want, seen.byTypeAndStatus()); diff != "" {
			t.Errorf("the backoffice sees (-want +got):\n%s", diff)
		}
		funnel := []funnelRound{{Round: 1, Told: 3, AcceptedByFCM: 3, Seen: 1, Won: 1}, {Round: 2, Told: 3, AcceptedByFCM: 3}}
		if diff := cmp.Diff(funnel, seen.Funnel); diff != "" {
			t.Errorf("the funnel (-want +got):\n%s", diff)
		}

		// The winner gets a visible notification that the dispatch is canceled.
		id = MakeDispatch(t, i)
		show(id, opened, opened)
		mustWin(t, i, id, winner, 1)
		show(id, []string{"dispatch.accepted"}, nothing)
		cancel(t, i, id)
		show(id, []string{"dispatch.canceled"}, nothing)
		if s := fcm.Stats(); s.Duplicates != 0 || s.Statuses[200] != s.Requests {
			t.Errorf("told twice, or refused: %+v", s)
		}
	})
}

func cancel(t *testing.T, i *Instance, id string) {
	t.Helper()
	seen := send("GET", i.URL+"/v1/admin/dispatches/"+id, AdminKey, "")
	a := sendWith("POST", i.URL+"/v1/admin/dispatches/"+id+"/cancel", AdminKey, `{"reason_code":"SITE_CLOSED"}`,
		"If-Match", seen.header.Get("ETag"))
	if a.status != 200 || a.Status != "CANCELED" {
		t.Fatalf("cancel: %s", a)
	}
}

// An offer's expiry is recorded and pushed once, by whichever instance.
func TestOfferExpires(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, url string) {
		fcm := StartFCM(t)
		one, two := Start(t, PushSettings(url, fcm, "one")...), Start(t, PushSettings(url, fcm, "two")...)
		db := OpenDatabase(t, url)
		drivers := MakeDriversWithPhones(t, one, "seoul", 3)
		var ids []string
		for k := range 6 {
			ids = append(ids, MakeDispatch(t, []*Instance{one, two}[k%2]))
		}
		kept := MakeDispatch(t, one)
		show := func(id string, want ...string) {
			t.Helper()
			mustShow(t, fcm, id, map[string][]string{
				pushToken(drivers[0]): want, pushToken(drivers[1]): want, pushToken(drivers[2]): want,
			})
		}
		for _, id := range ids {
			show(id, "dispatch.opened")
			db.expire(id, 0)
		}
		for _, i := range []*Instance{one, two} {
			if r := runNow(t, i, "expire-offers"); r.Status != "SUCCEEDED" {
				t.Errorf("%+v", r)
			}
		}
		for _, id := range ids {
			if db.Count("dispatches WHERE id=? AND status='EXPIRED'", id) != 1 {
				t.Errorf("%s has not expired", id)
			}
			show(id)
			if n := db.Count("events WHERE dispatch_id=? AND type='dispatch.expired' AND round=1", id); n != 1 {
				t.Errorf("%d ends of one offer", n)
			}
			for _, d := range drivers {
				silent := 0
				for _, n := range fcm.Device(pushToken(d)).Silent {
					if n.Dispatch == id && n.Type == "dispatch.expired" {
						silent++
					}
				}
				if silent != 1 {
					t.Errorf("told %d times that %s is over", silent, id)
				}
			}
		}
		show(kept, "dispatch.opened")
		if a := Accept(one, ids[0], drivers[0], 1); a.status != 410 {
			t.Errorf("after the end: %s", a)
		}
	})
}

// With FIRSTTAP_RELAY=leader one instance sends for all. When it is killed, another takes over, and sends again what was
// in flight.
func TestLeaderIsKilled(t *testing.T) {
	t.Parallel()
	fcm := StartFCM(t)
	mail := RecordDeliveries(fcm)
	url := mariaDB(t)
	db := OpenDatabase(t, url)
	settings := []string{"FIRSTTAP_RELAY=leader", ownRedis(t), pushLease + "=1h"}
	names := []string{"one", "two"}
	instances := map[string]*Instance{}
	ops := map[string]string{}
	for _, name := range names {
		ops[name] = testkit.FreeAddress(t)
		instances[name] = Start(t, PushSettings(url, fcm, name, append(settings, "FIRSTTAP_OPS_ADDR="+ops[name])...)...)
	}
	drivers := MakeDriversWithPhones(t, instances["one"], "seoul", 40)
	var ids []string
	for k := range 6 {
		ids = append(ids, MakeDispatch(t, instances[names[k%2]]))
	}
	testkit.Eventually(t, "the leader sends", func() bool { return mail.arrived(240) })
	leader, other := "one", "two"
	if mail.ByProject()[leader] == 0 {
		leader, other = other, leader
	}
	if diff := cmp.Diff(map[string]int{leader: 240}, mail.ByProject()); diff != "" {
		t.Fatalf("only the leader sends (-want +got):\n%s", diff)
	}
	if a := send("GET", instances[other].URL+"/v1/admin/locks", AdminKey, ""); a.status != 200 || !strings.Contains(a.body, `"name":"relay"`) {
		t.Errorf("the relay's leader is not shown: %s", a)
	}
	for name, want := range map[string]float64{leader: 240, other: 0} {
		testkit.Eventually(t, "the metrics agree", func() bool { return Metric(t, ops[name], "firsttap_push_attempts_total") == want })
	}

	fcm.Set(func(k *fcmtest.Knobs) { k.Latency = requestTimeout })
	ids = append(ids, MakeDispatch(t, instances[other]))
	testkit.Eventually(t, "some are under way", func() bool { return mail.arrived(250) })
	instances[leader].Kill()
	fcm.Set(func(k *fcmtest.Knobs) { k.Latency = 0 })
	db.endLeases(time.Hour)
	testkit.Eventually(t, "the other takes over", func() bool { return mail.arrived(280) && len(db.unsentMessages()) == 0 })
	messages, again := mail.Count()
	underWay := mail.ByProject()[leader] - 240 // none was answered before the kill
	if messages != 280 || again != underWay || mail.ByProject()[other] != 40 {
		t.Errorf("%d messages, %d duplicates, %d in flight; by project: %v", messages, again, underWay, mail.ByProject())
	}
	mustShowOffers(t, fcm, drivers, ids)
	t.Logf("%d of 40 were under way, %d were sent again", underWay, again)
}

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
			fcm := StartFCM(t)
			mail := RecordDeliveries(fcm)
			url := mariaDB(t)
			redis := servertest.StartRedis(t)
			settings = append(settings, "FIRSTTAP_REDIS_URL="+redis.URL())
			one := Start(t, PushSettings(url, fcm, "one", settings...)...)
			two := Start(t, PushSettings(url, fcm, "two", settings...)...)
			drivers := MakeDriversWithPhones(t, one, "seoul", 200)
			ids := []string{MakeDispatch(t, one)}
			testkit.Eventually(t, "every driver is notified", func() bool { return mail.arrived(200) })
			before := mail.ByProject()

			redis.Kill()
			commits, dispatches := one, 2
			switch {
			case name == "all":
				// More pushes than one instance leases at once, five for each of at most 264 requests in flight, and an FCM that
				// answers after the other instance's next poll: so both send.
				dispatches = 8
				fcm.Set(func(k *fcmtest.Knobs) { k.Latency = 3 * time.Second })
			case before["one"] > 0:
				commits = two // which does not send
			}
			for range dispatches {
				ids = append(ids, MakeDispatch(t, commits))
			}
			testkit.Eventually(t, "every driver is notified without Redis", func() bool { return mail.arrived(len(ids) * len(drivers)) })
			if _, again := mail.Count(); again != 0 {
				t.Errorf("%d were told again", again)
			}
			by := mail.ByProject()
			both := by["one"] > before["one"] && by["two"] > before["two"]
			if name == "all" && !both || name == "leader" && both {
				t.Errorf("sent by project: %v, and with Redis %v", by, before)
			}
			mustShowOffers(t, fcm, drivers, ids)
		})
	}
}

// After SIGTERM an instance finishes the sends in flight, and releases the rest to others at once.
func TestStoppedInstanceGivesBack(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		const drivers, dispatches = 125, 4
		fcm := StartFCM(t)
		mail := RecordDeliveries(fcm)
		db := OpenDatabase(t, url)
		// No lease ends while the test goes on.
		one := Start(t, PushSettings(url, fcm, "one", pushLease+"=1h")...)
		MakeDriversWithPhones(t, one, "seoul", drivers)
		Start(t, PushSettings(url, fcm, "two", pushLease+"=1h")...)
		fcm.Set(func(k *fcmtest.Knobs) { k.Latency = 2 * time.Second })
		for range dispatches {
			MakeDispatch(t, one)
		}
		leased := func() int {
			return db.Count("(SELECT DISTINCT claim FROM notifications WHERE state=0 AND claim<>'') x")
		}
		testkit.Eventually(t, "both send", func() bool { return mail.ByProject()["one"] > 10 && mail.ByProject()["two"] > 10 && leased() == 2 })
		one.signal(syscall.SIGTERM)
		testkit.Await(t, "the instance ends", one.done)
		if n := leased(); n > 1 {
			t.Error("what the instance had leased is still leased")
		}
		if n := db.Count("outbox WHERE state=0 AND claim<>''"); n != 0 {
			t.Errorf("%d events are still leased", n)
		}
		byOne := mail.ByProject()["one"]
		fcm.Set(func(k *fcmtest.Knobs) { k.Latency = 100 * time.Millisecond })
		testkit.Eventually(t, "the other sends the rest", func() bool { return mail.arrived(drivers * dispatches) })
		testkit.Eventually(t, "all is settled", func() bool { return len(db.unsentMessages()) == 0 })
		if _, again := mail.Count(); again != 0 || mail.ByProject()["one"] != byOne {
			t.Errorf("%d duplicates, although the sends in flight had ended; by project: %v", again, mail.ByProject())
		}
		t.Logf("the instance that was stopped sent %d of %d", byOne, drivers*dispatches)
	})
}

// The winner is reminded once, even when the instance of the claim is killed and all others run the reminder job.
func TestReminderOutlivesItsInstance(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		fcm := StartFCM(t)
		db := OpenDatabase(t, url)
		settings := "FIRSTTAP_REMIND_BEFORE=1h"
		i := Start(t, PushSettings(url, fcm, "one", settings)...)
		drivers := MakeDriversWithPhones(t, i, "seoul", 3)
		id := MakeDispatchWith(t, i, DispatchOptions{starts: time.Now().Add(3 * time.Hour)})
		mustWin(t, i, id, drivers[0], 1)
		testkit.Eventually(t, "everything is sent", db.nothingToPush)
		if r := runNow(t, i, "remind"); r.Result != "0 drivers reminded" {
			t.Errorf("before the reminder is due: %+v", r)
		}
		i.Kill()
		db.exec("UPDATE dispatches SET work_starts_at = accepted_at + ? WHERE id = ?", time.Hour.Microseconds()+1, id)
		two := Start(t, PushSettings(url, fcm, "two", settings)...)
		three := Start(t, PushSettings(url, fcm, "three", settings)...)
		for _, i := range []*Instance{two, three, two} {
			if r := runNow(t, i, "remind"); r.Status != "SUCCEEDED" {
				t.Errorf("%+v", r)
			}
		}
		count := func() (n int) {
			for _, r := range fcm.Sends() {
				if r.Data["type"] == "dispatch.reminder" {
					n++
					if r.Token != pushToken(drivers[0]) || r.Data["dispatch_id"] != id {
						t.Errorf("reminded was %s of %s", r.Token, r.Data["dispatch_id"])
					}
				}
			}
			return n
		}
		testkit.Eventually(t, "the driver is reminded", func() bool { return count() > 0 && len(db.unsentMessages()) == 0 })
		if n := count(); n != 1 || db.Count("notifications WHERE type='dispatch.reminder'") != 1 {
			t.Errorf("reminded %d times", n)
		}
		if shown := shownTypes(fcm, pushToken(drivers[0]), id); len(shown) == 0 || shown[len(shown)-1] != "dispatch.reminder" {
			t.Errorf("the phone shows %v", shown)
		}
	})
}

// With FIRSTTAP_PUSH=log nothing is sent, and all records are as if it had been.
func TestPushesAreLogged(t *testing.T) {
	t.Parallel()
	fcm := StartFCM(t)
	url := mariaDB(t)
	i := Start(t, PushSettings(url, fcm, "demo", "FIRSTTAP_PUSH=log", "FIRSTTAP_LOG=info")...)
	driver := MakeDriversWithPhones(t, i, "seoul", 1)[0]
	id := MakeDispatch(t, i)
	testkit.Eventually(t, "it counts as sent", func() bool {
		n := notificationsOf(i, id)
		return n.byTypeAndStatus()["dispatch.opened SENT"] == 1
	})
	if n := fcm.Requests(); n != 0 {
		t.Errorf("%d requests to FCM", n)
	}
	log := i.log.String()
	if !strings.Contains(log, "dispatch.opened") || !strings.Contains(log, id) {
		t.Errorf("the log does not say what would be pushed:\n%s", log)
	}
	if strings.Contains(log, pushToken(driver)) {
		t.Error("the log has a push token")
	}
}
