package app

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"firsttap/internal/config"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/lock"
	"firsttap/repository/database"
	"firsttap/repository/repositorytest"
	"firsttap/schedule"
	"firsttap/systemtest"
)

// withJobLocks runs the test with the settings of each FIRSTTAP_JOB_LOCK that can be seen from outside, on a database of its own.
func withJobLocks(t *testing.T, test func(t *testing.T, way string, env []string)) {
	t.Parallel()
	redis := func(t *testing.T) string { return servertest.StartRedis(t).URL() }
	for name, more := range map[string]func(t *testing.T) []string{
		"table, by default": func(*testing.T) []string { return nil },
		"redis, by default": func(t *testing.T) []string { return []string{"FIRSTTAP_REDIS_URL", redis(t)} },
		"quorum": func(t *testing.T) []string {
			return []string{"FIRSTTAP_JOB_LOCK", "quorum", "FIRSTTAP_QUORUM_URLS", redis(t) + "," + redis(t) + "," + redis(t)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name, append(more(t), "FIRSTTAP_DATABASE_URL", repositorytest.URL(t, servertest.SQLite)))
		})
	}
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) {
		ways := []string{"table", "named", "rows"}
		if kind == servertest.TiDB {
			ways = ways[:1] // it refuses the others
		}
		for _, way := range ways {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				test(t, way, []string{
					"FIRSTTAP_JOB_LOCK", way, "FIRSTTAP_DATABASE_URL", repositorytest.URL(t, kind),
					"FIRSTTAP_ADMIN_KEY", systemtest.AdminKey, "FIRSTTAP_JWT_SECRET", systemtest.JWTSecret,
				})
			})
		}
	})
}

// lockUser opens the locks of jobs as these settings say, and takes some for an instance.
type lockUser struct {
	t      *testing.T
	config config.Config
	locks  *jobLocks
	locker *lock.Locker
}

// patient waits longer for a decision, and for a server of the locks, than a busy machine delays it.
var patient = config.Timeouts{Claim: testkit.Patience, JobLock: testkit.Patience}

