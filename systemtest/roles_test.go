package systemtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"firsttap/internal/testkit"
)

// Two instances serve the API and a third one pushes and runs the jobs, of which one is off and runs by hand. While the third is dead the
// others are ready and decide; what it would have done waits, and is done when it has been started again.
func TestRolesApart(t *testing.T) {
	t.Parallel()
	p, redis, ops := startPushing(t, mariaDB(t)), ownRedis(t), testkit.FreeAddress(t)
	start := func(name, roles string, settings ...string) *Instance {
		return p.start(name, append(settings, "FIRSTTAP_ROLES="+roles, "FIRSTTAP_JOBS=supply=off", redis)...)
	}
	one, two := start("one", "api"), start("two", "api")
	startThird := func() *Instance { return start("third", "relay,jobs", "FIRSTTAP_OPS_ADDR="+ops) }
	third := startThird()
	mustHave := func(i *Instance, roles string) {
		t.Helper()
		if a := i.readyz(); a.status != 200 || a.Status != "ok" || textOf(a.body, "roles") != roles {
			t.Errorf("readyz: %s, want %s", a, roles)
		}
	}
	mustRunOn := func(r jobRun, i *Instance) {
		t.Helper()
		if r.Status != "SUCCEEDED" || !strings.HasSuffix(r.Instance, fmt.Sprint(":", i.cmd.Process.Pid)) {
			t.Errorf("%+v, want a run on %d", r, i.cmd.Process.Pid)
		}
	}
	mustHave(one, "api")
	mustHave(third, "relay,jobs")
	if a := send("GET", third.URL+"/v1/me", "x", ""); a.status != 503 || a.Code != "UNAVAILABLE" {
		t.Errorf("the API at an instance without it: %s", a)
	}
	testkit.Equal(t, "its roles", map[string]float64{"relay": 1, "jobs": 1, "api": 0}, map[string]float64{
		"relay": sum(scrape(t, ops), "firsttap_role", `role="relay"`), "jobs": sum(scrape(t, ops), "firsttap_role", `role="jobs"`),
		"api": sum(scrape(t, ops), "firsttap_role", `role="api"`),
	})

	drivers := MakeDriversWithPhones(t, one, "seoul", 3)
	first, over := MakeDispatch(t, one), MakeDispatchWith(t, two, DispatchOptions{Region: "nowhere"})
	p.allShow(drivers, first, "dispatch.opened")
	mustWin(t, two, first, drivers[0], 1)
	p.allShow(drivers[:1], first, "dispatch.accepted")
	p.allShow(drivers[1:], first)
	p.db.expire(over, 0)
	testkit.Within(t, 3*testkit.Patience, "the offer ends", p.db.expired(over))
	mustRunOn(runsOf(two, "expire-offers")[0], third)
	testkit.Equal(t, "runs of the job that is off", 0, p.db.Count("job_runs WHERE job = 'supply'"))
	mustRunOn(runNow(t, two, "supply"), third)
	p.settle()

	third.Kill()
	second, over := MakeDispatch(t, one), MakeDispatchWith(t, two, DispatchOptions{Region: "nowhere"})
	mustWin(t, two, second, drivers[1], 1)
	p.db.expire(over, 0)
	var asked jobRun
	a := two.must(202, "POST", "/v1/admin/jobs/remind/run", AdminKey, "")
	if err := json.Unmarshal([]byte(a.body), &asked); err != nil || asked.Status != "QUEUED" {
		t.Errorf("%v: %s", err, a)
	}
	mustHave(one, "api")
	mustHave(two, "api")
	p.allShow(drivers, second)
	if p.db.expired(over)() || p.db.nothingToPush() {
		t.Error("somebody else has done the third's work")
	}

	third = startThird()
	p.allShow(drivers[1:2], second, "dispatch.accepted")
	testkit.Within(t, leaseTakeover, "the second offer ends", p.db.expired(over))
	testkit.Within(t, leaseTakeover, "the job runs that was asked for", func() bool {
		for _, r := range runsOf(one, "remind") {
			if r.ScheduledAt.Equal(asked.ScheduledAt) && r.Status == "SUCCEEDED" {
				mustRunOn(r, third)
				return true
			}
		}
		return false
	})
	p.settle()
	messages, _ := p.mail.Count()
	testkit.Equal(t, "messages, all by the third", map[string]int{"third": messages}, p.mail.ByProject())
}
