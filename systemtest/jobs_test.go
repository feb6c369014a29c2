package systemtest

import (
	"database/sql"
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
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

// Each job that is run by hand has done its work when its run has ended, and says how much.
func TestJobsAreRunByHand(t *testing.T) {
	t.Parallel()
	url := "sqlite://" + filepath.Join(t.TempDir(), "my.db")
	i := Start(t, "FIRSTTAP_DATABASE_URL="+url)
	db := OpenDatabase(t, url)
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
	driver, over, soon, expired := MakeDrivers(t, i, 1)[0], MakeDispatch(t, i), MakeDispatch(t, i), MakeDispatch(t, i)
	work := func(id string, accepted, starts, ends time.Duration) {
		mustWin(t, i, id, driver, 1)
		at := func(d time.Duration) int64 { return time.Now().Add(d).UnixMicro() }
		db.exec("UPDATE dispatches SET accepted_at = ?, work_starts_at = ?, work_ends_at = ? WHERE id = ?", at(accepted), at(starts), at(ends), id)
	}
	work(over, -27*time.Hour, -26*time.Hour, -25*time.Hour)
	work(soon, -2*time.Hour, time.Hour/2, time.Hour)
	db.expire(expired, 0)
	db.exec("INSERT INTO supply (at, region, on_duty, open) VALUES (1, 'seoul', 1, 1)")
	// A run at its time may have done the work before, so how much a run by hand says does not matter.
	for name, want := range map[string]struct {
		says string
		done bool
		rows string
		args []any
	}{
		"nightly":       {`^\d dispatches closed, 0 topics to unsubscribe$`, true, "dispatches WHERE id = ? AND status = 'CANCELED'", []any{over}},
		"remind":        {`^\d drivers reminded$`, true, "events WHERE dispatch_id = ? AND type = 'dispatch.reminder'", []any{soon}},
		"expire-offers": {`^\d offers ended$`, true, "events WHERE dispatch_id = ? AND type = 'dispatch.expired'", []any{expired}},
		"retention":     {`^\d rows deleted$`, false, "supply WHERE at = 1", nil},
	} {
		r := runNow(t, i, name)
		if r.Status != "SUCCEEDED" || !regexp.MustCompile(want.says).MatchString(r.Result) || r.RequestedBy == "" || r.Attempt != 1 || r.Instance == "" {
			t.Errorf("%s: %+v, want %q", name, r, want.says)
		}
		if n := db.Count(want.rows, want.args...); (n > 0) != want.done {
			t.Errorf("after %s there are %d %s", name, n, want.rows)
		}
	}
}

// inTheMiddle waits until expire-offers is in the middle of a run: an offer's expiry cannot be written until goOn is called.
func inTheMiddle(t *testing.T, i *Instance, db *Database) (id string, goOn func()) {
	t.Helper()
	var tx *sql.Tx
	for status := ""; status != "PENDING"; { // it may have ended before its row is locked
		id = MakeDispatchWith(t, i, DispatchOptions{Region: "nowhere"})
		db.expire(id, 5*time.Second)
		if tx != nil {
			_ = tx.Rollback() // its row is no longer of use
		}
		var err error
		if tx, err = db.DB.Begin(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() }) // ended already
		if err := tx.QueryRow("SELECT status FROM dispatches WHERE id = ? FOR UPDATE", id).Scan(&status); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Within(t, 3*testkit.Patience, "the job waits for the row", func() bool {
		return db.Count("job_runs WHERE job='expire-offers' AND status='RUNNING'") > 0 &&
			slices.ContainsFunc(servertest.Sessions(t, db.DB), func(s servertest.Session) bool {
				return strings.HasPrefix(s.Statement, "SELECT d.") && strings.HasSuffix(s.Statement, "FOR UPDATE")
			})
	})
	return id, func() {
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}

// expire ends the offer in that time.
func (db *Database) expire(id string, in time.Duration) {
	db.t.Helper()
	db.exec("UPDATE dispatches SET expires_at = ? WHERE id = ?", time.Now().Add(in).UnixMicro(), id)
}

func (db *Database) expired(id string) func() bool {
	return func() bool { return db.Count("events WHERE dispatch_id=? AND type='dispatch.expired'", id) == 1 }
}

// A run that an instance has not finished at SIGTERM is finished by another.
func TestJobIsHandedOver(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		db := OpenDatabase(t, url)
		a := Start(t, "FIRSTTAP_DATABASE_URL="+url)
		id, goOn := inTheMiddle(t, a, db)
		a.signal(syscall.SIGTERM) // before anything else: the run waits for the row for some seconds only
		testkit.Within(t, startOrEnd, "the first has ended", a.ended)
		goOn()
		Start(t, "FIRSTTAP_DATABASE_URL="+url)
		testkit.Within(t, 3*testkit.Patience, "the other ends the offer", db.expired(id))
		testkit.Within(t, 3*testkit.Patience, "no run is left behind", func() bool { return db.Count("job_runs WHERE status='RUNNING'") == 0 })
	})
}

