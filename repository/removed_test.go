package repository

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/testkit"
	"firsttap/webhook"
)

// keeping is the database with another retention.
func (db *database) keeping(t testing.TB, kept Retention) *database {
	t.Helper()
	return db.by(openWith(t, db.url, Options{Log: quiet, Patience: db.options.Patience, Retention: kept}))
}

// historyTables are the tables with rows about a dispatch.
var historyTables = []string{"claims", "events", "notifications", "offers", "taps", "webhook_deliveries"}

// past adds a dispatch of that status whose last change is at that time, with n rows about it in each table but claims, which has one.
func (db *database) past(t testing.TB, status dispatch.Status, at time.Time, v dispatch.DriverID, n int) dispatch.ID {
	t.Helper()
	now := db.now(t)
	id := dispatch.NewID(now)
	row := toDispatchRow(dispatch.Dispatch{ID: id, Terms: someTerms(now), Round: 1, Version: 1, CreatedAt: at, UpdatedAt: at})
	row.Status = status
	must(t, db.writes.Create(&row).Error)
	db.exec(t, "INSERT INTO claims (id, dispatch_id, round, driver_id, driver_seq, outcome, accepted_at) SELECT ?, ?, 1, ?, COALESCE(MAX(driver_seq), 0) + 1, 'WON', 1"+
		" FROM claims WHERE driver_id = ?", dispatch.NewClaimID(now), id, v, v)
	if n == 0 {
		return id
	}
	events, taps, deliveries := make([]eventRow, n), make([]tapRow, n), make([]deliveryRow, n)
	var offers []any
	for i := range n {
		events[i] = eventRow{ID: dispatch.NewEventID(now), DispatchID: id}
		taps[i] = tapRow{Of: tapKey{DispatchID: id, Round: i + 1}, ID: dispatch.NewAttemptID(now)}
		deliveries[i] = deliveryRow{DispatchID: id, WebhookID: "whk_1", EventID: dispatch.NewEventID(now), Status: []webhook.DeliveryStatus{webhook.Delivered, webhook.Failed}[i%2], Body: []byte("{}"), Attempts: "[]"}
		offers = append(offers, id, i+1, v, micros(now))
	}
	must(t, db.writes.Create(&events).Error)
	must(t, db.writes.Create(&taps).Error)
	must(t, db.writes.Create(&deliveries).Error)
	db.exec(t, "INSERT INTO offers (dispatch_id, round, driver_id, seen_at) VALUES (?, ?, ?, ?)"+strings.Repeat(", (?, ?, ?, ?)", n-1), offers...)
	d := dispatch.Dispatch{ID: id, Round: 1, Window: dispatch.Window{ExpiresAt: now.Add(time.Hour)}}
	db.notifications(t, d, n, func(i int, r *notificationRow) {
		r.DeviceID, r.DriverID, r.State, r.NextAt = dispatch.NewDeviceID(now), dispatch.NewDriverID(now), i%4, micros(now.Add(time.Hour))
	})
	return id
}

// about is how many rows there are about the dispatch, its own included.
func (db *database) about(t testing.TB, id dispatch.ID) int {
	t.Helper()
	n := db.count(t, "dispatches WHERE id = ?", id) + db.count(t, removedTable+" WHERE id = ?", id)
	for _, table := range historyTables {
		n += db.count(t, table+" WHERE dispatch_id = ?", id)
	}
	return n
}

// A dispatch that ended goes with all that is about it, exactly after its retention; one that has not ended stays, however old it is.
func TestEndedDispatchesAreRemoved(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db = db.keeping(t, Retention{Ended: 365 * day})
		v, now := db.drivers(t, 1)[0].ID, db.now(t)
		const rows = 1 + 1 + 5*3
		var gone, stays []dispatch.ID
		for _, status := range []dispatch.Status{dispatch.Completed, dispatch.Canceled, dispatch.Expired} {
			gone = append(gone, db.past(t, status, now.Add(-365*day-time.Millisecond), v, 3))
			stays = append(stays, db.past(t, status, now.Add(10*time.Minute-365*day), v, 3))
		}
		for _, status := range []dispatch.Status{dispatch.Pending, dispatch.Accepted, dispatch.InProgress} {
			stays = append(stays, db.past(t, status, now.Add(-5000*day), v, 3))
		}
		db.mustPrune(t, 1000, len(gone)*(rows+1)) // and the note of its removal
		for _, id := range gone {
			if n := db.about(t, id); n != 0 {
				t.Errorf("%d rows are left", n)
			}
		}
		for _, id := range stays {
			if n := db.about(t, id); n != rows {
				t.Errorf("%d rows are left, want %d", n, rows)
			}
		}
		db.mustPrune(t, 1000, 0)
		db.keeping(t, Retention{}).mustPrune(t, 1000, 0)
	})
}

