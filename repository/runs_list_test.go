package repository

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/testkit"
)

func (s *Store) mustRequest(t testing.TB, actor string) cronjob.Run {
	t.Helper()
	run, err := s.RequestRun(t.Context(), report, actor)
	must(t, err)
	return run
}

// mustState returns the job's stored state.
func (s *Store) mustState(t testing.TB) cronjob.JobState {
	t.Helper()
	states, _, err := s.JobStates(t.Context(), []string{report})
	if err != nil || len(states) != 1 {
		t.Fatalf("%+v: %v", states, err)
	}
	return states[report]
}

func TestRegisterJobs(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		names := []string{report, "Report", "nightly"}
		testkit.Together(6, func(int) {
			now, err := db.RegisterJobs(t.Context(), names)
			if err != nil {
				t.Error(err)
			}
			db.mustBeAbout(t, "now", micros(now), 0)
		})
		before := db.ledger(t)
		if len(before.Jobs) != 3 {
			t.Fatalf("known are %+v", before.Jobs)
		}
		db.known(t, names...)
		db.mustBe(t, before)
		if now, err := db.RegisterJobs(t.Context(), nil); err != nil || now.IsZero() {
			t.Errorf("without a job it is %v: %v", now, err)
		}
	})
}

// A requested run is one run until it begins, comes before a slot, and uses up no slot.
func TestRequestRun(t *testing.T) {
	each(t, withJob(func(t *testing.T, db *database) {
		var asked [6]cronjob.Run
		testkit.Together(len(asked), func(i int) { asked[i] = db.mustRequest(t, "key_1") })
		for _, run := range asked {
			if !reflect.DeepEqual(run, asked[0]) {
				t.Errorf("asked for %+v and %+v", asked[0], run)
			}
		}
		db.mustBeAbout(t, "the slot", micros(asked[0].Slot), 0)
		want := runRow{Job: report, Slot: micros(asked[0].Slot), Status: cronjob.Queued, RequestedBy: "key_1"}
		if job, row := db.only(t); row != want || job.Slot != nil || db.count(t, "job_runs") != 1 {
			t.Errorf("stored %+v, want %+v; the job is %+v", row, want, job)
		}
		run := db.mustBegin(t, "a/1", someSlot(1))
		if !run.Slot.Equal(asked[0].Slot) || run.RequestedBy != "key_1" || run.Attempt != 1 {
			t.Errorf("begun was %+v", run)
		}
		if job, _ := db.only(t); job.Slot != nil || job.Fence != run.Fence {
			t.Errorf("of the job is remembered %+v", job)
		}
		// While it runs, a request queues another one; and it is taken over like any run.
		next := db.mustRequest(t, "")
		if next.Slot.Equal(run.Slot) || next.Status != cronjob.Queued {
			t.Errorf("asked for %+v while %+v is under way", next, run)
		}
		must(t, db.InterruptRun(t.Context(), report, "a/1"))
		for _, want := range []cronjob.Run{run, next} {
			got := db.mustBegin(t, "b/2", someSlot(1))
			if !got.Slot.Equal(want.Slot) {
				t.Errorf("begun was %+v, want %+v", got, want)
			}
			db.mustEnd(t, got, cronjob.Succeeded)
		}
		db.mustBeginFirst(t, "c/3", someSlot(1))
		mustBeError(t, "an unknown job", errorOf(db.RequestRun(t.Context(), "unknown", "key_1")), cronjob.ErrNotFound)
	}))
}

// A run that is requested at the exact time of a slot is the slot's run; the later slots are due as usual.
func TestRunRequestedAtASlot(t *testing.T) {
	each(t, withJob(func(t *testing.T, db *database) {
		slot := db.mustRequest(t, "key_1").Slot
		run := db.mustBegin(t, "a/1", slot)
		if run.RequestedBy == "" {
			t.Errorf("begun was %+v", run)
		}
		db.mustEnd(t, run, cronjob.Succeeded)
		mustBeError(t, "the slot again", errorOf(db.begin(t, "a/2", slot)), cronjob.ErrNotDue)
		if job, row := db.only(t); job.Slot == nil || *job.Slot != micros(slot) || row.Attempt != 1 || row.Status != cronjob.Succeeded {
			t.Errorf("remembered %+v and %+v", job, row)
		}
		db.mustBeginFirst(t, "a/3", slot.Add(time.Second))
	}))
}

// A job is blocked from the first report until it begins again.
func TestBlockJob(t *testing.T) {
	each(t, withJob(func(t *testing.T, db *database) {
		if b := db.mustState(t).Blocked; b != nil {
			t.Errorf("blocked: %+v", b)
		}
		block := func(by, reason string) cronjob.BlockReport {
			t.Helper()
			must(t, db.BlockJob(t.Context(), report, by, reason))
			b := db.mustState(t).Blocked
			if b == nil || b.By != by || b.Reason != reason {
				t.Fatalf("blocked: %+v", b)
			}
			return *b
		}
		first := block("a", "no answer")
		db.mustBeAbout(t, "since", micros(first.Since), 0)
		if second := block("b", "refused"); !second.Since.Equal(first.Since) {
			t.Errorf("blocked since %v, then since %v", first.Since, second.Since)
		}
		db.mustEnd(t, db.mustBegin(t, "a/1", someSlot(1)), cronjob.Failed)
		if b := db.mustState(t).Blocked; b != nil {
			t.Errorf("it has begun, and is blocked: %+v", b)
		}
		if third := block("c", "again"); !third.Since.After(first.Since) {
			t.Errorf("blocked since %v, after %v", third.Since, first.Since)
		}
	}))
}

