package repository

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"gorm.io/gorm"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/testkit"
)

// oldRuns is how many runs there are that have ended, of two jobs.
var oldRuns = testkit.Scale(10_000, 100_000)

// ran fills the ledger with runs of the job and of another that have ended, every seventh of them in vain.
func (db *database) ran(t *testing.T) {
	t.Helper()
	db.known(t, report, "other")
	db.exec(t, `INSERT INTO job_runs (job, slot, status, attempt, owner, fence, requested_by, began_at, ended_at, result, error, skipped)
		VALUES ('report', 1000000, 'SUCCEEDED', 1, 'a/1', 1, '', 1000000, 1000001, '', '', 2), ('other', 1000000, 'SUCCEEDED', 1, 'a/1', 1, '', 1000000, 1000001, '', '', 2)`)
	n := oldRuns
	if db.dialect.forUpdate == "" {
		n = 1000 // SQLite's plans don't depend on it
	}
	for have := 1; 2*have < n; have *= 2 {
		db.exec(t, `INSERT INTO job_runs (job, slot, status, attempt, owner, fence, requested_by, began_at, ended_at, result, error, skipped)
			SELECT job, slot + ? * 1000000, CASE WHEN (slot / 1000000 + ?) % 7 = 0 THEN 'FAILED' ELSE 'SUCCEEDED' END, attempt, owner, fence,
			requested_by, began_at, ended_at, result, error, skipped FROM job_runs`, have, have)
	}
	analyze := "ANALYZE TABLE jobs, job_runs"
	if db.dialect.forUpdate == "" {
		analyze = "ANALYZE"
	}
	db.exec(t, analyze)
}

// everything calls each operation of the ledger, and returns the statements.
func (db *database) everything(t *testing.T) []string {
	t.Helper()
	ctx := t.Context()
	return statements(t, []*gorm.DB{db.writes, db.general}, func() {
		// Slots are later than those of the old runs, and so is what is asked for.
		for i, end := range []func(cronjob.Run) error{
			db.ending(t, cronjob.Outcome{Status: cronjob.Succeeded}),
			func(run cronjob.Run) error {
				return db.ConcludeRun(ctx, run, "", func(context.Context, Execer) error { return nil })
			},
			func(run cronjob.Run) error { return db.InterruptRun(ctx, report, run.Owner) },
			db.ending(t, cronjob.Outcome{Status: cronjob.Failed}),
		} {
			run := db.mustBegin(t, "b/2", someSlot(i))
			must(t, db.RenewRun(ctx, run, term))
			_, err := db.CountSkippedRun(ctx, report, run.Slot)
			must(t, errors.Join(err, end(run)))
		}
		db.mustRequest(t, "key_1")
		db.mustBegin(t, "c/3", someSlot(9))
		must(t, db.BlockJob(ctx, report, "a", "no"))
		db.mustState(t)
		if last, err := db.LastRun(ctx, report); err != nil || last == nil {
			t.Errorf("%v, %v", last, err)
		}
		for _, cursor := range []string{"", cursor(runList, 40000000000, report)} {
			if runs, next, err := db.Runs(ctx, report, dispatch.Page{Limit: 20, Cursor: cursor}); err != nil || len(runs) != 20 || next == "" {
				t.Errorf("%d runs: %v", len(runs), err)
			}
		}
	})
}

var readsRows = regexp.MustCompile(`(?s)\A\s*(SELECT .* FROM|UPDATE)\b`)

// Each operation of the ledger reads a few rows, found by an index, however many runs are stored.
func TestPlansWithALongHistory(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.ran(t)
		seen := map[string]int{}
		for _, s := range db.everything(t) {
			if !readsRows.MatchString(s) {
				continue // reads the clock, or inserts
			}
			seen[strings.Fields(s)[0]]++
			if db.dialect.forUpdate == "" {
				db.mustSearch(t, s)
			} else if n := db.rowsRead(t, s); n > 50 {
				t.Errorf("%d rows are read for %s", n, s)
			}
		}
		if seen["SELECT"] < 10 || seen["UPDATE"] < 15 {
			t.Errorf("too few statements were looked at: %v", seen)
		}
	})
}

// mustSearch fails the test if SQLite reads all runs of a job for a statement.
func (db *database) mustSearch(t *testing.T, statement string) {
	t.Helper()
	for _, step := range db.plan(t, statement) {
		if strings.HasPrefix(step, "SCAN job_runs") || strings.HasSuffix(step, "(job=?)") && !strings.Contains(statement, "LIMIT") {
			t.Errorf("%s: %s", statement, step)
		}
	}
}