// However many claims a dispatch has, a transaction deletes few of them, and locks as few drivers.
func TestRemovalOfManyClaims(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db = db.keeping(t, Retention{Ended: 365 * day})
		now := db.now(t)
		id := db.past(t, dispatch.Expired, now.Add(-400*day), db.drivers(t, 1)[0].ID, 0)
		const claims = 2*deleteBatchSize + 1
		for i, v := range db.drivers(t, claims-1) {
			db.exec(t, "INSERT INTO claims (id, dispatch_id, round, driver_id, driver_seq, outcome, accepted_at) VALUES (?, ?, ?, ?, 1, 'WITHDRAWN', 1)",
				dispatch.NewClaimID(now), id, i+2, v.ID)
		}
		var left []int
		n, err := db.Prune(t.Context(), 1000, func(context.Context) error {
			left = append(left, db.count(t, "claims"))
			return nil
		})
		must(t, err)
		testkit.Equal(t, "claims after each transaction that has deleted some", []int{claims, deleteBatchSize + 1, 1, 0}, slices.Compact(left))
		if about := db.about(t, id); n != 1+claims+1 || about != 0 {
			t.Errorf("%d rows are deleted, %d are left", n, about)
		}
	})
}

// A dispatch that is reopened while it is about to be removed stays: the row's lock decides.
func TestReopenedDispatchStays(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "SKIP LOCKED")
		db = db.keeping(t, Retention{Ended: 365 * day})
		v, now := db.drivers(t, 1)[0].ID, db.now(t)
		id := db.past(t, dispatch.Expired, now.Add(-400*day), v, 1)
		tx := db.begun(t)
		must(t, errorOf(tx.Exec("UPDATE dispatches SET status = 'PENDING', updated_at = ? WHERE id = ?", micros(now), id)))
		db.mustPrune(t, 100, 0)
		must(t, tx.Commit())
		db.mustPrune(t, 100, 0)
		db.mustCount(t, 1, "dispatches WHERE id = ?", id)
	})
}

// Prune that ends anywhere leaves a dispatch whole or, for readers, gone; the next one goes on, until nothing is left.
func TestRemovalThatIsInterrupted(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db = db.keeping(t, Retention{Ended: 365 * day})
		v, now := db.drivers(t, 1)[0].ID, db.now(t)
		const rows = 1 + 1 + 5*3
		ids := []dispatch.ID{
			db.past(t, dispatch.Completed, now.Add(-400*day), v, 3), db.past(t, dispatch.Canceled, now.Add(-401*day), v, 3),
		}
		for total := 0; total < 2*(rows+1); total++ {
			db.mustPrune(t, 1, 1)
			for _, id := range ids {
				whole, n := db.count(t, "dispatches WHERE id = ?", id) == 1, db.about(t, id)
				if whole && n != rows {
					t.Errorf("a dispatch that readers see has %d rows, want %d", n, rows)
				}
				if noted := db.count(t, removedTable+" WHERE id = ?", id) == 1; !whole && !noted && n != 0 {
					t.Errorf("%d rows are left that no Prune finds", n)
				}
				if _, _, err := db.Events(t.Context(), id, dispatch.Page{Limit: 10}); (err == nil) != whole {
					t.Errorf("the events of a dispatch, whole: %t: %v", whole, err)
				}
			}
		}
		db.mustPrune(t, 1, 0)
		for _, id := range ids {
			if n := db.about(t, id); n != 0 {
				t.Errorf("%d rows are left", n)
			}
		}
	})
}

// Rows of a removed dispatch that somebody has locked are left for the next time, and so is the note of its removal; nothing waits.
func TestRemovalSkipsLockedRows(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "SKIP LOCKED")
		db = db.keeping(t, Retention{Ended: 365 * day})
		v, now := db.drivers(t, 2), db.now(t)
		for _, table := range append([]string{"drivers"}, historyTables...) {
			id := db.past(t, dispatch.Completed, now.Add(-400*day), v[0].ID, 1)
			tx := db.begun(t)
			lock, arg := "SELECT 1 FROM "+table+" WHERE dispatch_id = ? FOR UPDATE", string(id)
			if table == "drivers" {
				lock, arg = "SELECT 1 FROM drivers WHERE id = ? FOR UPDATE", string(v[0].ID)
			}
			must(t, errorOf(tx.Exec(lock, arg)))
			db.mustPrune(t, 100, 6) // of the seven rows, one is locked
			if n := db.about(t, id); n != 2 {
				t.Errorf("%s: %d rows are left, want the locked one and the note", table, n)
			}
			must(t, tx.Rollback())
			db.mustPrune(t, 100, 2)
		}
	})
}