func TestLongTextsAreCut(t *testing.T) {
	each(t, withJob(func(t *testing.T, db *database) {
		long := strings.Repeat("정", 3000) + "\xff"
		must(t, db.BlockJob(t.Context(), report, "a", long))
		if b := db.mustState(t).Blocked; utf8.RuneCountInString(b.Reason) != maxResult || !strings.HasPrefix(long, b.Reason) {
			t.Errorf("blocked: %q", b.Reason)
		}
		for i, end := range []func(cronjob.Run) error{
			db.ending(t, cronjob.Outcome{Status: cronjob.Failed, Result: long, Error: long}),
			db.ending(t, cronjob.Outcome{Status: cronjob.Failed, Result: "\xff\x00", Error: "a\xffb"}),
			func(run cronjob.Run) error {
				return db.ConcludeRun(t.Context(), run, long, func(context.Context, Execer) error { return nil })
			},
		} {
			must(t, end(db.mustBegin(t, "a/1", someSlot(i))))
			_, row := db.only(t)
			if n := utf8.RuneCountInString(row.Result); i != 1 && n != maxResult || !utf8.ValidString(row.Result) {
				t.Errorf("%d: the result has %d letters", i, n)
			}
			if n := utf8.RuneCountInString(row.Error); i == 0 && n != maxError || i == 1 && row.Error != "a\ufffdb" {
				t.Errorf("%d: the error is %q", i, row.Error)
			}
		}
	}))
}

func TestRunsAndTheLast(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.known(t, report, "other")
		if last, err := db.LastRun(t.Context(), report); last != nil || err != nil {
			t.Errorf("the last of none is %+v: %v", last, err)
		}
		const total = 7
		for i := range total {
			run := db.mustBegin(t, "a/1", someSlot(i))
			if last, err := db.LastRun(t.Context(), report); err != nil || (last == nil) != (i == 0) || last != nil && !last.Slot.Equal(someSlot(i-1)) {
				t.Errorf("the last before %v is %+v: %v", run.Slot, last, err)
			}
			if i < total-1 {
				db.mustEnd(t, run, cronjob.Succeeded)
			}
		}
		must(t, errorOf(db.BeginRun(t.Context(), "other", "a/1", term, at(someSlot(3)))))
		for _, limit := range []int{1, 2, total, total + 1} {
			var slots []int
			for _, run := range all(t, limit, func(p dispatch.Page) ([]cronjob.Run, string, error) { return db.Runs(t.Context(), report, p) }) {
				slots = append(slots, run.Slot.Second())
			}
			if want := []int{6, 5, 4, 3, 2, 1, 0}; !slices.Equal(slots, want) {
				t.Errorf("by %d: %v", limit, slots)
			}
		}
		for _, want := range []cronjob.Status{cronjob.Running, cronjob.Interrupted} {
			runs, _, err := db.Runs(t.Context(), report, dispatch.Page{Limit: 1})
			if err != nil || runs[0].Status != want {
				t.Errorf("%+v: %v, want it to be %s", runs, err, want)
			}
			db.die(t)
		}
		for _, cursor := range []string{"x", "1.5", "9223372036854775808", "1; DROP TABLE jobs"} {
			mustBeError(t, cursor, errorOfPage(db.Runs(t.Context(), report, dispatch.Page{Limit: 1, Cursor: cursor})), dispatch.ErrBadCursor)
		}
		if runs, next, err := db.Runs(t.Context(), "unknown", dispatch.Page{Limit: 1}); len(runs) != 0 || next != "" || err != nil {
			t.Errorf("of an unknown job: %+v, %q, %v", runs, next, err)
		}
	})
}

func TestJobStates(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.known(t, report, "other", "third")
		for i, status := range []cronjob.Status{cronjob.Succeeded, cronjob.Failed} {
			db.mustEnd(t, db.mustBegin(t, "a/1", someSlot(i)), status)
		}
		run, asked := db.mustBegin(t, "a/1", someSlot(2)), db.mustRequest(t, "key_1")
		states, now, err := db.JobStates(t.Context(), []string{report, "other", "unknown"})
		if err != nil || len(states) != 2 {
			t.Fatalf("%+v: %v", states, err)
		}
		db.mustBeAbout(t, "now", micros(now), 0)
		if other := states["other"]; other.Name != "other" || other.Slot != nil || other.EndedAt != nil || other.SucceededAt != nil || other.Unfinished != nil {
			t.Errorf("of one that has not begun: %+v", other)
		}
		job := db.ledger(t).Jobs[1]
		want := cronjob.JobState{
			Name: report, RegisteredAt: fromMicros(job.RegisteredAt), Slot: new(someSlot(2)), EndedAt: fromOptionalMicros(job.EndedAt),
			SucceededAt: fromOptionalMicros(job.SucceededAt), Unfinished: []cronjob.Run{run, asked},
		}
		if got := states[report]; !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		if want.EndedAt == nil || want.SucceededAt == nil || !want.SucceededAt.Before(*want.EndedAt) {
			t.Errorf("succeeded at %v, ended at %v", want.SucceededAt, want.EndedAt)
		}
		if states, _, err := db.JobStates(t.Context(), nil); len(states) != 0 || err != nil {
			t.Errorf("of no job: %+v, %v", states, err)
		}
	})
}
