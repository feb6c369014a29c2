package runs_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/runs"
)

func TestRegisterJobs(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		names := []string{Report, "Report", "nightly"}
		testkit.Together(6, func(int) {
			states, now, err := db.JobStates(t.Context(), names)
			if err != nil || len(states) != len(names) {
				t.Errorf("%+v: %v", states, err)
			}
			db.MustBeAbout(t, "now", database.Micros(now), 0)
		})
		before := ledgerOf(db, t)
		if len(before.Jobs) != 3 {
			t.Fatalf("known are %+v", before.Jobs)
		}
		db.Known(t, names...)
		mustBe(db, t, before)
		if _, now, err := db.JobStates(t.Context(), nil); err != nil || now.IsZero() {
			t.Errorf("without a job it is %v: %v", now, err)
		}
		// After a failover, the database may lack the row of a new job.
		db.Exec(t, "DELETE FROM jobs WHERE name = 'nightly'")
		db.Known(t, names...)
		db.MustCount(t, 3, "jobs")
	})
}

// A requested run is one run until it begins, comes before a slot, and uses up no slot.
func TestRequestRun(t *testing.T) {
	Each(t, withJob(func(t *testing.T, db *Bench) {
		var asked [6]cronjob.Run
		testkit.Together(len(asked), func(i int) { asked[i] = db.MustRequest(t, "key_1") })
		for _, run := range asked {
			if !reflect.DeepEqual(run, asked[0]) {
				t.Errorf("asked for %+v and %+v", asked[0], run)
			}
		}
		db.MustBeAbout(t, "the slot", database.Micros(asked[0].Slot), 0)
		want := runs.RunRow{Job: Report, Slot: database.Micros(asked[0].Slot), Status: cronjob.Queued, RequestedBy: "key_1"}
		if job, row := only(db, t); row != want || job.Slot != nil || db.Count(t, "job_runs") != 1 {
			t.Errorf("stored %+v, want %+v; the job is %+v", row, want, job)
		}
		run := db.MustBegin(t, "a/1", SomeSlot(1))
		if !run.Slot.Equal(asked[0].Slot) || run.RequestedBy != "key_1" || run.Attempt != 1 {
			t.Errorf("begun was %+v", run)
		}
		if job, _ := only(db, t); job.Slot != nil || job.Fence != run.Fence {
			t.Errorf("of the job is remembered %+v", job)
		}
		// While it runs, a request queues another one; and it is taken over like any run.
		next := db.MustRequest(t, "")
		if next.Slot.Equal(run.Slot) || next.Status != cronjob.Queued {
			t.Errorf("asked for %+v while %+v is under way", next, run)
		}
		Must(t, db.Interrupt(t, run))
		for _, want := range []cronjob.Run{run, next} {
			got := db.MustBegin(t, "b/2", SomeSlot(1))
			if !got.Slot.Equal(want.Slot) {
				t.Errorf("begun was %+v, want %+v", got, want)
			}
			db.MustEnd(t, got, cronjob.Succeeded)
		}
		mustBeginFirst(db, t, "c/3", SomeSlot(1))
		MustBeError(t, "an unknown job", ErrorOf(db.RequestRun(t.Context(), "unknown", "key_1")), cronjob.ErrNotFound)
	}))
}

// A run that is requested at the exact time of a slot uses up no slot either, and the later slots are due as usual.
func TestRunRequestedAtASlot(t *testing.T) {
	Each(t, withJob(func(t *testing.T, db *Bench) {
		slot := db.MustRequest(t, "key_1").Slot
		run := db.MustBegin(t, "a/1", slot)
		if run.RequestedBy == "" {
			t.Errorf("begun was %+v", run)
		}
		db.MustEnd(t, run, cronjob.Succeeded)
		mustBeginFirst(db, t, "a/2", slot)
		if job, row := only(db, t); job.Slot == nil || *job.Slot != database.Micros(slot) || row.Status != cronjob.Running || row.EndedAt != nil {
			t.Errorf("remembered %+v and %+v", job, row)
		}
		die(db, t)
		db.MustEnd(t, db.MustBegin(t, "b/2", slot), cronjob.Succeeded)
		MustBeError(t, "the slot again", ErrorOf(db.Begin(t, "a/2", slot)), cronjob.ErrNotDue)
		mustBeginFirst(db, t, "a/3", slot.Add(time.Second))
	}))
}

// A job is blocked from the first report until it begins again.
func TestBlockJob(t *testing.T) {
	Each(t, withJob(func(t *testing.T, db *Bench) {
		if b := db.MustState(t).Blocked; b != nil {
			t.Errorf("blocked: %+v", b)
		}
		block := func(by, reason string) cronjob.BlockReport {
			t.Helper()
			Must(t, db.BlockJob(t.Context(), Report, by, reason))
			b := db.MustState(t).Blocked
			if b == nil || b.By != by || b.Reason != reason {
				t.Fatalf("blocked: %+v", b)
			}
			return *b
		}
		first := block("a", "no answer")
		db.MustBeAbout(t, "since", database.Micros(first.Since), 0)
		if second := block("b", "refused"); !second.Since.Equal(first.Since) {
			t.Errorf("blocked since %v, then since %v", first.Since, second.Since)
		}
		db.MustEnd(t, db.MustBegin(t, "a/1", SomeSlot(1)), cronjob.Failed)
		if b := db.MustState(t).Blocked; b != nil {
			t.Errorf("it has begun, and is blocked: %+v", b)
		}
		if third := block("c", "again"); !third.Since.After(first.Since) {
			t.Errorf("blocked since %v, after %v", third.Since, first.Since)
		}
	}))
}