// Of two claims at once whose hours overlap one fails, also if the driver's newest claim is removed in between: it has the number that
// keeps them apart.
func TestRemovalOfTheNewestClaim(t *testing.T) {
	every(t, func(t *testing.T, db *database) {
		db = db.keeping(t, Retention{Ended: 365 * day})
		v := db.drivers(t, 1)[0]
		db.past(t, dispatch.Completed, db.now(t).Add(-400*day), v.ID, 0)
		first, second := db.add(t, nil), db.add(t, nil)
		between := func() {
			db.mustPrune(t, 100, 3)
			db.mustAccept(t, second.ID, v.ID)
		}
		decided, _ := meanwhile(rule(1), between)
		_, err := db.Claim(t.Context(), first.ID, v.ID, decided)
		mustBeError(t, "a claim of the same hours", err, dispatch.ErrDriverBusy)
		db.mustCount(t, 1, "claims")
		db.mustBeIndexed(t) // the removal incremented the version
	})
}

// Audit entries are deleted by their age, if at all.
func TestRetentionOfTheAudit(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		now := db.now(t)
		db.exec(t, "DELETE FROM audit")
		for _, at := range []time.Time{now.Add(-730*day - time.Millisecond), now.Add(10*time.Minute - 730*day)} {
			must(t, db.writes.Create(&auditRow{ID: strings.Replace(string(dispatch.NewID(at)), dispatch.DispatchPrefix, dispatch.AuditPrefix, 1), Detail: "{}"}).Error)
		}
		db.keeping(t, Retention{}).mustPrune(t, 10, 0)
		db.keeping(t, Retention{Audit: 730 * day}).mustPrune(t, 10, 1)
		db.mustCount(t, 1, "audit WHERE id > ?", dispatch.MinAuditID(now.Add(-730*day)))
	})
}

// Without retention of taps nothing about an offer is deleted.
func TestTapsForEver(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db = db.keeping(t, Retention{})
		long := db.now(t).Add(-5000 * day)
		must(t, db.writes.Create(&tapRow{Of: tapKey{DispatchID: dispatch.NewID(long)}, ID: dispatch.NewAttemptID(long)}).Error)
		db.exec(t, "INSERT INTO offers (dispatch_id, round, driver_id) VALUES (?, 1, 'drv_1')", dispatch.NewID(long))
		db.mustPrune(t, 100, 0)
	})
}

// What removal reads is what it deletes, however much else there is.
func TestPlansOfRemoval(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db = db.keeping(t, Retention{Ended: 365 * day, Attempts: 90 * day, Audit: 730 * day})
		v, now := db.drivers(t, 1)[0].ID, db.now(t)
		db.elsewhere(t, testkit.Scale(1000, 3000))
		for range 30 { // about other dispatches
			db.past(t, dispatch.Completed, now, v, 30)
		}
		server := db.dialect.skipLocked != ""
		if server {
			db.exec(t, "ANALYZE TABLE dispatches, audit, "+strings.Join(historyTables, ", "))
		}
		const dispatches, rows = 4, 5
		for range dispatches {
			db.past(t, dispatch.Completed, now.Add(-400*day), v, rows)
		}
		all := statements(t, []*gorm.DB{db.relay}, func() { db.mustPrune(t, 1000, dispatches*(3+5*rows)) })
		looked := map[string]bool{}
		for _, s := range all {
			if !strings.Contains(s, " FROM ") || strings.HasPrefix(s, "INSERT") || !strings.HasPrefix(s, "SELECT") && !strings.HasPrefix(s, "DELETE") {
				continue
			}
			looked[tableOf(s)] = true
			if !server {
				for _, step := range db.plan(t, s) {
					if strings.HasPrefix(step, "SCAN") && !strings.Contains(step, "CONSTANT ROW") || strings.Contains(step, "TEMP B-TREE") {
						t.Errorf("%s\n%s", s, step)
					}
				}
				continue
			}
			for _, p := range db.explain(t, s) {
				// Of the other tables, which are empty here, a server may read all.
				large := p["table"] == "dispatches" || slices.Contains(historyTables, p["table"])
				if large && (p["type"] == "ALL" || p["type"] == "index" || strings.Contains(p["extra"], "filesort")) {
					t.Errorf("%s\n%v", s, p)
				}
			}
			if n := db.rowsRead(t, s); n > 60 {
				t.Errorf("%d rows are read for %s", n, s)
			}
		}
		for _, table := range append(slices.Clone(historyTables), "dispatches", removedTable) {
			if !looked[table] {
				t.Errorf("no statement reads %s: %v", table, looked)
			}
		}
	})
}

var firstTable = regexp.MustCompile(` FROM (\w+)`)

// tableOf is the first table that a statement names.
func tableOf(statement string) string {
	if found := firstTable.FindStringSubmatch(statement); found != nil {
		return found[1]
	}
	return ""
}
