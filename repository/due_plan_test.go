package repository

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/testkit"
)

// elsewhere adds n dispatches that are not due: most have ended, and the others are due later.
func (db *database) elsewhere(t testing.TB, n int) {
	t.Helper()
	now := db.now(t)
	rows := make([]dispatchRow, n)
	for i := range rows {
		ago := time.Duration(i) * time.Minute
		d := dispatch.Dispatch{ID: dispatch.NewID(now), Terms: someTerms(now), Round: 1, Version: 1, CreatedAt: now, UpdatedAt: now}
		d.WorkStartsAt, d.WorkEndsAt = now.Add(-ago-time.Hour), now.Add(-ago)
		d.OpensAt, d.ExpiresAt = now.Add(-ago-time.Hour), now.Add(-ago)
		d.Claim = &dispatch.Claim{AcceptedAt: now.Add(-ago - time.Hour)}
		d.Status = []dispatch.Status{dispatch.Expired, dispatch.Canceled, dispatch.Completed}[i%3]
		if i%10 == 0 {
			d.Status = []dispatch.Status{dispatch.Pending, dispatch.Accepted, dispatch.InProgress}[i/10%3]
			d.WorkStartsAt, d.WorkEndsAt, d.ExpiresAt = now.Add(ago+100*time.Hour), now.Add(ago+101*time.Hour), now.Add(ago+time.Hour)
		}
		rows[i] = toDispatchRow(d)
	}
	db.write(t, rows)
}

// Due dispatches are found by an index, in its order, and few other rows are read, however many dispatches exist.
func TestPlansOfDueDispatches(t *testing.T) {
	indexes := map[string]string{
		"ExpireOffers": "ix_dispatches_expiry", "Remind": "ix_dispatches_work", "CloseOverdue": "ix_dispatches_work",
	}
	each(t, func(t *testing.T, db *database) {
		const limit = 20
		db.elsewhere(t, testkit.Scale(2000, 5000))
		for _, c := range clockworks {
			c.ready(t, db, limit+10)
		}
		server := !db.dialect.text.sqlite
		if server {
			db.exec(t, "ANALYZE TABLE dispatches, events")
		}
		for _, c := range clockworks {
			all := statements(t, []*gorm.DB{db.serve, db.serve}, func() { c.mustChange(t, db.Store, limit, limit) })
			if len(all) != 1 {
				t.Fatalf("%s: %q", c.name, all)
			}
			if !server {
				db.mustNotSort(t, all[0])
				continue
			}
			plans := db.explain(t, all[0])
			if p := plans[0]; p["type"] != "range" || p["key"] != indexes[c.name] || strings.Contains(p["extra"], "filesort") {
				t.Errorf("%s:\n%s\n%v", c.name, all[0], p)
			}
			for _, p := range plans[1:] {
				if p["type"] != "ref" || p["key"] != "ix_events_dispatch" {
					t.Errorf("%s:\n%s\n%v", c.name, all[0], p)
				}
			}
			if n := db.rowsRead(t, all[0]); n > 10*(limit+10) {
				t.Errorf("%s: %d rows read", c.name, n)
			}
		}
	})
}

