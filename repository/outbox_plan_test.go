package repository

import (
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

// expanded is the statement as the database gets it.
func expanded(tx *gorm.DB, statement string) string {
	if in, ok := tx.Statement.ConnPool.(*textTx); ok {
		return in.text.of(statement)
	}
	return tx.Statement.ConnPool.(*textPool).text.of(statement)
}

// statements calls fn and returns the statements that it ran on the pools.
func statements(t testing.TB, pools []*gorm.DB, fn func()) (all []string) {
	t.Helper()
	note := func(tx *gorm.DB) {
		all = append(all, expanded(tx, tx.Explain(tx.Statement.SQL.String(), tx.Statement.Vars...)))
	}
	for _, pool := range pools {
		c := pool.Callback()
		for _, kind := range []interface {
			Register(string, func(*gorm.DB)) error
			Remove(string) error
		}{c.Raw(), c.Row(), c.Query(), c.Create(), c.Update()} {
			must(t, kind.Register("note", note))
			defer kind.Remove("note")
		}
	}
	fn()
	return all
}

// backlog is how many rows are due, and as many done: 100,000 of each make the same plans.
var backlog = testkit.Scale(2000, 10_000)

// backlogged fills both tables with what is due and what is done, a notification of each for dispatch d first.
func (db *database) backlogged(t *testing.T, d dispatch.Dispatch, n int) {
	t.Helper()
	const first = 200 // few enough that an index is the better way to them, whatever the server samples
	db.notifications(t, d, first, toDevices(db.equipped(t, first)))
	db.manyEvents(t, first)
	another := func(prefix, column string, i int) string {
		return fmt.Sprintf("CONCAT('%s', LEFT(SHA2(CONCAT(%s, '%d'), 256), 26))", prefix, column, i)
	}
	for have := first; have < 2*n; have *= 2 {
		copies := min(have, 2*n-have)
		db.exec(t, fmt.Sprintf(`INSERT INTO notifications (id, event_id, device_id, topic, driver_id, dispatch_id, round, type,
			silent, state, priority, due_at, claim, attempts, result, reason, at, expires_at, created_at)
			SELECT %s, %s, device_id, topic, driver_id, %s, round, type, silent, state, priority, due_at, claim, attempts, result,
			reason, at, expires_at, created_at FROM notifications LIMIT %d`,
			another("ntf_", "id", have), another("evt_", "event_id", have), another("dsp_", "dispatch_id", have), copies))
		db.exec(t, fmt.Sprintf(`INSERT INTO events (id, dispatch_id, type, round, actor, reason_code, at, next_at, claim)
			SELECT %s, 'dsp_many', type, round, actor, reason_code, at, next_at, claim FROM events WHERE dispatch_id = 'dsp_many' LIMIT %d`,
			another("evt_", "id", have), copies))
	}
	db.exec(t, fmt.Sprintf("UPDATE notifications SET state = 1, priority = 0 ORDER BY RAND() LIMIT %d", n))
	db.exec(t, fmt.Sprintf("UPDATE events SET next_at = NULL WHERE dispatch_id = 'dsp_many' ORDER BY RAND() LIMIT %d", n))
	db.exec(t, "ANALYZE TABLE notifications, events")
}

// explain returns how the server would find the rows of a statement, one line for each table.
func (db *database) explain(t *testing.T, statement string) (plans []map[string]string) {
	t.Helper()
	db.notOnTiDB(t, "plans of MySQL's form")
	rows, err := db.raw.QueryContext(t.Context(), "EXPLAIN FORMAT=TRADITIONAL "+statement)
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
func (db *database) worked(t *testing.T, d dispatch.Dispatch, driver dispatch.DriverID) []string {
	t.Helper()
	o := db.as("ins_a")
	return statements(t, []*gorm.DB{o.work}, func() {
		o.mustLeaseEvents(t, 32, 32)
		pushes, _, err := o.LeaseNotifications(t.Context(), 256)
		must(t, err)
		o.mustRecord(t, outbox.SendResult{Status: outbox.Sent}, pushIDs(pushes)...)
		db.mustAccept(t, d.ID, driver)
		told := o.mustExpand(t, db, dispatch.EventAccepted, 10)
		if told.Dropped == 0 || told.Unleased == 0 {
			t.Errorf("%d dropped, %d left", told.Dropped, told.Unleased)
		}
	})
}

// mustMatch returns the statements that begin so, and fails the test if there is none.
func mustMatch(t *testing.T, statements []string, beginning string) (matching []string) {
	t.Helper()
	begins := regexp.MustCompile(`(?s)\A\s*` + beginning)
	for _, s := range statements {
		if begins.MatchString(s) {
			matching = append(matching, s)
		}
	}
	if matching == nil {
		t.Errorf("no statement %s", beginning)
	}
	return matching
}

// mustUse fails the test unless the plan is to go along one of the keys, and, if sorted, in its order.
func mustUse(t *testing.T, statement string, plan map[string]string, sorted bool, keys ...string) {
	t.Helper()
	if plan["type"] != "range" && plan["type"] != "ref" || !slices.Contains(keys, plan["key"]) || sorted && strings.Contains(plan["extra"], "filesort") {
		t.Errorf("%.160s...\n%v", statement, plan)
	}
}

// Leases, results and drops find their rows by an index, in its order, however many rows are due or done.
func TestPlans(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		db.device(t, v.ID, nil)
		db.backlogged(t, d, backlog)
		all := db.worked(t, d, v.ID)
		for _, want := range []struct {
			statement string
			sorted    bool
			keys      []string
		}{
			{`SELECT id FROM events FORCE`, true, []string{"ix_events_due"}},
			{`SELECT id FROM notifications FORCE INDEX \(ix_notifications_due\)`, true, []string{"ix_notifications_due"}},
			{`SELECT .*FROM notifications n\s+LEFT JOIN`, false, []string{"PRIMARY"}},
			{`SELECT id FROM notifications FORCE INDEX \(ix_notifications_driver\)\s+WHERE dispatch_id`, false, []string{"ix_notifications_driver"}},
			{`UPDATE events`, false, []string{"PRIMARY"}},
			{`UPDATE notifications`, false, []string{"PRIMARY"}},
		} {
			for _, s := range mustMatch(t, all, want.statement) {
				mustUse(t, s, db.explain(t, s)[0], want.sorted, want.keys...)
			}
		}
		for _, s := range mustMatch(t, all, `SELECT c\.driver_id`) {
			for _, plan := range db.explain(t, s) {
				few := strings.HasPrefix(plan["table"], "<") || plan["table"] == "v" // the drivers are few here
				if !few && (plan["key"] == "" || plan["type"] == "index") {
					t.Errorf("%.160s...\n%v", s, plan)
				}
			}
		}
		o := db.as("ins_a")
		ends := statements(t, []*gorm.DB{o.work}, func() {
			must(t, o.ReleaseEvents(t.Context()))
		})
		for _, s := range mustMatch(t, ends, `UPDATE events SET claim = ''`) {
			mustUse(t, s, db.explain(t, s)[0], false, "ix_events_due")
		}
	})
}

