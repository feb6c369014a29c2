package systemtest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/servertest"
	"firsttap/testkit"
)

type jobRun struct {
	ScheduledAt time.Time `json:"scheduled_at"`
	Status      string
	Attempt     int
	Instance    string
	RequestedBy string `json:"requested_by"`
	Result      string
	Error       string
}

// runsOf returns a job's latest runs, the latest first.
func runsOf(i *Instance, job string) []jobRun {
	i.T.Helper()
	var list struct{ Items []jobRun }
	i.get("/v1/admin/jobs/"+job+"/runs?limit=100", AdminKey, &list)
	return list.Items
}

// runNow starts the job and returns its run once it has ended.
func runNow(t testing.TB, i *Instance, job string) jobRun {
	t.Helper()
	a := send("POST", i.URL+"/v1/admin/jobs/"+job+"/run", AdminKey, "")
	var asked, ended jobRun
	if err := json.Unmarshal([]byte(a.body), &asked); err != nil || a.status != 202 {
		t.Fatalf("run %s: %s", job, a)
	}
	testkit.Eventually(t, job+" has run", func() bool {
		runs := runsOf(i, job)
		k := slices.IndexFunc(runs, func(r jobRun) bool { return r.ScheduledAt.Equal(asked.ScheduledAt) })
		if k >= 0 {
			ended = runs[k]
		}
		return ended.Status == "SUCCEEDED" || ended.Status == "FAILED"
	})
	return ended
}

// waysToLock are the settings of every FIRSTTAP_JOB_LOCK.
func waysToLock(t *testing.T) map[string][]string {
	redis, quorum := servertest.StartRedis(t).URL(), make([]string, 3)
	for k := range quorum {
		quorum[k] = servertest.StartRedis(t).URL()
	}
	settings := map[string][]string{
		"redis":  {"FIRSTTAP_REDIS_URL=" + redis},
		"quorum": {"FIRSTTAP_JOB_LOCK=quorum", "FIRSTTAP_QUORUM_URLS=" + strings.Join(quorum, ",")},
	}
	for _, name := range []string{"table", "named", "rows", "memory"} {
		settings[name] = []string{"FIRSTTAP_JOB_LOCK=" + name}
	}
	return settings
}

// Two instances, with each kind of lock: one runs a slot and the other skips it, an offer expires once, and when one
// instance is killed the other takes over.
func TestJobsOverInstances(t *testing.T) {
	t.Parallel()
	for name, settings := range waysToLock(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "redis" && name != "table" {
				testkit.OnlyInAll(t)
			}
			url := mariaDB(t)
			settings := append([]string{"FIRSTTAP_DATABASE_URL=" + url}, settings...)
			a, b := Start(t, settings...), Start(t, settings...)
			db := OpenDatabase(t, url)
			offerEnds := func(on *Instance) func() bool {
				id := MakeDispatchWith(t, on, DispatchOptions{Region: "nowhere"})
				db.expire(id, 0)
				return func() bool {
					n := db.Count("events WHERE dispatch_id=? AND type='dispatch.expired'", id)
					if n > 1 {
						t.Errorf("the offer has ended %d times", n)
					}
					return n > 0
				}
			}
			for range 2 {
				testkit.Within(t, 3*testkit.Patience, "an offer ends", offerEnds(a))
			}
			for _, r := range runsOf(b, "expire-offers") {
				if r.Attempt > 1 || r.Error != "" || r.Status == "SUCCEEDED" && r.Result == "" {
					t.Errorf("%+v", r)
				}
			}
			a.Kill()
			testkit.Within(t, 3*testkit.Patience, "the other ends an offer", offerEnds(b)) // a lease may have to end, and then a slot to begin
		})
	}
}

func TestJobsAreRunByHand(t *testing.T) {
	t.Parallel()
	i := Start(t, ownFile(t))
	var list struct {
		Items []struct {
			Name      string
			Schedule  string
			TimeZone  string     `json:"time_zone"`
			NextRunAt *time.Time `json:"next_run_at"`
		}
	}
	i.get("/v1/admin/jobs", AdminKey, &list)
	seoul, err := time.LoadLocation("Asia/Seoul")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, j := range list.Items {
		names = append(names, j.Name)
		if j.Name == "nightly" && (j.NextRunAt == nil || j.NextRunAt.In(seoul).Hour() != 4 || j.TimeZone != "Asia/Seoul") {
			t.Errorf("%+v", j)
		}
	}
	if want := []string{"expire-offers", "nightly", "remind", "retention", "supply"}; !slices.Equal(names, want) {
		t.Fatalf("the jobs are %v, want %v", names, want)
	}
	for name, want := range map[string]string{
		"nightly": "0 dispatches closed, 0 topics to unsubscribe", "retention": "0 rows deleted", "expire-offers": "0 offers ended",
		"remind": "0 drivers reminded",
	} {
		if r := runNow(t, i, name); r.Status != "SUCCEEDED" || r.Result != want || r.RequestedBy == "" || r.Attempt != 1 || r.Instance == "" {
			t.Errorf("%s: %+v, want %q", name, r, want)
		}
	}
}

// expire ends the offer in that time.
func (db *Database) expire(id string, in time.Duration) {
	db.t.Helper()
	db.exec("UPDATE dispatches SET expires_at = ? WHERE id = ?", time.Now().Add(in).UnixMicro(), id)
}