func openLocks(t *testing.T, lookup func(string) (string, bool)) *lockUser {
	t.Helper()
	config, err := config.Read(lookup)
	if err != nil {
		t.Fatal(err)
	}
	config.Timeouts = patient
	locks, err := openJobLocks(config, lock.NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	u := &lockUser{t, config, locks, lock.New(locks.strategy, lock.Options{Instance: "instance-7", Timeout: patient.JobLock})}
	t.Cleanup(func() { u.locker.Close() })
	return u
}

// acquire takes the lock of the job.
func (u *lockUser) acquire(job string) *lock.Lease {
	u.t.Helper()
	hold := lock.Hold{TTL: time.Minute, RenewEvery: 5 * time.Second, AtMost: time.Hour} // it outlasts renewals that come late
	lease, err := u.locker.Acquire(u.t.Context(), job, hold)
	if err != nil {
		u.t.Fatal(err)
	}
	return lease
}

// write is a write under the lease.
func (u *lockUser) write(lease *lock.Lease) error {
	u.t.Helper()
	db, _, err := database.OpenPool(u.config.DatabaseURL, 1)
	if err != nil {
		u.t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(u.t.Context(), &sql.TxOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	defer tx.Rollback()
	if err := u.locks.fences.Enforce(u.t.Context(), tx, lease.Name(), lease.Fence()); err != nil {
		return err
	}
	return tx.Commit()
}

// The commands that need no key want none.
func TestCommandsWithoutKeys(t *testing.T) {
	url := "mysql://u:p@" + testkit.FreeAddress(t) + "/d?tls=nonsense"
	for _, args := range [][]string{{"migrate", "status"}, {"lock", "ls"}} {
		_, err := commandOf(t, testkit.Settings("FIRSTTAP_DATABASE_URL", url), args...)
		if err == nil || !strings.Contains(err.Error(), "FIRSTTAP_DATABASE_URL") || strings.Contains(err.Error(), "KEY") || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// An operator lists a lock's holder and releases the lock: later writes under the holder's fence are refused, its work is
// canceled, and the next holder's fence is larger.
func TestLockCommand(t *testing.T) {
	withJobLocks(t, func(t *testing.T, way string, env []string) {
		lookup, job := testkit.Settings(env...), "report"
		must := func(args ...string) string {
			t.Helper()
			out, err := commandOf(t, lookup, args...)
			if err != nil {
				t.Fatalf("%v: %v", args, err)
			}
			return out
		}
		if out := must("lock", "ls"); out != "no lock is held\n" {
			t.Errorf("ls: %q", out)
		}
		if out := must("lock", "release", relayName); out != relayName+" is not held\n" {
			t.Errorf("release of a free lock: %q", out)
		}
		for _, verb := range []string{"release", "show"} {
			if out, err := commandOf(t, lookup, "lock", verb, "typo"); err == nil || !strings.Contains(err.Error(), "expire-offers") {
				t.Errorf("%s of a lock that nobody has: %q, %v", verb, out, err)
			}
		}
		user := openLocks(t, lookup)
		lease := user.acquire(job)
		for _, args := range [][]string{{"lock", "ls"}, {"lock", "show", job}} {
			out := must(args...)
			// The last server of a quorum grants a fence of its own, which may be larger than the lease's.
			if fenced := strings.Contains(out, fmt.Sprint(lease.Fence())) || way == "quorum"; !fenced || !strings.Contains(out, lease.Owner()) {
				t.Errorf("%v does not tell that %s holds with fence %d:\n%s", args, lease.Owner(), lease.Fence(), out)
			}
		}
		if err := user.write(lease); err != nil {
			t.Fatalf("the holder may not write: %v", err)
		}
		if out := must("lock", "release", job); !strings.Contains(out, job+" released; the holder was "+lease.Owner()) {
			t.Errorf("release: %q", out)
		}
		if err := user.write(lease); !errors.Is(err, lock.ErrFenced) {
			t.Errorf("the former holder may still write: %v", err)
		}
		<-lease.Context().Done()
		if cause := context.Cause(lease.Context()); !errors.Is(cause, lock.ErrLost) {
			t.Errorf("the work's context ended with %v", cause)
		}
		next := user.acquire(job)
		if next.Fence() <= lease.Fence() {
			t.Errorf("the next holder has fence %d after %d", next.Fence(), lease.Fence())
		}
		defer next.Release(t.Context())
		if err := user.write(next); err != nil {
			t.Errorf("the next holder may not write: %v", err)
		}
		if err := lease.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("the release by the former holder: %v", err)
		}
		if out := must("lock", "show", job); !strings.Contains(out, next.Owner()) {
			t.Errorf("the next holder's lock was released too:\n%s", out)
		}
	})
}

// hooked is a Strategy that calls breaking before it breaks a lock.
type hooked struct {
	schedule.Strategy
	breaking func()
}

func (s hooked) Break(ctx context.Context, name string) (lock.Holder, error) {
	s.breaking()
	return s.Strategy.Break(ctx, name)
}

// The former holder's writes are refused before another process can acquire the name. If the lock has got another holder than the
// command was shown, that holder's writes are refused too.
func TestReleaseFences(t *testing.T) {
	lookup := testkit.Settings("FIRSTTAP_DATABASE_URL", "sqlite://"+t.TempDir()+"/my.db")
	if _, err := commandOf(t, lookup, "migrate", "up"); err != nil {
		t.Fatal(err)
	}
	user := openLocks(t, lookup)
	lease := user.acquire("report")
	shown := lease
	user.locks.strategy = hooked{user.locks.strategy, func() {
		if err := user.write(shown); !errors.Is(err, lock.ErrFenced) {
			t.Errorf("the holder may still write when its lock is released: %v", err)
		}
		for range 3 { // the fence grows by more than one
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			lease = user.acquire("report")
		}
	}}
	var out bytes.Buffer
	if err := user.locks.release(t.Context(), "report", &out); err != nil || !strings.Contains(out.String(), lease.Owner()) {
		t.Errorf("%v, %q, want the owner %s", err, &out, lease.Owner())
	}
	if err := user.write(lease); !errors.Is(err, lock.ErrFenced) {
		t.Errorf("the released holder may still write: %v", err)
	}
}

func TestLockCommandThatCannotBe(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range []string{"lock", "lock ls now", "lock show", "lock release", "lock release a b", "lock steal a", "lock show " + strings.Repeat("x", 65)} {
		if out, err := commandOf(t, testkit.Settings(), strings.Fields(args)...); err == nil {
			t.Errorf("%s: %q", args, out)
		}
	}
	if _, err := commandOf(t, testkit.Settings("FIRSTTAP_JOB_LOCK", "memory"), "lock", "ls"); err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("memory: %v", err)
	}
	if _, err := commandOf(t, testkit.Settings("FIRSTTAP_REDIS_URL", "redis://"+testkit.FreeAddress(t)), "lock", "ls"); !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("a Redis that is not there: %v", err)
	}
}

// Each lock strategy supports the hold of each job, and the longest that the settings allow or name.
func TestLockJobsWithEachStrategy(t *testing.T) {
	withJobLocks(t, func(t *testing.T, _ string, env []string) {
		for k, more := range [][]string{nil, {"FIRSTTAP_LOCK_LEASE", "10m"}, {"FIRSTTAP_JOBS", "supply=atMost=2h"}} {
			user := openLocks(t, testkit.Settings(append(more, env...)...))
			jobs, err := jobsOf(nil, user.config)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range jobs {
				lease, err := user.locker.Acquire(t.Context(), fmt.Sprint(j.Name, k), j.Hold) // supply keeps its lock
				if err == nil {
					err = lease.Release(t.Context())
				}
				if err != nil {
					t.Errorf("%s with %v: %v", j.Name, more, err)
				}
			}
		}
	})
}

// commandOf runs the program, and returns what it prints.
func commandOf(t *testing.T, lookup func(string) (string, bool), args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := Run(t.Context(), args, lookup, patient, &out)
	return out.String(), err
}
