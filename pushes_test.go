package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"firsttap/notify/fcmtest"
	"firsttap/servertest"
)

// onDatabases runs test on each database that there is.
func onDatabases(t *testing.T, test func(t *testing.T, url string)) {
	onServers(t, test)
	t.Run("sqlite", func(t *testing.T) { test(t, "sqlite://"+filepath.Join(t.TempDir(), "firsttap.db")) })
}

// A phone shows what is true of a dispatch, whatever becomes of it, and the backoffice sees who was told.
func TestPhonesShowWhatIsTrue(t *testing.T) {
	onDatabases(t, func(t *testing.T, url string) {
		fcm := listenFCM(t)
		i := start(t, pushing(url, fcm, "demo")...)
		drivers := makeDrivers(t, i, 4)
		phones(t, i, drivers)
		winner, loser, third, idle := drivers[0], drivers[1], drivers[2], drivers[3]
		tablet := "tablet-" + winner.ID
		addPhone(t, i, winner, "ios", tablet)
		if a := send("PUT", i.url+"/v1/me/duty", idle.Token, `{"on_duty":false}`); a.status != 200 {
			t.Fatal(a)
		}
		// What each phone shows: the winner's two, the others' and that of the driver who is off duty.
		show := func(id string, winners, others []string) {
			t.Helper()
			mustShow(t, fcm, id, map[string][]string{
				pushToken(winner): winners, tablet: winners, pushToken(loser): others, pushToken(third): others, pushToken(idle): {},
			})
		}
		opened, reopened, nothing := []string{"dispatch.opened"}, []string{"dispatch.reopened"}, []string{}

		id := makeDispatch(t, i)
		show(id, opened, opened)
		if a := send("POST", i.url+"/v1/dispatches/"+id+"/seen", loser.Token, ""); a.status != 204 {
			t.Fatal(a)
		}
		if a := accept(i, id, winner, 1); !a.won() {
			t.Fatal(a)
		}
		show(id, []string{"dispatch.accepted"}, nothing)
		if a := send("POST", i.url+"/v1/dispatches/"+id+"/withdraw", winner.Token, `{"reason_code":"BREAKDOWN"}`); a.Round != 2 {
			t.Fatal(a)
		}
		show(id, reopened, reopened)
		cancel(t, i, id)
		show(id, nothing, nothing)

		seen := notificationsOf(t, i, id)
		eventually(t, "all is settled", func() bool {
			seen = notificationsOf(t, i, id)
			return !strings.Contains(fmt.Sprint(seen.are()), "PENDING")
		})
		want := map[string]int{
			"dispatch.opened SENT": 4, "dispatch.accepted SENT": 2, "dispatch.taken SENT": 2,
			"dispatch.reopened SENT": 4, "dispatch.canceled SENT": 4,
		}
		if diff := cmp.Diff(want, seen.are()); diff != "" {
			t.Errorf("the backoffice sees (-want +got):\n%s", diff)
		}
		funnel := []funnelRound{{Round: 1, Told: 3, AcceptedByFCM: 3, Seen: 1, Won: 1}, {Round: 2, Told: 3, AcceptedByFCM: 3}}
		if diff := cmp.Diff(funnel, seen.Funnel); diff != "" {
			t.Errorf("the funnel (-want +got):\n%s", diff)
		}

		// Who has the dispatch is told in so many words that it is canceled.
		id = makeDispatch(t, i)
		show(id, opened, opened)
		if a := accept(i, id, winner, 1); !a.won() {
			t.Fatal(a)
		}
		show(id, []string{"dispatch.accepted"}, nothing)
		cancel(t, i, id)
		show(id, []string{"dispatch.canceled"}, nothing)
		if s := fcm.Stats(); s.Duplicates != 0 || s.Statuses[200] != s.Requests {
			t.Errorf("told twice, or refused: %+v", s)
		}
	})
}

func cancel(t *testing.T, i *instance, id string) {
	t.Helper()
	seen := send("GET", i.url+"/v1/admin/dispatches/"+id, adminKey, "")
	a := sendWith("POST", i.url+"/v1/admin/dispatches/"+id+"/cancel", adminKey, `{"reason_code":"SITE_CLOSED"}`,
		"If-Match", seen.header.Get("ETag"))
	if a.status != 200 || a.Status != "CANCELED" {
		t.Fatalf("cancel: %s", a)
	}
}