func TestLongTextsAreCut(t *testing.T) {
	Each(t, withJob(func(t *testing.T, db *Bench) {
		long := strings.Repeat("정", 3000) + "\xff"
		Must(t, db.BlockJob(t.Context(), Report, "a", long))
		if b := db.MustState(t).Blocked; utf8.RuneCountInString(b.Reason) != runs.MaxResult || !strings.HasPrefix(long, b.Reason) {
			t.Errorf("blocked: %q", b.Reason)
		}
		for i, end := range []func(cronjob.Run) error{
			db.Ending(t, cronjob.Outcome{Status: cronjob.Failed, Result: long, Error: long}),
			db.Ending(t, cronjob.Outcome{Status: cronjob.Failed, Result: "\xff\x00", Error: "a\xffb"}),
			func(run cronjob.Run) error {
				return db.ConcludeRun(t.Context(), run, long, func(database.Tx) error { return nil })
			},
		} {
			Must(t, end(db.MustBegin(t, "a/1", SomeSlot(i))))
			_, row := only(db, t)
			if n := utf8.RuneCountInString(row.Result); i != 1 && n != runs.MaxResult || !utf8.ValidString(row.Result) {
				t.Errorf("%d: the result has %d letters", i, n)
			}
			if n := utf8.RuneCountInString(row.Error); i == 0 && n != runs.MaxError || i == 1 && row.Error != "a\ufffdb" {
				t.Errorf("%d: the error is %q", i, row.Error)
			}
		}
	}))
}

func TestListOfRuns(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		db.Known(t, Report, "other")
		const total = 7
		for i := range total {
			run := db.MustBegin(t, "a/1", SomeSlot(i))
			if i < total-1 {
				db.MustEnd(t, run, cronjob.Succeeded)
			}
		}
		Must(t, ErrorOf(db.BeginRun(t.Context(), "other", "a/1", Term, At(SomeSlot(3)))))
		for _, limit := range []int{1, 2, total, total + 1} {
			var slots []int
			for _, run := range All(t, limit, func(p dispatch.Page) ([]cronjob.Run, string, error) {
				return db.Runs.Runs(t.Context(), Report, p)
			}) {
				slots = append(slots, run.Slot.Second())
			}
			if want := []int{6, 5, 4, 3, 2, 1, 0}; !slices.Equal(slots, want) {
				t.Errorf("by %d: %v", limit, slots)
			}
		}
		for _, want := range []cronjob.Status{cronjob.Running, cronjob.Interrupted} {
			runs, _, err := db.Runs.Runs(t.Context(), Report, dispatch.Page{Limit: 1})
			if err != nil || runs[0].Status != want {
				t.Errorf("%+v: %v, want it to be %s", runs, err, want)
			}
			die(db, t)
		}
		for _, cursor := range []string{"x", "1.5", "9223372036854775808", "1; DROP TABLE jobs"} {
			MustBeError(t, cursor, ErrorOfPage(db.Runs.Runs(t.Context(), Report, dispatch.Page{Limit: 1, Cursor: cursor})), dispatch.ErrBadCursor)
		}
		if runs, next, err := db.Runs.Runs(t.Context(), "unknown", dispatch.Page{Limit: 1}); len(runs) != 0 || next != "" || err != nil {
			t.Errorf("of an unknown job: %+v, %q, %v", runs, next, err)
		}
	})
}

func TestJobStates(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		db.Known(t, Report, "other", "third")
		for i, status := range []cronjob.Status{cronjob.Succeeded, cronjob.Failed} {
			db.MustEnd(t, db.MustBegin(t, "a/1", SomeSlot(i)), status)
		}
		run, asked := db.MustBegin(t, "a/1", SomeSlot(2)), db.MustRequest(t, "key_1")
		states, now, err := db.JobStates(t.Context(), []string{Report, "other"})
		if err != nil || len(states) != 2 {
			t.Fatalf("%+v: %v", states, err)
		}
		db.MustBeAbout(t, "now", database.Micros(now), 0)
		if other := states["other"]; other.Name != "other" || other.Slot != nil || other.EndedAt != nil || other.SucceededAt != nil || other.Unfinished != nil {
			t.Errorf("of one that has not begun: %+v", other)
		}
		job := ledgerOf(db, t).Jobs[1]
		want := cronjob.JobState{
			Name: Report, RegisteredAt: database.Time(job.RegisteredAt), Slot: new(SomeSlot(2)), EndedAt: database.OptionalTime(job.EndedAt),
			SucceededAt: database.OptionalTime(job.SucceededAt), Unfinished: []cronjob.Run{run, asked},
		}
		if got := states[Report]; !reflect.DeepEqual(got, want) {
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