// A Java service that runs the same job under ShedLock's table and our job exclude each other.
func TestJobIsSharedWithShedLock(t *testing.T) {
	t.Parallel()
	// These are the statements of ShedLock's JdbcTemplateLockProvider with usingDbTime.
	const (
		insert = `INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('expire-offers',
			TIMESTAMPADD(MICROSECOND, 600000 * 1000, UTC_TIMESTAMP(3)), UTC_TIMESTAMP(3), 'java')`
		update = `UPDATE shedlock SET lock_until = TIMESTAMPADD(MICROSECOND, 600000 * 1000, UTC_TIMESTAMP(3)),
			locked_at = UTC_TIMESTAMP(3), locked_by = 'java' WHERE name = 'expire-offers' AND lock_until <= UTC_TIMESTAMP(3)`
		unlock = `UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = 'expire-offers' AND locked_by = 'java'`
	)
	onServers(t, func(t *testing.T, url string) {
		db := OpenDatabase(t, url)
		exec := func(statement string) int64 {
			t.Helper()
			done, err := db.DB.Exec(statement)
			if err != nil {
				t.Fatal(err)
			}
			n, err := done.RowsAffected()
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		mine := func() int { return db.Count("job_runs WHERE job='expire-offers'") }
		if _, err := command(t, testkit.Settings("FIRSTTAP_DATABASE_URL", url, "FIRSTTAP_ADMIN_KEY", AdminKey, "FIRSTTAP_JWT_SECRET", JWTSecret), "migrate", "up"); err != nil {
			t.Fatal(err)
		}
		exec(insert)
		i := Start(t, "FIRSTTAP_DATABASE_URL="+url, "FIRSTTAP_JOB_LOCK=table")
		id := MakeDispatchWith(t, i, DispatchOptions{Region: "nowhere"})
		db.expire(id, 0)
		if r := runNow(t, i, "remind"); r.Status != "SUCCEEDED" {
			t.Errorf("another job: %+v", r)
		}
		testkit.Eventually(t, "the job was refused", func() bool {
			return db.Count("dispatches WHERE id=? AND expires_at < ?", id, time.Now().Add(-6*time.Second).UnixMicro()) == 1
		})
		if mine() > 0 {
			t.Errorf("%d runs beside ShedLock's", mine())
		}
		exec(unlock)
		testkit.Eventually(t, "the offer ends when ShedLock has let go", db.expired(id))

		id, goOn := inTheMiddle(t, i, db)
		if exec(update) > 0 {
			t.Error("ShedLock took the lock of this instance")
		}
		goOn()
		testkit.Eventually(t, "the offer ends", db.expired(id))
		testkit.Eventually(t, "ShedLock gets it", func() bool { return exec(update) == 1 })
	})
}
