package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/lock"
	"firsttap/repository"
	"firsttap/schedule"
)

// brokenLocks does not know the holders of its locks.
type brokenLocks struct{ *lock.Memory }

func (brokenLocks) Show(context.Context, string) (lock.Holder, error) {
	return lock.Holder{}, fmt.Errorf("%w: connection refused", lock.ErrUnavailable)
}

// withJobs returns a world with two jobs, which are not run.
func withJobs(t testing.TB, locks schedule.Strategy) *world {
	t.Helper()
	return newWorld(t, func(api *API) {
		job := func(name string, when schedule.When, onLeader bool) schedule.Job {
			return schedule.Job{
				Name: name, When: when, OnLeader: onLeader, Hold: lock.Renewed(10*time.Second, time.Minute),
				Work: func(context.Context, cronjob.Run) (string, error) { return "", errors.New("it ran") },
			}
		}
		store := api.Store.(*repository.Store)
		jobs := []schedule.Job{job("tidy", schedule.Cron("0 0 4 * * *"), true), job("count", schedule.After(time.Hour), false)}
		seoul, err := time.LoadLocation("Asia/Seoul")
		noError(t, err)
		scheduler, err := schedule.New(schedule.Options{
			Jobs: jobs, Ledger: store, Locks: locks, OtherLocks: []string{"relay"}, Zone: seoul, Instance: "host:1", Log: slog.New(slog.DiscardHandler),
		})
		noError(t, err)
		if _, err := store.RegisterJobs(t.Context(), []string{"tidy", "count"}); err != nil {
			t.Fatal(err)
		}
		api.Jobs = scheduler
	})
}

