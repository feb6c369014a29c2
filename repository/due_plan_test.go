package repository_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/retention"
	"firsttap/repository/runs"
	"firsttap/testkit"
)

// Due dispatches are found by an index, in its order, and few other rows are read, however many dispatches exist.
func TestPlansOfDueDispatches(t *testing.T) {
	indexes := map[string]string{
		"ExpireOffers": "ix_dispatches_expiry", "Remind": "ix_dispatches_work", "CloseOverdue": "ix_dispatches_work",
	}
	Each(t, func(t *testing.T, db *Bench) {
		const limit = 20
		db.Elsewhere(t, testkit.Scale(2000, 5000))
		for _, c := range Clockworks {
			c.Ready(t, db, limit+10)
		}
		server := !db.SQLite()
		if server {
			db.Exec(t, "ANALYZE TABLE dispatches, events")
		}
		for _, c := range Clockworks {
			all := Statements(t, []database.Tx{db.Serve.With(t.Context()), db.Serve.With(t.Context())}, func() { c.MustChange(t, db.Store, limit, limit) })
			if len(all) != 1 {
				t.Fatalf("%s: %q", c.Name, all)
			}
			if !server {
				db.MustNotSort(t, all[0])
				continue
			}
			plans := db.Explain(t, all[0])
			if p := plans[0]; p["type"] != "range" || p["key"] != indexes[c.Name] || strings.Contains(p["extra"], "filesort") {
				t.Errorf("%s:\n%s\n%v", c.Name, all[0], p)
			}
			for _, p := range plans[1:] {
				if p["type"] != "ref" || p["key"] != "ix_events_dispatch" {
					t.Errorf("%s:\n%s\n%v", c.Name, all[0], p)
				}
			}
			if n := db.RowsRead(t, all[0]); n > 10*(limit+10) {
				t.Errorf("%s: %d rows read", c.Name, n)
			}
		}
	})
}

// young adds n rows to each table that is pruned, all too young to be deleted.
func young(db *Bench, t *testing.T, n int) {
	t.Helper()
	now := db.Now(t)
	us := database.Micros(now.Add(time.Hour))
	fill := func(insert string, row func(i int) string) {
		t.Helper()
		rows := make([]string, n)
		for i := range rows {
			rows[i] = row(i)
		}
		db.Exec(t, insert+" VALUES "+strings.Join(rows, ", "))
	}
	fill("INSERT INTO events (id, dispatch_id, type, round, actor, reason_code, at)", func(i int) string {
		return fmt.Sprintf("('evt_y%d', 'dsp_%d', 'dispatch.created', 1, '', '', 0)", i, i/5)
	})
	fill("INSERT INTO devices (id, driver_id, installation_id, platform, push_token, app_version, locale, created_at, updated_at)",
		func(i int) string {
			return fmt.Sprintf("('dev_y%[1]d', 'drv_y%[1]d', 'i', 'ios', 'y%[1]d', '', '', 1, 1)", i)
		})
	fill("INSERT INTO job_runs (job, slot, status, attempt, owner, fence, requested_by, result, error)",
		func(i int) string {
			return fmt.Sprintf("('a job', %d, 'SUCCEEDED', 1, '', 1, '', '', '')", us+int64(i))
		})
	fill("INSERT INTO supply (at, region, on_duty, open)", func(i int) string { return fmt.Sprintf("(%d, 'seoul', 1, 1)", us+int64(i)) })
	fill("INSERT INTO taps ("+TapColumns+")", func(int) string {
		return fmt.Sprintf("('%s', 1, 'drv_1', 'SUCCESS', 'att_1', %[2]d, %[2]d, 1, '', '')", dispatch.NewID(now), us)
	})
	fill("INSERT INTO offers (dispatch_id, round, driver_id)", func(int) string { return fmt.Sprintf("('%s', 1, 'drv_1')", dispatch.NewID(now)) })
	fill("INSERT INTO idempotency_keys (caller, name, fingerprint, seed, leased, lease_ends, expires_at)", func(i int) string {
		return fmt.Sprintf("('key_1', 'young %d', '', 'young %d', '', 0, %d)", i, i, us+Day.Microseconds()+int64(i))
	})
	db.Many(t, n)
	db.Exec(t, "UPDATE notifications SET due_at = ? WHERE device_id = 'dev_1'", us)
	db.Exec(t, "ANALYZE TABLE events, devices, job_runs, supply, taps, offers, idempotency_keys, notifications")
}

// pruneIndexes are by which index Prune finds the rows of a table that have expired.
var pruneIndexes = map[string]string{
	"events": "ix_events_dispatch", "notifications": "ix_notifications_due", "devices": "ix_devices_quarantined",
	"job_runs": "ix_job_runs_slot", "supply": "PRIMARY", "taps": "PRIMARY", "offers": "PRIMARY",
	"idempotency_keys": "ix_idempotency_keys_expiry", "expansions": "PRIMARY", "audit": "PRIMARY",
	"dispatches": "ix_dispatches_updated", "webhook_deliveries": "ix_webhook_deliveries_age",
}

