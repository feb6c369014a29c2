package systemtest

import (
	"strings"
	"syscall"
	"testing"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// replicaSettings are the settings of an instance that reads from the replica.
func replicaSettings(r *servertest.Replication, url string) []string {
	return []string{"FIRSTTAP_DATABASE_URL=" + url, "FIRSTTAP_DATABASE_READ_URL=" + strings.Replace(url, r.Primary.Addr(), r.Replica.Addr(), 1)}
}

// TestReplicaAnswersLists: of all that two instances do, the replica answers the lists of the backoffice and nothing else.
func TestReplicaAnswersLists(t *testing.T) {
	t.Parallel()
	onReplication(t, func(t *testing.T, r *servertest.Replication) {
		ops := testkit.FreeAddress(t)
		settings := append(replicaSettings(r, r.URL(t)), ownRedis(t))
		one, two := Start(t, append(settings, "FIRSTTAP_OPS_ADDR="+ops)...), Start(t, settings...)
		replica := OpenDatabase(t, "mysql://root@"+r.Replica.Addr()+"/")
		for _, set := range []string{"SET GLOBAL log_output = 'TABLE'", "SET GLOBAL general_log = ON"} {
			replica.exec(set)
		}
		// reads is how many statements the replica has been sent, without the waits for it.
		reads := func() int {
			return replica.Count("mysql.general_log WHERE argument LIKE '%SELECT%' AND argument NOT LIKE '%GTID%' AND argument NOT LIKE '%general_log%'")
		}
		replicaAnswers := func(i *Instance, list string) {
			t.Helper()
			testkit.Eventually(t, "the replica answers "+list, func() bool { // a busy machine may have stood still
				before := reads()
				i.must(200, "GET", "/v1/admin"+list, AdminKey, "")
				return reads() > before
			})
		}
		replicaAnswers(one, "/audit")
		replicaAnswers(two, "/audit")
		before := reads()
		drivers := MakeDrivers(t, one, 12)
		id := liveALife(t, one, two, drivers)
		if n := reads() - before; n != 0 {
			t.Errorf("%d statements of decisions were sent to the replica", n)
		}

		var taps struct{ Items []any }
		testkit.Eventually(t, "the taps are stored", func() bool {
			one.get("/v1/admin/dispatches/"+id+"/attempts", AdminKey, &taps)
			return len(taps.Items) >= 10
		})
		for _, list := range []string{
			"/dispatches", "/dispatches?q=seoul&status=PENDING", "/drivers?region=seoul", "/board", "/supply", "/notifications", "/jobs", "/jobs/expire-offers/runs", "/audit",
			"/dispatches/" + id + "/offers", "/dispatches/" + id + "/attempts", "/dispatches/" + id + "/events", "/dispatches/" + id + "/notifications",
			"/drivers/" + drivers[0].ID + "/signals",
		} {
			replicaAnswers(one, list)
		}
		if seen := scrape(t, ops); sum(seen, "firsttap_replica_reads_total", `server="replica"`) < 13 || seen["firsttap_replica_up"] != 1 {
			t.Error("the metrics do not say who has answered")
		}
	})
}

// liveALife takes a dispatch from its offer to its end, with a race, a refusal and a withdrawal, and drivers who look at it. It returns the
// dispatch, whose second round ten have tapped in.
func liveALife(t *testing.T, one, two *Instance, drivers []Driver) string {
	t.Helper()
	id := MakeDispatch(t, one)
	at := "/v1/dispatches/" + id
	two.must(200, "GET", "/v1/me/offers", drivers[0].Token, "")
	two.must(200, "GET", at, drivers[0].Token, "")
	one.must(204, "POST", at+"/seen", drivers[0].Token, "")
	one.must(204, "POST", at+"/decline", drivers[0].Token, `{"reason_code":"TOO_FAR"}`)
	mustWin(t, one, id, drivers[1], 1)
	if a := withdraw(two, id, drivers[1]); a.status != 200 {
		t.Fatal(a)
	}
	answers := Together(10, func(k int) Response { return Accept([]*Instance{one, two}[k%2], id, drivers[k+2], 2) })
	won := 0
	for k, a := range answers {
		if !a.Won() {
			continue
		}
		won++
		token := drivers[k+2].Token
		two.must(200, "GET", "/v1/me/dispatches", token, "")
		two.must(200, "GET", "/v1/me/dispatches/"+id+"/claim", token, "")
		one.must(200, "PUT", "/v1/me/duty", token, `{"on_duty":false}`)
	}
	if won != 1 {
		t.Fatalf("%d winners: %v", won, answers)
	}
	two.must(200, "GET", "/v1/admin/dispatches/"+id, AdminKey, "")
	one.must(200, "GET", "/v1/admin/drivers/"+drivers[0].ID, AdminKey, "")
	other := MakeDispatch(t, two)
	one.must(200, "POST", "/v1/admin/dispatches/"+other+"/assign", AdminKey, `{"driver_id":"`+drivers[0].ID+`"}`, "If-Match", `"1"`)
	return id
}

// TestDoctorOnAReplica finds each fault by its line.
func TestDoctorOnAReplica(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	onReplication(t, func(t *testing.T, r *servertest.Replication) {
		primary := r.Primary.URL(t)
		settings := replicaSettings(r, primary)
		Start(t, settings...).endBy(syscall.SIGTERM)
		r.Follow()
		ask := func(more ...string) *examined { return examine(t, append(settings, more...)...) }
		durable := "fails database.durability" // an asynchronous replica
		keepsUp := func(more ...string) {
			t.Helper()
			var x *examined
			testkit.Eventually(t, "the replica applies within 100 ms", func() bool { // which a busy machine may delay
				x = ask()
				return !strings.HasPrefix(x.line("replica.applies"), "warning ")
			})
			x.mustBe(t, 1, append(append([]string{durable}, more...), "warning redis.connection", "warning firebase.push")...)
		}
		keepsUp()
		replica := OpenDatabase(t, "mysql://root@"+r.Replica.Addr()+"/")
		replica.exec("SET GLOBAL read_only = OFF")
		keepsUp("warning replica.role")
		replica.exec("SET GLOBAL read_only = ON")

		if line := ask("FIRSTTAP_DATABASE_READ_URL=" + primary + "?tls=false").line("replica.role"); !strings.HasPrefix(line, "warning it is the primary itself") {
			t.Errorf("replica.role: %s", line)
		}
		ask("FIRSTTAP_DATABASE_READ_URL="+primary).mustFail(t, "settings", "FIRSTTAP_DATABASE_READ_URL")
		r.Lag()
		OpenDatabase(t, primary).exec("UPDATE api_keys SET name = 'another'")
		ask().mustFail(t, "replica.applies", "has not applied", "SHOW REPLICA STATUS")
		r.Follow()
		ask("FIRSTTAP_DATABASE_READ_URL="+strings.Replace(primary, "root", "root:wrong", 1)).mustFail(t, "replica.connection", "password in FIRSTTAP_DATABASE_READ_URL")
		r.Replica.Freeze()
		ask().mustFail(t, "replica.connection", "firewall")
		r.Replica.Thaw()
		r.Replica.Kill()
		x := ask()
		x.mustFail(t, "replica.connection", "check that the server runs")
		if line := x.line("replica.applies"); !strings.HasPrefix(line, "skipped ") {
			t.Error(line)
		}
	})
}
