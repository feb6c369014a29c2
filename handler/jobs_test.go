package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/internal/testkit"
	"firsttap/lock"
	"firsttap/schedule"
)

// brokenLocks does not know the holders of its locks.
type brokenLocks struct{ *lock.Memory }

func (brokenLocks) Show(context.Context, string) (lock.Holder, error) {
	return lock.Holder{}, fmt.Errorf("%w: connection refused", lock.ErrUnavailable)
}

// withJobs returns a world with three jobs, which are not run, and of which one is off.
func withJobs(t testing.TB, locks schedule.Strategy) *world {
	t.Helper()
	return newWorld(t, func(api *API) {
		job := func(name string, when schedule.When, onLeader bool) schedule.Job {
			return schedule.Job{
				Name: name, When: when, OnLeader: onLeader, Hold: lock.Renewed(10*time.Second, time.Minute),
				Work: func(context.Context, cronjob.Run) (string, error) { return "", errors.New("it ran") },
			}
		}
		store := storeOf(api)
		jobs := []schedule.Job{job("tidy", schedule.Cron("0 0 4 * * *"), true), job("count", schedule.After(time.Hour), false)}
		still := job("still", schedule.After(time.Hour), false)
		still.Off, still.Hold = true, lock.Between(5*time.Second, 20*time.Second)
		jobs = append(jobs, still)
		seoul, err := time.LoadLocation("Asia/Seoul")
		noError(t, err)
		scheduler, err := schedule.New(schedule.Options{
			Jobs: jobs, Ledger: store.Runs, Locks: locks, OtherLocks: []string{"relay"}, Zone: seoul, Instance: "host:1", Log: slog.New(slog.DiscardHandler),
		})
		noError(t, err)
		_, _, err = store.Runs.JobStates(t.Context(), []string{"tidy", "count", "still"})
		noError(t, err)
		api.Jobs = scheduler
	})
}

// began starts the run that was due an hour ago, or the requested one.
func (w *world) began(job, owner string) cronjob.Run {
	w.t.Helper()
	run, err := w.store.Runs.BeginRun(w.t.Context(), job, owner, time.Minute, func(_ cronjob.JobState, now time.Time) time.Time {
		return now.Add(-time.Hour)
	})
	noError(w.t, err)
	return run
}

func (w *world) job(name string) map[string]any {
	w.t.Helper()
	r := w.call("GET", "/v1/admin/jobs", key, "")
	for _, j := range items(r) {
		if j["name"] == name {
			return j
		}
	}
	w.t.Fatalf("no job %s: %d %s", name, r.status, r.raw)
	return nil
}

func TestJobs(t *testing.T) {
	locks := lock.NewMemory()
	w := withJobs(t, locks)
	r := w.call("GET", "/v1/admin/jobs", key, "")
	for _, j := range items(r) {
		wantMembers(t, "a job that never ran", j, "lock", nil, "lock_problem", nil, "running", nil, "queued", nil, "last_run", nil,
			"last_success_at", nil, "blocked", nil)
	}
	tidy := w.job("tidy")
	next, err := time.Parse(time.RFC3339, fmt.Sprint(tidy["next_run_at"]))
	if err != nil || next.UTC().Hour() != 19 || !next.After(time.Now()) || time.Until(next) > 24*time.Hour {
		t.Errorf("four o'clock in Seoul is next at %v: %v", tidy["next_run_at"], err)
	}
	wantMembers(t, "the job", tidy, "schedule", "0 0 4 * * *", "time_zone", "Asia/Seoul", "on_leader", true, "enabled", true,
		"lock_lease_ms", 3000.0, "lock_at_most_ms", 60_000.0, "lock_at_least_ms", 0.0)
	wantMembers(t, "a job that is off", w.job("still"), "enabled", false, "next_run_at", nil,
		"lock_lease_ms", nil, "lock_at_most_ms", 20_000.0, "lock_at_least_ms", 5000.0)

	locker := lock.New(locks, lock.Options{Instance: "host:2", Timeout: testkit.Patience})
	defer locker.Close()
	lease, err := locker.Acquire(t.Context(), "count", lock.Fixed(time.Minute))
	noError(t, err)
	defer lease.Release(context.Background())
	first := w.began("count", "host:2/a")
	noError(t, w.store.Runs.EndRun(t.Context(), first, cronjob.Outcome{Status: cronjob.Succeeded, Result: "3 counted"}))
	noError(t, w.store.Runs.BlockJob(t.Context(), "count", "host:3", "no answer"))
	count := w.job("count")
	held := count["lock"].(map[string]any)
	if left, _ := held["lease_left_ms"].(float64); held["holder"] != lease.Owner() || left <= 0 || left > 60_000 {
		t.Errorf("the lock: %v", held)
	}
	blocked := count["blocked"].(map[string]any)
	wantMembers(t, "blocked", blocked, "instance", "host:3", "reason", "no answer")
	if count["last_success_at"] == nil {
		t.Errorf("%v", count)
	}
	w.began("count", "host:2/b")
	wantMembers(t, "the job", w.job("count"), "running.status", "RUNNING", "running.instance", "host:2", "running.ended_at", nil, "blocked", nil)
}

func TestJobsByPage(t *testing.T) {
	w := withJobs(t, lock.NewMemory())
	var names []any
	for _, page := range w.pages("/v1/admin/jobs?limit=1", key) {
		for _, j := range page {
			names = append(names, j["name"])
		}
	}
	if !slices.Equal(names, []any{"count", "still", "tidy"}) {
		t.Errorf("by pages: %v", names)
	}
	w.refused("no limit", w.call("GET", "/v1/admin/jobs?limit=0", key, ""), 422, "VALIDATION_FAILED")
}