// What has expired is found by an index in its order, and what is about a dispatch by the dispatch, however much else there is.
func TestPlansOfPrune(t *testing.T) {
	form := regexp.MustCompile(`\A(?:SELECT|DELETE|UPDATE).*? FROM (\w+)`)
	EachServer(t, func(t *testing.T, db *Bench) {
		db = db.Keeping(t, retention.Periods{Ended: 365 * Day, Attempts: 90 * Day, Audit: 730 * Day})
		v, now := db.Fleet(t, 1)[0].ID, db.Now(t)
		db.Fill(t, 6)
		young(db, t, testkit.Scale(1000, 3000))
		db.Elsewhere(t, testkit.Scale(1000, 3000))
		for range 30 {
			db.Past(t, dispatch.Completed, now, v, 30)
		}
		db.Exec(t, "ANALYZE TABLE dispatches, audit, "+strings.Join(HistoryTables, ", "))
		db.Aged(t, 2, "old", func(kept time.Duration) time.Time { return now.Add(-time.Hour - kept) })
		db.Past(t, dispatch.Completed, now.Add(-400*Day), v, 5)
		found := map[string]bool{}
		for _, s := range Statements(t, []database.Tx{db.Work.With(t.Context())}, func() { Must(t, ErrorOf(db.Prune(t.Context()))) }) {
			of := form.FindStringSubmatch(s)
			if of == nil || strings.HasPrefix(of[1], "topic") || strings.HasPrefix(of[1], "webhooks") {
				continue // the clock, and small tables
			}
			ofOne := strings.Contains(s, " WHERE id = '") || strings.Contains(s, "dispatch_id = 'dsp_") || of[1] == "dispatch_words"
			for _, p := range db.Explain(t, s) {
				another := !ofOne && p["table"] == of[1] && p["key"] != pruneIndexes[of[1]]
				if another || p["type"] == "ALL" || p["type"] == "index" || strings.Contains(p["extra"], "filesort") {
					t.Errorf("%s\n%v", s, p)
				}
			}
			if found[of[1]] = true; ofOne {
				found["of a dispatch: "+of[1]] = true
			}
		}
		for table := range pruneIndexes {
			if !found[table] {
				t.Errorf("nothing is read of %s", table)
			}
		}
		for _, table := range HistoryTables {
			if !found["of a dispatch: "+table] {
				t.Errorf("nothing about a dispatch is read of %s", table)
			}
		}
	})
}

// everything calls each operation of the ledger, and returns the statements.
func everything(db *Bench, t *testing.T) []string {
	t.Helper()
	ctx := t.Context()
	return Statements(t, []database.Tx{db.Decide.With(t.Context()), db.Serve.With(t.Context()), db.Serve.With(t.Context())}, func() {
		// Slots are later than those of the old runs, and so is what is asked for.
		for i, end := range []func(cronjob.Run) error{
			db.Ending(t, cronjob.Outcome{Status: cronjob.Succeeded}),
			func(run cronjob.Run) error {
				return db.ConcludeRun(ctx, run, "", func(context.Context, runs.Execer) error { return nil })
			},
			func(run cronjob.Run) error { return db.Interrupt(t, run) },
			db.Ending(t, cronjob.Outcome{Status: cronjob.Failed}),
		} {
			run := db.MustBegin(t, "b/2", SomeSlot(i))
			Must(t, db.RenewRun(ctx, run, Term))
			Must(t, end(run))
		}
		db.MustRequest(t, "key_1")
		db.MustBegin(t, "c/3", SomeSlot(9))
		Must(t, db.BlockJob(ctx, Report, "a", "no"))
		db.MustState(t)
		for _, cursor := range []string{"", database.Cursor(database.RunList, 40000000000, Report)} {
			if runs, next, err := db.Runs.Runs(ctx, Report, dispatch.Page{Limit: 20, Cursor: cursor}); err != nil || len(runs) != 20 || next == "" {
				t.Errorf("%d runs: %v", len(runs), err)
			}
		}
	})
}

// Each operation of the ledger reads a few rows, found by an index, however many runs are stored.
func TestPlansWithALongHistory(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		db.Ran(t)
		seen := map[string]int{}
		for _, s := range everything(db, t) {
			if !ReadsRows.MatchString(s) {
				continue // reads the clock, or inserts
			}
			seen[strings.Fields(s)[0]]++
			if db.SQLite() {
				mustSearch(db, t, s)
			} else if n := db.RowsRead(t, s); n > 50 {
				t.Errorf("%d rows are read for %s", n, s)
			}
		}
		if seen["SELECT"] < 10 || seen["UPDATE"] < 15 {
			t.Errorf("too few statements were looked at: %v", seen)
		}
	})
}

// mustSearch fails the test if SQLite reads all runs of a job for a statement.
func mustSearch(db *Bench, t *testing.T, statement string) {
	t.Helper()
	for _, step := range db.Plan(t, statement) {
		if strings.HasPrefix(step, "SCAN job_runs") || strings.HasSuffix(step, "(job=?)") && !strings.Contains(statement, "LIMIT") {
			t.Errorf("%s: %s", statement, step)
		}
	}
}