// Writes of leases, results and drops lock no row but their own, also where these are half of a table.
func TestPlansOfASmallTable(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		devices := toDevices(db.equipped(t, 400))
		db.notifications(t, d, 400, devices)
		db.manyEvents(t, 64)
		o := db.as("ins_a")
		all := statements(t, []*gorm.DB{o.work}, func() {
			o.mustLeaseEvents(t, 32, 32)
			for range 2 {
				pushes, _, err := o.LeaseNotifications(t.Context(), 150)
				must(t, err)
				o.mustRecord(t, outbox.SendResult{Status: outbox.Sent}, pushIDs(pushes)...)
				read := make([]dispatch.Device, len(pushes))
				for i := range pushes {
					read[i] = pushes[i].Device
				}
				must(t, db.MarkDevicesSuspect(t.Context(), read))
			}
			db.mustAccept(t, d.ID, v.ID)
			if e := o.mustExpand(t, db, dispatch.EventAccepted, 10); e.Dropped != 100 {
				t.Errorf("%d dropped", e.Dropped)
			}
		})
		for _, table := range []string{"events", "notifications", "devices"} {
			for _, s := range mustMatch(t, all, "UPDATE "+table) {
				mustUse(t, s, db.explain(t, s)[0], false, "PRIMARY")
			}
		}
	})
}

// The next due rows of each priority are found by the index, in its order, however many are due.
func TestPlansOfPriorities(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		db.backlogged(t, d, backlog)
		db.exec(t, "UPDATE notifications SET due_at = due_at - MOD(CRC32(id), 1000), priority = 1 + MOD(CRC32(id), 3) WHERE state = 0")
		db.exec(t, "UPDATE events SET next_at = 0 WHERE dispatch_id <> 'dsp_many'")
		db.exec(t, "ANALYZE TABLE notifications")
		o := db.as("ins_a")
		all := statements(t, []*gorm.DB{o.work}, func() {
			if ids, err := o.dueNotifications(o.work, 256); err != nil || len(ids) != 256 {
				t.Fatalf("%d are due, %v", len(ids), err)
			}
			o.mustExpand(t, db, dispatch.EventCreated, 10)
			_, _, err := o.Backlog(t.Context())
			must(t, err)
		})
		for _, want := range []string{
			`SELECT id FROM notifications FORCE`, `(?s)SELECT d\.\*.* event_at,.*FROM notifications`,
			`SELECT COUNT\(\*\) due`,
		} {
			for _, s := range mustMatch(t, all, want) {
				for _, plan := range db.explain(t, s) {
					if plan["table"] == "notifications" || plan["table"] == "n" {
						mustUse(t, s, plan, true, "ix_notifications_due", "uq_notifications_event")
					}
				}
			}
		}
	})
}
