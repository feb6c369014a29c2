package repository_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/dispatch/outbox"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/retention"
)

const aPage = 4

// pages reads a page of each list, and returns the cursor of the next one.
func pages(db *Bench, z Sized) map[string]func(ctx context.Context, p dispatch.Page) (next string, err error) {
	all := map[string]func(context.Context, dispatch.Page) (string, error){
		"offers of a driver": func(ctx context.Context, p dispatch.Page) (string, error) {
			return CursorOf(db.OpenDispatchesFor(ctx, z.Driver, p))
		},
		"taps": func(ctx context.Context, p dispatch.Page) (string, error) {
			return CursorOf(db.Attempts(ctx, z.Busy, 0, p))
		},
		"taps of a round": func(ctx context.Context, p dispatch.Page) (string, error) {
			return CursorOf(db.Attempts(ctx, z.Busy, 1, p))
		},
		"offers of a dispatch": func(ctx context.Context, p dispatch.Page) (string, error) {
			return CursorOf(db.Offers.Offers(ctx, z.Busy, 0, p))
		},
		"offers of a round": func(ctx context.Context, p dispatch.Page) (string, error) {
			return CursorOf(db.Offers.Offers(ctx, z.Busy, 1, p))
		},
		"notifications": func(ctx context.Context, p dispatch.Page) (string, error) {
			return CursorOf(db.Notifications.Notifications(ctx, z.Busy, p))
		},
		"all notifications": func(ctx context.Context, p dispatch.Page) (string, error) {
			return CursorOf(db.NotificationsBy(ctx, "", p))
		},
		"sent notifications": func(ctx context.Context, p dispatch.Page) (string, error) {
			return CursorOf(db.NotificationsBy(ctx, outbox.Sent, p))
		},
		"drivers": func(ctx context.Context, p dispatch.Page) (string, error) {
			return CursorOf(db.Drivers.Drivers(ctx, dispatch.DriverQuery{Page: p}))
		},
		"events": func(ctx context.Context, p dispatch.Page) (string, error) { return CursorOf(db.Events(ctx, z.Busy, p)) },
		"the audit of a target": func(ctx context.Context, p dispatch.Page) (string, error) {
			return CursorOf(db.Audit(ctx, dispatch.AuditQuery{Target: "drv_7", Page: p}))
		},
		"the audit of an actor": func(ctx context.Context, p dispatch.Page) (string, error) {
			return CursorOf(db.Audit(ctx, dispatch.AuditQuery{Actor: "key_7", Page: p}))
		},
	}
	for _, status := range []dispatch.Status{
		"", dispatch.Scheduled, dispatch.Pending, dispatch.Accepted, dispatch.InProgress, dispatch.Completed, dispatch.Canceled, dispatch.Expired,
	} {
		for name, q := range map[string]dispatch.Query{
			"dispatches": {}, "a region's dispatches": {Region: "seoul"}, "a driver's dispatches": {Driver: z.Driver.ID},
		} {
			if q.Status = status; q.Driver != "" && status != "" && status != dispatch.Completed {
				continue
			}
			all[fmt.Sprintf("%s %s", name, status)] = func(ctx context.Context, p dispatch.Page) (string, error) {
				q.Page = p
				return CursorOf(db.Dispatches.List(ctx, q))
			}
		}
	}
	return all
}