func TestJobsWithUnknownLockHolders(t *testing.T) {
	w := withJobs(t, brokenLocks{lock.NewMemory()})
	if j := w.job("tidy"); j["lock"] != nil || j["lock_problem"] == nil || j["next_run_at"] == nil {
		t.Errorf("%v", j)
	}
}

func TestRunsOfAJob(t *testing.T) {
	w := withJobs(t, lock.NewMemory())
	ends := []cronjob.Outcome{{Status: cronjob.Succeeded, Result: "1"}, {Status: cronjob.Failed, Error: "disk full"}, {Status: cronjob.Succeeded, Result: "3"}}
	for i, end := range ends {
		noError(t, w.store.Runs.EndRun(t.Context(), w.began("count", fmt.Sprintf("host:1/%d", i)), end))
	}
	r := w.call("GET", "/v1/admin/jobs/count/runs?limit=2", key, "")
	page := items(r.want(200).wantItems(2))
	for i, want := range [][]any{{"status", "SUCCEEDED", "result", "3"}, {"status", "FAILED", "error", "disk full"}} {
		wantMembers(t, "a run", page[i], append(want, "instance", "host:1")...)
		if took, ok := page[i]["duration_ms"].(float64); !ok || took < 0 || took > 60_000 {
			t.Errorf("%v", page[i])
		}
	}
	rest := w.call("GET", "/v1/admin/jobs/count/runs?limit=2&cursor="+r.text("next_cursor"), key, "").want(200, "next_cursor", nil)
	wantMembers(t, "the first run", rest.item(), "result", "1")
	w.refused("a bad cursor", w.call("GET", "/v1/admin/jobs/count/runs?cursor=x", key, ""), 400, "MALFORMED_REQUEST")
	w.refused("no such job", w.call("GET", "/v1/admin/jobs/none/runs", key, ""), 404, "JOB_NOT_FOUND")
}

func TestRunJobNow(t *testing.T) {
	w := withJobs(t, lock.NewMemory())
	r := w.call("POST", "/v1/admin/jobs/count/run", key, "").want(202, "status", "QUEUED", "requested_by", dispatch.FirstKeyID, "began_at", nil)
	w.call("POST", "/v1/admin/jobs/count/run", key, "").want(202, "scheduled_at", r.at("scheduled_at"))
	w.call("GET", "/v1/admin/jobs/count/runs", key, "").want(200).wantItems(1)
	if w.job("count")["queued"] == nil {
		t.Error("the requested run is not listed")
	}
	w.refused("no such job", w.call("POST", "/v1/admin/jobs/none/run", key, ""), 404, "JOB_NOT_FOUND")
	w.refused("a body", w.call("POST", "/v1/admin/jobs/count/run", key, `{"force":true}`), 422, "VALIDATION_FAILED")
}

// TestLocks: the list has the held locks with the rest of their terms.
func TestLocks(t *testing.T) {
	locks := lock.NewMemory()
	w := withJobs(t, locks)
	r := w.call("GET", "/v1/admin/locks", key, "")
	r.want(200, "items", []any{})
	for _, name := range []string{"tidy", "relay", "count", "jobs", "another-program"} {
		_, err := locks.Acquire(t.Context(), name, "host:1/"+name, time.Minute)
		noError(t, err)
	}
	held, fenced := items(w.call("GET", "/v1/admin/locks", key, "").wantItems(4)), false
	for i, name := range []string{"count", "jobs", "relay", "tidy"} {
		wantMembers(t, "a lock", held[i], "name", name, "holder", "host:1/"+name)
		if left, _ := held[i]["lease_left_ms"].(float64); left <= 0 || left > 60_000 {
			t.Errorf("%v", held[i])
		}
		fenced = fenced || held[i]["fence"].(float64) > 0
	}
	if !fenced {
		t.Errorf("no fences: %v", held)
	}
}

// sessionLocks have one that is held, by a session.
type sessionLocks struct {
	*lock.Memory
	held lock.Holder
}

func (l sessionLocks) Show(_ context.Context, name string) (lock.Holder, error) {
	if name == l.held.Name {
		return l.held, nil
	}
	return lock.Holder{Name: name}, nil
}

// TestLocksOfASession have no expiry; if the holders are not known, the list is an error.
func TestLocksOfASession(t *testing.T) {
	w := withJobs(t, sessionLocks{lock.NewMemory(), lock.Holder{Name: "count", Owner: "host:1", Fence: 7}})
	wantMembers(t, "the lock", w.call("GET", "/v1/admin/locks", key, "").item(), "lease_left_ms", nil, "fence", 7.0)
	w = withJobs(t, brokenLocks{lock.NewMemory()})
	r := w.call("GET", "/v1/admin/locks", key, "")
	w.refused("unknown holders", r, 503, "UNAVAILABLE")
	if strings.Contains(r.raw, "connection refused") {
		t.Errorf("the answer shows internals: %s", r.raw)
	}
	w = withJobs(t, frozenLocks{lock.NewMemory()})
	w.refused("the lock server does not answer", w.call("GET", "/v1/admin/locks", key, ""), 503, "UNAVAILABLE")
}

// frozenLocks do not answer.
type frozenLocks struct{ *lock.Memory }

func (frozenLocks) Show(ctx context.Context, _ string) (lock.Holder, error) {
	<-ctx.Done()
	return lock.Holder{}, ctx.Err()
}
