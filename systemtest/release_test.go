package systemtest

import (
	"strings"
	"syscall"
	"testing"

	"firsttap/internal/testkit"
)

// A process stands still in the middle of a run, and an operator releases the lock that it runs under. When the process goes
// on, it can't conclude that run any more: another attempt does, under a lock of its own. So it is for a job's own lock and
// for the leader's, whatever holds them.
func TestReleasedHolderConcludesNothing(t *testing.T) {
	t.Parallel()
	ways := waysToLock(t)
	delete(ways, "memory") // no other process can release such a lock
	for name, settings := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := mariaDB(t)
			i := Start(t, append([]string{"FIRSTTAP_DATABASE_URL=" + url}, settings...)...)
			db := OpenDatabase(t, url)
			lookup := []string{"FIRSTTAP_DATABASE_URL", url, "FIRSTTAP_ADMIN_KEY", AdminKey, "FIRSTTAP_JWT_SECRET", JWTSecret}
			for _, setting := range settings {
				key, value, _ := strings.Cut(setting, "=")
				lookup = append(lookup, key, value)
			}
			for lock, job := range map[string]string{"supply": "supply", "jobs": "nightly"} {
				owner, slot, attempt := db.freezeInRun(t, i, job, func() {
					out, err := command(t, testkit.Settings(lookup...), "lock", "release", lock)
					// The leader's lease of 3 s may end before: the command then finds no holder, and takes the run from it all the same.
					free := lock == "jobs" && strings.Contains(out, "jobs is not held")
					if err != nil || !free && !strings.Contains(out, lock+" released; the holder was ") || !strings.Contains(out, "interrupted; its owner was ") {
						t.Errorf("release %s: %v\n%s", lock, err, out)
					}
				})
				testkit.Within(t, 5*testkit.Patience, job+" is run to its end", func() bool {
					return db.Count("job_runs WHERE job=? AND slot=? AND status='SUCCEEDED'", job, slot) == 1
				})
				if db.Count("job_runs WHERE job=? AND slot=? AND owner=?", job, slot, owner) != 0 {
					t.Errorf("%s concluded its run of %s after the release", owner, job)
				}
				if db.Count("job_runs WHERE job=? AND slot=? AND attempt>?", job, slot, attempt) != 1 {
					t.Errorf("the run of %s is not another attempt's", job)
				}
				if job == "supply" && db.Count("supply WHERE at=? AND region=''", slot) != 1 {
					t.Error("the supply was not written once")
				}
			}
		})
	}
}

// freezeInRun stops the instance in the middle of a run of the job, which needs tables that the test has locked, calls do,
// and lets the instance go on. It returns the run's owner, slot and attempt.
func (db *Database) freezeInRun(t *testing.T, i *Instance, job string, do func()) (owner string, slot int64, attempt int) {
	t.Helper()
	conn, err := db.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exec := func(statement string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("LOCK TABLES drivers WRITE, dispatches WRITE")
	ask := func() {
		t.Helper()
		testkit.Eventually(t, "the instance knows "+job, func() bool {
			return send("POST", i.URL+"/v1/admin/jobs/"+job+"/run", AdminKey, "").status == 202
		})
	}
	ask()
	running := func() bool {
		return db.DB.QueryRow("SELECT owner, slot, attempt FROM job_runs WHERE job=? AND status='RUNNING'", job).Scan(&owner, &slot, &attempt) == nil
	}
	testkit.Within(t, 5*testkit.Patience, job+" is under way", func() bool { // a slot's run may have kept the lock of supply
		if !running() {
			return false
		}
		i.signal(syscall.SIGSTOP)
		if running() {
			return true
		}
		i.signal(syscall.SIGCONT) // the run had ended already: it waits for a table 9 s only
		ask()
		return false
	})
	do()
	exec("UNLOCK TABLES")
	i.signal(syscall.SIGCONT)
	return owner, slot, attempt
}