// began starts the run that was due an hour ago, or the requested one.
func (w *world) began(job, owner string) cronjob.Run {
	w.t.Helper()
	run, err := w.store.BeginRun(w.t.Context(), job, owner, time.Minute, func(_ cronjob.JobState, now time.Time) time.Time {
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

var runMembers = []string{
	"job", "scheduled_at", "status", "attempt", "instance", "requested_by", "began_at", "ended_at", "duration_ms", "result", "error", "skipped",
}

func TestJobs(t *testing.T) {
	locks := lock.NewMemory()
	w := withJobs(t, locks)
	r := w.call("GET", "/v1/admin/jobs", key, "")
	mustHave(t, "the list", r.json, "items", "next_cursor", "server_time")
	for _, j := range items(r) {
		mustHave(t, "a job", j, "name", "schedule", "time_zone", "on_leader", "next_run_at", "lock", "lock_problem", "running", "queued",
			"last_run", "last_success_at", "blocked")
		for _, member := range []string{"lock", "lock_problem", "running", "queued", "last_run", "last_success_at", "blocked"} {
			if j[member] != nil {
				t.Errorf("%s of a job that never ran: %v", member, j[member])
			}
		}
	}
	tidy := w.job("tidy")
	next, err := time.Parse(time.RFC3339, fmt.Sprint(tidy["next_run_at"]))
	if err != nil || next.UTC().Hour() != 19 || !next.After(time.Now()) || time.Until(next) > 24*time.Hour {
		t.Errorf("four o'clock in Seoul is next at %v: %v", tidy["next_run_at"], err)
	}
	if tidy["schedule"] != "0 0 4 * * *" || tidy["time_zone"] != "Asia/Seoul" || tidy["on_leader"] != true {
		t.Errorf("%v", tidy)
	}

	locker := lock.New(locks, lock.Options{Instance: "host:2"})
	defer locker.Close()
	lease, err := locker.Acquire(t.Context(), "count", lock.Fixed(time.Minute))
	noError(t, err)
	defer lease.Release(context.Background())
	first := w.began("count", "host:2/a")
	noError(t, w.store.EndRun(t.Context(), first, cronjob.Outcome{Status: cronjob.Succeeded, Result: "3 counted"}))
	noError(t, w.store.BlockJob(t.Context(), "count", "host:3", "no answer"))
	count := w.job("count")
	mustHave(t, "the last run", count["last_run"].(map[string]any), runMembers...)
	held := count["lock"].(map[string]any)
	if left, _ := held["lease_left_ms"].(float64); held["holder"] != lease.Owner() || left <= 0 || left > 60_000 {
		t.Errorf("the lock: %v", held)
	}
	blocked := count["blocked"].(map[string]any)
	mustHave(t, "blocked", blocked, "since", "instance", "reason")
	if blocked["instance"] != "host:3" || blocked["reason"] != "no answer" || count["last_success_at"] == nil {
		t.Errorf("%v", count)
	}
	w.began("count", "host:2/b")
	running := w.job("count")["running"].(map[string]any)
	if running["status"] != "RUNNING" || running["instance"] != "host:2" || running["ended_at"] != nil || w.job("count")["blocked"] != nil {
		t.Errorf("%v", w.job("count"))
	}
}

func TestJobsByPage(t *testing.T) {
	w := withJobs(t, lock.NewMemory())
	first := w.call("GET", "/v1/admin/jobs?limit=1", key, "")
	if page := items(first); len(page) != 1 || page[0]["name"] != "count" {
		t.Fatalf("%d %s", first.status, first.raw)
	}
	rest := w.call("GET", fmt.Sprintf("/v1/admin/jobs?limit=1&cursor=%v", first.at("next_cursor")), key, "")
	if page := items(rest); len(page) != 1 || page[0]["name"] != "tidy" || rest.at("next_cursor") != nil {
		t.Errorf("%d %s", rest.status, rest.raw)
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
		noError(t, w.store.EndRun(t.Context(), w.began("count", fmt.Sprintf("host:1/%d", i)), end))
	}
	r := w.call("GET", "/v1/admin/jobs/count/runs?limit=2", key, "")
	mustHave(t, "the list", r.json, "items", "next_cursor", "server_time")
	page := items(r)
	if len(page) != 2 || page[0]["result"] != "3" || page[1]["status"] != "FAILED" || page[1]["error"] != "disk full" {
		t.Fatalf("%d %s", r.status, r.raw)
	}
	for _, run := range page {
		mustHave(t, "a run", run, runMembers...)
		if took, ok := run["duration_ms"].(float64); !ok || took < 0 || took > 60_000 || run["instance"] != "host:1" {
			t.Errorf("%v", run)
		}
	}
	rest := w.call("GET", fmt.Sprintf("/v1/admin/jobs/count/runs?limit=2&cursor=%v", r.at("next_cursor")), key, "")
	if last := items(rest); len(last) != 1 || last[0]["result"] != "1" || rest.at("next_cursor") != nil {
		t.Errorf("%d %s", rest.status, rest.raw)
	}
	w.refused("a bad cursor", w.call("GET", "/v1/admin/jobs/count/runs?cursor=x", key, ""), 400, "MALFORMED_REQUEST")
	w.refused("no such job", w.call("GET", "/v1/admin/jobs/none/runs", key, ""), 404, "JOB_NOT_FOUND")
}

func TestRunJobNow(t *testing.T) {
	w := withJobs(t, lock.NewMemory())
	r := w.call("POST", "/v1/admin/jobs/count/run", key, "")
	mustHave(t, "the run", r.json, runMembers...)
	if r.status != 202 || r.at("status") != "QUEUED" || r.at("requested_by") == nil || r.at("began_at") != nil {
		t.Fatalf("%d %s", r.status, r.raw)
	}
	again := w.call("POST", "/v1/admin/jobs/count/run", key, "")
	if again.status != 202 || again.at("scheduled_at") != r.at("scheduled_at") || len(items(w.call("GET", "/v1/admin/jobs/count/runs", key, ""))) != 1 {
		t.Errorf("asked again: %d %s", again.status, again.raw)
	}
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
	mustHave(t, "no locks", r.json, "items", "next_cursor", "server_time")
	if r.status != 200 || len(items(r)) != 0 || !strings.Contains(r.raw, `"items":[]`) {
		t.Errorf("nothing is held: %d %s", r.status, r.raw)
	}
	for _, name := range []string{"tidy", "relay", "count", "jobs", "another-program"} {
		if _, err := locks.Acquire(t.Context(), name, "host:1/"+name, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	held := items(w.call("GET", "/v1/admin/locks", key, ""))
	if len(held) != 4 {
		t.Fatalf("%v", held)
	}
	fence := 0.0
	for i, name := range []string{"count", "jobs", "relay", "tidy"} {
		l := held[i]
		mustHave(t, "a lock", l, "name", "holder", "fence", "lease_left_ms")
		left, _ := l["lease_left_ms"].(float64)
		if l["name"] != name || l["holder"] != "host:1/"+name || left <= 0 || left > 60_000 {
			t.Errorf("%v", l)
		}
		fence = max(fence, l["fence"].(float64))
	}
	if fence <= 0 {
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
	if held := items(w.call("GET", "/v1/admin/locks", key, "")); len(held) != 1 || held[0]["lease_left_ms"] != nil || held[0]["fence"] != 7.0 {
		t.Errorf("%v", held)
	}
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
