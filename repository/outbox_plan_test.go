package repository

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/testkit"
)

// statements calls fn and returns the statements that it ran on the pools.
func statements(t testing.TB, pools []*gorm.DB, fn func()) (all []string) {
	t.Helper()
	note := func(tx *gorm.DB) {
		all = append(all, tx.Explain(tx.Statement.SQL.String(), tx.Statement.Vars...))
	}
	each := func(change func(c *gorm.DB) []error) {
		t.Helper()
		for _, pool := range pools {
			must(t, errors.Join(change(pool)...))
		}
	}
	each(func(db *gorm.DB) []error {
		c := db.Callback()
		return []error{
			c.Raw().Register("note", note), c.Row().Register("note", note), c.Query().Register("note", note),
			c.Create().Register("note", note), c.Update().Register("note", note),
		}
	})
	fn()
	each(func(db *gorm.DB) []error {
		c := db.Callback()
		return []error{
			c.Raw().Remove("note"), c.Row().Remove("note"), c.Query().Remove("note"), c.Create().Remove("note"), c.Update().Remove("note"),
		}
	})
	return all
}

// backlog is how many rows are due, and as many done: 100,000 of each make the same plans.
var backlog = testkit.Scale(2000, 10_000)

// backlogged fills both tables with what is due and what is done, a notification of each for dispatch d first.
func (db *database) backlogged(t *testing.T, d dispatch.Dispatch, n int) {
	t.Helper()
	const first = 500
	db.notifications(t, d, first, toDevices(db.equipped(t, first)))
	db.manyEvents(t, first)
	another := func(prefix, column string, i int) string {
		return fmt.Sprintf("CONCAT('%s', LEFT(SHA2(CONCAT(%s, '%d'), 256), 26))", prefix, column, i)
	}
	for have := first; have < 2*n; have *= 2 {
		copies := min(have, 2*n-have)
		event := another("evt_", "event_id", have)
		db.exec(t, fmt.Sprintf(`INSERT INTO notifications (id, event_id, device_id, topic, driver_id, dispatch_id, round, type,
			silent, state, next_at, claim, attempts, result, reason, at, expires_at, created_at)
			SELECT %s, %s, device_id, topic, driver_id, %s, round, type, silent, state, next_at, claim, attempts, result, reason,
			at, expires_at, created_at FROM notifications LIMIT %d`,
			another("ntf_", "id", have), event, another("dsp_", "dispatch_id", have), copies))
		db.exec(t, fmt.Sprintf(`INSERT INTO outbox (event_id, state, next_at, claim)
			SELECT %s, state, next_at, claim FROM outbox LIMIT %d`, event, copies))
	}
	db.exec(t, fmt.Sprintf("UPDATE notifications SET state = 1 ORDER BY RAND() LIMIT %d", n))
	db.exec(t, fmt.Sprintf("UPDATE outbox SET state = 1 ORDER BY RAND() LIMIT %d", n))
	db.exec(t, "ANALYZE TABLE notifications, outbox")
}