// A page costs the same wherever it is, and a count reads the counted rows only, however much there is besides.
func TestPagesCostTheSame(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		z := db.Size(t)
		db.Exec(t, "INSERT INTO audit (id, at, actor, request_id, action, target, detail) SELECT CONCAT('aud_', LPAD(n, 26, '0')), n, CONCAT('key_', n MOD 10), '', 'x', CONCAT('drv_', n MOD 9), '{}' FROM "+
			Numbers(Listed)+" ORDER BY n")
		db.Exec(t, "UPDATE drivers SET token_generation = 1, tokens_revoked_at = 1 WHERE id = ?", z.Driver.ID)
		db.Exec(t, "ANALYZE TABLE audit, drivers")
		crowd := int(math.Pow10(Crowd))
		counted := 5 * (int(math.Pow10(Listed))/5 + 1000)
		all := map[string]Reading{
			"the board":           {Do: func() error { return ErrorOf(db.Board.Board(t.Context(), "")) }, Most: counted},
			"the board, a region": {Do: func() error { return ErrorOf(db.Board.Board(t.Context(), "seoul")) }, Most: counted},
			"the supply":          {Do: func() error { return ErrorOf(db.Supply(t.Context(), "", 24)) }, Most: 10},
			"an offer":            {Do: func() error { return ErrorOf(db.OfferTo(t.Context(), z.Busy, z.Driver.ID)) }, Most: 60},
			"a driver's signals":  {Do: func() error { return ErrorOf(db.TapStatistics(t.Context(), z.Driver.ID)) }, Most: 400},
			"the revocations":     {Do: func() error { return ErrorOf(db.Revocations(t.Context())) }, Most: 10},
			"a driver's standing": {Do: func() error { return ErrorOf(db.RaceStanding(t.Context(), z.Busy, 1, z.Driver.ID, "drv_x")) }, Most: crowd * 8 / 10},
			"the ranks of a round": {Do: func() error {
				return ErrorOf(CursorOf(db.Attempts(t.Context(), z.Busy, 1, dispatch.Page{Limit: aPage})))
			}, Most: 2 * crowd},
		}
		for name, read := range pages(db, z) {
			far, err := read(t.Context(), dispatch.Page{Limit: aPage * (FarPage - 1)})
			if err != nil || far == "" {
				t.Fatalf("%s: there is no page %d: %v", name, FarPage, err)
			}
			most := 15 * aPage
			switch {
			case strings.HasPrefix(name, "taps"):
				most = 2 * crowd // ranks compare all taps of the round
			case strings.HasPrefix(name, "offers"):
				most = 50 * aPage // each has rows of several tables
			case strings.HasSuffix(name, "EXPIRED"):
				most += 2 * int(math.Pow10(Listed)) / 2000 // one in 2000 has ended and is still stored as PENDING
			}
			for page, cursor := range map[string]string{"first": "", "far": far} {
				all[name+", the "+page+" page"] = Reading{Do: func() error {
					next, err := read(t.Context(), dispatch.Page{Limit: aPage, Cursor: cursor})
					if next == "" {
						t.Errorf("%s: the %s page is the last", name, page)
					}
					return err
				}, Most: most}
			}
		}
		db.MustReadFew(t, all)
	})
}

// Due dispatches are found by an index, in its order, and few other rows are read, however many dispatches exist.
func TestPlansOfDueDispatches(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		const limit, due = 20, 160
		db.Elsewhere(t, testkit.Scale(2000, 5000))
		all := map[string]Reading{}
		for _, c := range Clockworks {
			c.Ready(t, db, due)
			all[c.Name] = Reading{Do: func() error { return c.Change(t.Context(), db.Store, limit, limit) }, Each: 15 * limit}
		}
		if !db.SQLite() {
			db.Exec(t, "ANALYZE TABLE dispatches, events")
		}
		db.MustReadFew(t, all)
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

// What has expired is found by an index in its order, and what is about a dispatch by the dispatch, however much else there is.
func TestPlansOfPrune(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		db = db.Keeping(t, retention.Periods{Ended: 365 * Day, Attempts: 90 * Day, Audit: 730 * Day})
		v, now := db.Fleet(t, 1)[0].ID, db.Now(t)
		db.Fill(t, 6)
		n := testkit.Scale(1000, 3000)
		young(db, t, n)
		db.Elsewhere(t, n)
		for range 30 {
			db.Past(t, dispatch.Completed, now, v, 30)
		}
		db.Exec(t, "ANALYZE TABLE dispatches, audit, "+strings.Join(HistoryTables, ", "))
		db.Aged(t, 2, "old", func(kept time.Duration) time.Time { return now.Add(-time.Hour - kept) })
		db.Past(t, dispatch.Completed, now.Add(-400*Day), v, 5)
		db.MustReadFew(t, map[string]Reading{"a night": {Do: func() error { return ErrorOf(db.Prune(t.Context())) }, Each: n / 10}})
	})
}

// everything calls each operation of the ledger.
func everything(db *Bench, t *testing.T) {
	t.Helper()
	ctx := t.Context()
	// Slots are later than those of the old runs, and so is what is asked for.
	for i, end := range []func(cronjob.Run) error{
		db.Ending(t, cronjob.Outcome{Status: cronjob.Succeeded}),
		func(run cronjob.Run) error {
			return db.ConcludeRun(ctx, run, "", func(database.Tx) error { return nil })
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
}

// Each operation of the ledger reads a few rows, found by an index, however many runs are stored.
func TestPlansWithALongHistory(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		db.Ran(t)
		db.MustReadFew(t, map[string]Reading{"the ledger": {Do: func() error { everything(db, t); return nil }, Each: 50}})
	})
}
