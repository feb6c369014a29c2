package pushes_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

// work does everything that a relay does with the outbox, and returns the statements.
func worked(db *Bench, t *testing.T, d dispatch.Dispatch, driver dispatch.DriverID) []string {
	t.Helper()
	o := db.As("ins_a")
	return Statements(t, []database.Tx{db.Work.With(t.Context())}, func() {
		o.MustLeaseEvents(t, 32, 32)
		pushes, _, err := o.LeaseNotifications(t.Context(), 256)
		Must(t, err)
		o.MustRecord(t, outbox.SendResult{Status: outbox.Sent}, pushIDs(pushes)...)
		db.MustAccept(t, d.ID, driver)
		told := o.MustExpand(t, db, dispatch.EventAccepted, 10)
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
	EachServer(t, func(t *testing.T, db *Bench) {
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		db.Device(t, v.ID, nil)
		db.Backlogged(t, d, Backlog)
		all := worked(db, t, d, v.ID)
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
				mustUse(t, s, db.Explain(t, s)[0], want.sorted, want.keys...)
			}
		}
		for _, s := range mustMatch(t, all, `SELECT c\.driver_id`) {
			for _, plan := range db.Explain(t, s) {
				few := strings.HasPrefix(plan["table"], "<") || plan["table"] == "v" // the drivers are few here
				if !few && (plan["key"] == "" || plan["type"] == "index") {
					t.Errorf("%.160s...\n%v", s, plan)
				}
			}
		}
		o := db.As("ins_a")
		ends := Statements(t, []database.Tx{db.Work.With(t.Context())}, func() {
			Must(t, o.ReleaseEvents(t.Context()))
		})
		for _, s := range mustMatch(t, ends, `UPDATE events SET claim = ''`) {
			mustUse(t, s, db.Explain(t, s)[0], false, "ix_events_due")
		}
	})
}

// Writes of leases, results and drops lock no row but their own, also where these are half of a table.
func TestPlansOfASmallTable(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		devices := ToDevices(db.Equipped(t, 400))
		db.WriteNotifications(t, d, 400, devices)
		db.ManyEvents(t, 64)
		o := db.As("ins_a")
		all := Statements(t, []database.Tx{db.Work.With(t.Context())}, func() {
			o.MustLeaseEvents(t, 32, 32)
			for range 2 {
				pushes, _, err := o.LeaseNotifications(t.Context(), 150)
				Must(t, err)
				o.MustRecord(t, outbox.SendResult{Status: outbox.Sent}, pushIDs(pushes)...)
				read := make([]dispatch.Device, len(pushes))
				for i := range pushes {
					read[i] = pushes[i].Device
				}
				Must(t, ErrorOf(db.RecordVerdict(t.Context(), outbox.Suspected, read)))
			}
			db.MustAccept(t, d.ID, v.ID)
			if e := o.MustExpand(t, db, dispatch.EventAccepted, 10); e.Dropped != 100 {
				t.Errorf("%d dropped", e.Dropped)
			}
		})
		for _, table := range []string{"events", "notifications", "devices"} {
			for _, s := range mustMatch(t, all, "UPDATE "+table) {
				mustUse(t, s, db.Explain(t, s)[0], false, "PRIMARY")
			}
		}
	})
}

// The next due rows of each priority are found by the index, in its order, however many are due.
func TestPlansOfPriorities(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		d := db.Add(t, nil)
		db.Backlogged(t, d, Backlog)
		db.Exec(t, "UPDATE notifications SET due_at = due_at - MOD(CRC32(id), 1000), priority = 1 + MOD(CRC32(id), 3) WHERE state = 0")
		db.Exec(t, "UPDATE events SET next_at = 0 WHERE dispatch_id <> 'dsp_many'")
		db.Exec(t, "ANALYZE TABLE notifications")
		o := db.As("ins_a")
		all := Statements(t, []database.Tx{db.Work.With(t.Context())}, func() {
			if ids, err := o.DueNotifications(db.Work.With(t.Context()), 256); err != nil || len(ids) != 256 {
				t.Fatalf("%d are due, %v", len(ids), err)
			}
			o.MustExpand(t, db, dispatch.EventCreated, 10)
			_, _, err := db.Backlog(t.Context())
			Must(t, err)
		})
		for _, want := range []string{
			`SELECT id FROM notifications FORCE`, `(?s)SELECT d\.\*.* event_at,.*FROM notifications`,
			`SELECT COUNT\(\*\) due`,
		} {
			for _, s := range mustMatch(t, all, want) {
				for _, plan := range db.Explain(t, s) {
					if plan["table"] == "notifications" || plan["table"] == "n" {
						mustUse(t, s, plan, true, "ix_notifications_due", "uq_notifications_event", "ix_notifications_driver", "ix_notifications_dispatch")
					}
				}
			}
		}
	})
}