// The end of an offer is written down and told, once, however many instances look at the clock.
func TestOfferExpires(t *testing.T) {
	onDatabases(t, func(t *testing.T, url string) {
		fcm := listenFCM(t)
		one, two := start(t, pushing(url, fcm, "one")...), start(t, pushing(url, fcm, "two")...)
		b := openBooks(t, url)
		drivers := driversIn(t, one, "seoul", 3)
		var ids []string
		for k := range 6 {
			j := job{region: "seoul", expires: time.Now().Add(2 * time.Second)}
			ids = append(ids, mustOffer(t, []*instance{one, two}[k%2], j))
		}
		kept := makeDispatch(t, one)
		show := func(id string, want ...string) {
			t.Helper()
			mustShow(t, fcm, id, map[string][]string{
				pushToken(drivers[0]): want, pushToken(drivers[1]): want, pushToken(drivers[2]): want,
			})
		}
		for _, id := range ids {
			eventually(t, "the end is written down", func() bool { return b.count("dispatches WHERE id=? AND status='EXPIRED'", id) == 1 })
			show(id)
			if n := b.count("events WHERE dispatch_id=? AND type='dispatch.expired' AND round=1", id); n != 1 {
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
		if a := accept(one, ids[0], drivers[0], 1); a.status != 410 {
			t.Errorf("after the end: %s", a)
		}
	})
}

// With FIRSTTAP_RELAY=leader one instance sends, whoever commits. When it is killed, another takes over, and with it
// what was under way.
func TestLeaderIsKilled(t *testing.T) {
	t.Parallel()
	fcm := listenFCM(t)
	mail := openMail(fcm)
	url := servertest.MariaDBURL(t)
	b := openBooks(t, url)
	settings := []string{"FIRSTTAP_RELAY=leader", "FIRSTTAP_REDIS_URL=" + servertest.StartRedis(t).URL()}
	names := []string{"one", "two"}
	instances := map[string]*instance{}
	ops := map[string]string{}
	for _, name := range names {
		ops[name] = freeAddress(t)
		instances[name] = start(t, pushing(url, fcm, name, append(settings, "FIRSTTAP_OPS_ADDR="+ops[name])...)...)
	}
	drivers := driversIn(t, instances["one"], "seoul", 40)
	var ids []string
	for k := range 6 {
		ids = append(ids, makeDispatch(t, instances[names[k%2]]))
	}
	sent := func(n int) func() bool {
		return func() bool { messages, _ := mail.count(); return messages >= n }
	}
	eventually(t, "the leader sends", sent(240))
	leader, other := "one", "two"
	if mail.by()[leader] == 0 {
		leader, other = other, leader
	}
	if diff := cmp.Diff(map[string]int{leader: 240}, mail.by()); diff != "" {
		t.Fatalf("only the leader sends (-want +got):\n%s", diff)
	}
	if a := send("GET", instances[other].url+"/v1/admin/locks", adminKey, ""); a.status != 200 || !strings.Contains(a.body, `"name":"relay"`) {
		t.Errorf("who relays is not shown: %s", a)
	}
	for name, want := range map[string]float64{leader: 240, other: 0} {
		eventually(t, "the metrics agree", func() bool { return metric(t, ops[name], "firsttap_push_attempts_total") == want })
	}

	fcm.Set(func(k *fcmtest.Knobs) { k.Latency = hung })
	ids = append(ids, makeDispatch(t, instances[other]))
	eventually(t, "some are under way", sent(250))
	instances[leader].kill()
	fcm.Set(func(k *fcmtest.Knobs) { k.Latency = 0 })
	within(t, leaseEnds, "the other takes over", func() bool { return sent(280)() && len(b.unsettled()) == 0 })
	messages, again := mail.count()
	underWay := mail.by()[leader] - 240 // none was answered before the kill
	if messages != 280 || again != underWay || mail.by()[other] != 40 {
		t.Errorf("%d messages, %d of them again, %d were under way; by whom: %v", messages, again, underWay, mail.by())
	}
	for _, d := range drivers {
		for _, id := range ids {
			if diff := cmp.Diff([]string{"dispatch.opened"}, shows(fcm, pushToken(d), id)); diff != "" {
				t.Errorf("%s of %s (-want +got):\n%s", d.ID, id, diff)
			}
		}
	}
	t.Logf("%d of 40 were under way, %d were sent again", underWay, again)
}

// Without Redis pushes go out all the same, also those that one instance leaves to another.
func TestRedisIsAway(t *testing.T) {
	for name, settings := range map[string][]string{
		"all":                           {"FIRSTTAP_RELAY=all"},
		"leader":                        {"FIRSTTAP_RELAY=leader", "FIRSTTAP_JOB_LOCK=table"},
		"leader with its lock in Redis": {"FIRSTTAP_RELAY=leader"},
	} {
		t.Run(name, func(t *testing.T) {
			fcm := listenFCM(t)
			mail := openMail(fcm)
			url := servertest.MariaDBURL(t)
			redis := servertest.StartRedis(t)
			settings = append(settings, "FIRSTTAP_REDIS_URL="+redis.URL())
			one := start(t, pushing(url, fcm, "one", settings...)...)
			two := start(t, pushing(url, fcm, "two", settings...)...)
			drivers := driversIn(t, one, "seoul", 200)
			arrived := func(n int) func() bool {
				return func() bool { messages, _ := mail.count(); return messages == n }
			}
			ids := []string{makeDispatch(t, one)}
			eventually(t, "everybody is told", arrived(200))
			before := mail.by()

			redis.Kill()
			fcm.Set(func(k *fcmtest.Knobs) { k.Latency = time.Second })
			commits := one
			if name != "all" && before["one"] > 0 {
				commits = two // and does not send itself
			}
			for range 2 {
				ids = append(ids, makeDispatch(t, commits))
			}
			eventually(t, "everybody is told without Redis", arrived(600))
			if _, again := mail.count(); again != 0 {
				t.Errorf("%d were told again", again)
			}
			by := mail.by()
			both := by["one"] > before["one"] && by["two"] > before["two"]
			if name == "all" && !both || name == "leader" && both {
				t.Errorf("who has sent: %v, and with Redis %v", by, before)
			}
			for _, d := range drivers {
				for _, id := range ids {
					if diff := cmp.Diff([]string{"dispatch.opened"}, shows(fcm, pushToken(d), id)); diff != "" {
						t.Errorf("%s of %s (-want +got):\n%s", d.ID, id, diff)
					}
				}
			}
		})
	}
}

// An instance that is told to end lets what is under way end, and leaves the rest to others at once.
func TestStoppedInstanceGivesBack(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		const drivers, dispatches = 125, 4
		fcm := listenFCM(t)
		mail := openMail(fcm)
		b := openBooks(t, url)
		one := start(t, pushing(url, fcm, "one")...)
		driversIn(t, one, "seoul", drivers)
		start(t, pushing(url, fcm, "two")...)
		fcm.Set(func(k *fcmtest.Knobs) { k.Latency = 2 * time.Second })
		for range dispatches {
			makeDispatch(t, one)
		}
		leased := func() int { return b.count("(SELECT DISTINCT claim FROM notifications WHERE state=0 AND claim<>'') x") }
		eventually(t, "both send", func() bool { return mail.by()["one"] > 10 && mail.by()["two"] > 10 && leased() == 2 })
		one.signal(syscall.SIGTERM)
		told := time.Now()
		await(t, "the instance ends", one.done)
		if n := leased(); n > 1 {
			t.Error("what the instance had leased is still leased")
		}
		if n := b.count("outbox WHERE state=0 AND claim<>''"); n != 0 {
			t.Errorf("%d events are still leased", n)
		}
		byOne := mail.by()["one"]
		fcm.Set(func(k *fcmtest.Knobs) { k.Latency = 100 * time.Millisecond })
		eventually(t, "the other sends the rest", func() bool { n, _ := mail.count(); return n == drivers*dispatches })
		took := mail.latest().Sub(told)
		if took > 30*time.Second {
			t.Errorf("the last came %s after the instance was told to end: when its lease ended", took)
		}
		eventually(t, "all is settled", func() bool { return len(b.unsettled()) == 0 })
		if _, again := mail.count(); again != 0 || mail.by()["one"] != byOne {
			t.Errorf("%d were told again, although what was under way had ended; by whom: %v", again, mail.by())
		}
		t.Logf("one sent %d, the last came %s after it was told to end", byOne, took)
	})
}