// young adds n rows to each table that is pruned, all too young to be deleted.
func (db *database) young(t *testing.T, n int) {
	t.Helper()
	now := db.now(t)
	us := micros(now.Add(time.Hour))
	fill := func(insert string, row func(i int) string) {
		t.Helper()
		rows := make([]string, n)
		for i := range rows {
			rows[i] = row(i)
		}
		db.exec(t, insert+" VALUES "+strings.Join(rows, ", "))
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
	fill("INSERT INTO taps ("+tapColumns+")", func(int) string {
		return fmt.Sprintf("('%s', 1, 'drv_1', 'SUCCESS', 'att_1', %[2]d, %[2]d, 1, '', '')", dispatch.NewID(now), us)
	})
	fill("INSERT INTO offers (dispatch_id, round, driver_id)", func(int) string { return fmt.Sprintf("('%s', 1, 'drv_1')", dispatch.NewID(now)) })
	fill("INSERT INTO idempotency_keys (caller, name, fingerprint, seed, leased, lease_ends, expires_at)", func(i int) string {
		return fmt.Sprintf("('key_1', 'young %d', '', 'young %d', '', 0, %d)", i, i, us+day.Microseconds()+int64(i))
	})
	db.many(t, n)
	db.exec(t, "UPDATE notifications SET due_at = ? WHERE device_id = 'dev_1'", us)
	db.exec(t, "ANALYZE TABLE events, devices, job_runs, supply, taps, offers, idempotency_keys, notifications")
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
	eachServer(t, func(t *testing.T, db *database) {
		db = db.keeping(t, Retention{Ended: 365 * day, Attempts: 90 * day, Audit: 730 * day})
		v, now := db.drivers(t, 1)[0].ID, db.now(t)
		db.fill(t, 6)
		db.young(t, testkit.Scale(1000, 3000))
		db.elsewhere(t, testkit.Scale(1000, 3000))
		for range 30 {
			db.past(t, dispatch.Completed, now, v, 30)
		}
		db.exec(t, "ANALYZE TABLE dispatches, audit, "+strings.Join(historyTables, ", "))
		db.aged(t, 2, "old", func(kept time.Duration) time.Time { return now.Add(-time.Hour - kept) })
		db.past(t, dispatch.Completed, now.Add(-400*day), v, 5)
		found := map[string]bool{}
		for _, s := range statements(t, []*gorm.DB{db.work}, func() { must(t, errorOf(db.Prune(t.Context()))) }) {
			of := form.FindStringSubmatch(s)
			if of == nil || strings.HasPrefix(of[1], "topic") || strings.HasPrefix(of[1], "webhooks") {
				continue // the clock, and small tables
			}
			ofOne := strings.Contains(s, " WHERE id = '") || strings.Contains(s, "dispatch_id = 'dsp_") || of[1] == "dispatch_words"
			for _, p := range db.explain(t, s) {
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
		for _, table := range historyTables {
			if !found["of a dispatch: "+table] {
				t.Errorf("nothing about a dispatch is read of %s", table)
			}
		}
	})
}

// oldRuns is how many runs there are that have ended, of two jobs.
var oldRuns = testkit.Scale(10_000, 100_000)

// ran fills the ledger with runs of the job and of another that have ended, every seventh of them in vain.
func (db *database) ran(t *testing.T) {
	t.Helper()
	db.known(t, report, "other")
	db.exec(t, `INSERT INTO job_runs (job, slot, status, attempt, owner, fence, requested_by, began_at, ended_at, result, error)
		VALUES ('report', 1000000, 'SUCCEEDED', 1, 'a/1', 1, '', 1000000, 1000001, '', ''), ('other', 1000000, 'SUCCEEDED', 1, 'a/1', 1, '', 1000000, 1000001, '', '')`)
	n := oldRuns
	if db.dialect.text.sqlite {
		n = 1000 // SQLite's plans don't depend on it
	}
	for have := 1; 2*have < n; have *= 2 {
		db.exec(t, `INSERT INTO job_runs (job, slot, status, attempt, owner, fence, requested_by, began_at, ended_at, result, error)
			SELECT job, slot + ? * 1000000, CASE WHEN (slot / 1000000 + ?) % 7 = 0 THEN 'FAILED' ELSE 'SUCCEEDED' END, attempt, owner, fence,
			requested_by, began_at, ended_at, result, error FROM job_runs`, have, have)
	}
	analyze := "ANALYZE TABLE jobs, job_runs"
	if db.dialect.text.sqlite {
		analyze = "ANALYZE"
	}
	db.exec(t, analyze)
}

// everything calls each operation of the ledger, and returns the statements.
func (db *database) everything(t *testing.T) []string {
	t.Helper()
	ctx := t.Context()
	return statements(t, []*gorm.DB{db.decide, db.serve, db.serve}, func() {
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
			must(t, end(run))
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
			if db.dialect.text.sqlite {
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