// explain returns how the server would find the rows of a statement, one line for each table.
func (db *database) explain(t *testing.T, statement string) (plans []map[string]string) {
	t.Helper()
	var version string
	must(t, db.raw.QueryRowContext(t.Context(), "SELECT VERSION()").Scan(&version))
	form := " FORMAT=TRADITIONAL"
	if strings.Contains(version, "MariaDB") {
		form = ""
	}
	rows, err := db.raw.QueryContext(t.Context(), "EXPLAIN"+form+" "+statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	must(t, err)
	for rows.Next() {
		values, into := make([]*string, len(columns)), make([]any, len(columns))
		for i := range into {
			into[i] = &values[i]
		}
		must(t, rows.Scan(into...))
		plan := map[string]string{}
		for i, c := range columns {
			plan[strings.ToLower(c)] = stringOrEmpty(values[i])
		}
		plans = append(plans, plan)
	}
	must(t, rows.Err())
	return plans
}

// work does everything that a relay does with the outbox, and returns the statements.
func (db *database) work(t *testing.T, d dispatch.Dispatch, driver dispatch.DriverID) []string {
	t.Helper()
	o := db.as("ins_a")
	return statements(t, []*gorm.DB{o.relay}, func() {
		_, err := o.LeaseEvents(t.Context(), 32)
		must(t, err)
		pushes, _, err := o.LeaseNotifications(t.Context(), 256)
		must(t, err)
		settled := make([]outbox.SendResult, len(pushes))
		for i, p := range pushes {
			settled[i] = outbox.SendResult{ID: p.ID, Status: outbox.Sent}
		}
		must(t, o.RecordResults(t.Context(), settled))
		db.mustAccept(t, d.ID, driver)
		told := o.mustExpand(t, db, dispatch.EventAccepted, 10)
		if told.Dropped == 0 || told.Unleased == 0 {
			t.Errorf("%d dropped, %d left", told.Dropped, told.Unleased)
		}
	})
}

// Leases, results and drops find their rows by an index, in its order, however many rows are due or done.
func TestPlans(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		db.device(t, v.ID, nil)
		db.backlogged(t, d, backlog)
		wants := []struct{ statement, key string }{
			{`SELECT .*FROM outbox WHERE state = 0`, "ix_outbox_due"},
			{`SELECT id FROM notifications WHERE state = 0`, "ix_notifications_due"},
			{`SELECT .*FROM notifications n\s+LEFT JOIN`, "PRIMARY"},
			{`SELECT id FROM notifications WHERE dispatch_id`, "ix_notifications_dispatch|ix_notifications_driver"},
			{`SELECT .*FROM notifications n\s+JOIN`, "ix_notifications_dispatch|ix_notifications_driver"},
			{`UPDATE outbox`, "PRIMARY"},
			{`UPDATE notifications`, "PRIMARY"},
		}
		seen := make([]int, len(wants))
		for _, s := range db.work(t, d, v.ID) {
			for i, want := range wants {
				if !regexp.MustCompile(`(?s)\A\s*` + want.statement).MatchString(s) {
					continue
				}
				seen[i]++
				plan := db.explain(t, s)[0]
				if plan["type"] != "range" && plan["type"] != "ref" || !slices.Contains(strings.Split(want.key, "|"), plan["key"]) || i < 2 && strings.Contains(plan["extra"], "filesort") {
					t.Errorf("%.160s...\n%v", s, plan)
				}
			}
		}
		for i, want := range wants {
			if seen[i] == 0 {
				t.Errorf("no statement %s", want.statement)
			}
		}
	})
}

// The next due rows of each lane are found by the index, in its order, however many are due.
func TestPlansOfLanes(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		db.backlogged(t, d, backlog)
		for l := range outbox.Lane(outbox.LaneCount) {
			if from, before := laneRange(l); before > 0 {
				db.exec(t, fmt.Sprintf("UPDATE notifications SET next_at = %d + MOD(CRC32(id), 1000) WHERE state = 0 AND MOD(CRC32(id), 4) = %d", from, l))
			}
		}
		db.exec(t, "UPDATE outbox SET state = 0 WHERE event_id IN (SELECT id FROM events)")
		db.exec(t, "ANALYZE TABLE notifications")
		o := db.as("ins_a")
		wants := []string{
			`SELECT EXISTS .*FROM notifications`, `\(SELECT id FROM notifications .*UNION ALL`, `SELECT e\.\*.*FROM notifications`,
			`SELECT COUNT\(\*\) due`,
		}
		seen := make([]int, len(wants))
		for _, s := range statements(t, []*gorm.DB{o.relay}, func() {
			if ids, err := o.leaseShares(t.Context(), 256); err != nil || len(ids) != 256 {
				t.Fatalf("%d leased, %v", len(ids), err)
			}
			o.mustExpand(t, db, dispatch.EventCreated, 10)
			if _, _, err := o.Backlog(t.Context()); err != nil {
				t.Fatal(err)
			}
		}) {
			for i, want := range wants {
				if !regexp.MustCompile(`(?s)\A\s*` + want).MatchString(s) {
					continue
				}
				seen[i]++
				for _, plan := range db.explain(t, s) {
					if plan["table"] != "notifications" && plan["table"] != "n" {
						continue
					}
					keys := []string{"ix_notifications_due", "uq_notifications_event"}
					if plan["type"] != "range" && plan["type"] != "ref" || !slices.Contains(keys, plan["key"]) || strings.Contains(plan["extra"], "filesort") {
						t.Errorf("%.160s...\n%v", s, plan)
					}
				}
			}
		}
		for i, want := range wants {
			if seen[i] == 0 {
				t.Errorf("no statement %s", want)
			}
		}
	})
}