// Whoever accepted is reminded once, also when the instance that knew of it has died and all the others remind.
func TestReminderOutlivesItsInstance(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		fcm := listenFCM(t)
		b := openBooks(t, url)
		settings := "FIRSTTAP_REMIND_BEFORE=1h"
		i := start(t, pushing(url, fcm, "one", settings)...)
		drivers := driversIn(t, i, "seoul", 3)
		due := time.Now().Add(6 * time.Second)
		id := mustOffer(t, i, job{region: "seoul", starts: due.Add(time.Hour)})
		if a := accept(i, id, drivers[0], 1); !a.won() {
			t.Fatal(a)
		}
		eventually(t, "all is told", func() bool { return b.count("outbox WHERE state = 0") == 0 && len(b.unsettled()) == 0 })
		i.kill()
		if time.Now().After(due) {
			t.Fatal("the instance was not killed before the reminder was due")
		}
		two := start(t, pushing(url, fcm, "two", settings)...)
		three := start(t, pushing(url, fcm, "three", settings)...)
		eventually(t, "the reminder is due", func() bool { return time.Now().After(due) })
		for _, i := range []*instance{two, three, two} {
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
					if r.At.Before(due.Add(-time.Second)) {
						t.Errorf("reminded %s early", due.Sub(r.At))
					}
				}
			}
			return n
		}
		eventually(t, "the driver is reminded", func() bool { return count() > 0 && len(b.unsettled()) == 0 })
		if n := count(); n != 1 || b.count("notifications WHERE type='dispatch.reminder'") != 1 {
			t.Errorf("reminded %d times", n)
		}
		if shown := shows(fcm, pushToken(drivers[0]), id); len(shown) == 0 || shown[len(shown)-1] != "dispatch.reminder" {
			t.Errorf("the phone shows %v", shown)
		}
	})
}

// With FIRSTTAP_PUSH=log nothing leaves the house, and all else is as if it had.
func TestPushesAreLogged(t *testing.T) {
	fcm := listenFCM(t)
	url := servertest.MariaDBURL(t)
	i := start(t, pushing(url, fcm, "demo", "FIRSTTAP_PUSH=log", "FIRSTTAP_LOG=info")...)
	driver := driversIn(t, i, "seoul", 1)[0]
	id := makeDispatch(t, i)
	eventually(t, "it counts as sent", func() bool {
		n := notificationsOf(t, i, id)
		return n.are()["dispatch.opened SENT"] == 1
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
