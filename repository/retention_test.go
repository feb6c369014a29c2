package repository

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gorm.io/gorm"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/idempotency"
	"firsttap/outbox"
	"firsttap/testkit"
	"firsttap/webhook"
)

const day = 24 * time.Hour

// keeping is the database with another retention.
func (db *database) keeping(t testing.TB, kept Retention) *database {
	t.Helper()
	return db.by(openWith(t, db.url, Options{Log: quiet, Patience: db.options.Patience, Retention: kept}))
}

// fill writes n done notifications that are due to be deleted, and five that are not.
func (db *database) fill(t *testing.T, n int) {
	t.Helper()
	past, future := micros(time.Now().Add(-time.Minute)), micros(time.Now().Add(time.Hour))
	for i := range n {
		db.notification(t, "dsp_1", func(r *notificationRow) { r.State, r.DueAt = 1+i%3, past })
	}
	for state := range 4 {
		db.notification(t, "dsp_1", func(r *notificationRow) { r.State, r.DueAt = state, future })
	}
	db.notification(t, "dsp_1", func(r *notificationRow) { r.State, r.DueAt = statePending, past })
}

// aged writes into each table rows of a time, of which those are found that what names.
func (db *database) aged(t *testing.T, n int, what string, age func(kept time.Duration) time.Time) {
	t.Helper()
	create := func(row any) {
		must(t, db.decide.WithContext(t.Context()).Create(row).Error)
	}
	for i, v := range db.drivers(t, n) {
		name := fmt.Sprint(what, " ", i)
		phone := db.mustPut(t, someDevice(v.ID, name, name))
		db.exec(t, "UPDATE devices SET quarantined_at = ? WHERE id = ?", micros(age(7*day)), phone.ID)
		slot := age(7*day).UnixMicro() + int64(i)
		for _, status := range []cronjob.Status{cronjob.Succeeded, cronjob.Failed, cronjob.Interrupted} {
			create(&runRow{Job: fmt.Sprint(status, " ", what), Slot: slot, Status: status})
		}
		db.exec(t, "INSERT INTO supply (at, region, on_duty, open) VALUES (?, ?, 1, 1)", micros(age(30*day)), name)
		create(&eventRow{ID: dispatch.NewEventID(age(keepDone)), At: micros(age(keepDone))}) // as resolve writes it
		create(&walkRow{EventID: dispatch.NewEventID(age(keepSent))})
		tapped := age(90 * day)
		create(&tapRow{Of: tapKey{DispatchID: dispatch.NewID(tapped)}, LastAt: micros(tapped)})
		db.exec(t, "INSERT INTO offers (dispatch_id, round, driver_id) VALUES (?, 1, ?)", dispatch.NewID(age(90*day)), v.ID)
		create(&idempotencyRow{Caller: "key_1", Name: name, Seed: idempotency.Seed(name), ExpiresAt: micros(age(0))})
	}
}

// kept is how many rows there are of what is not kept for good.
func (db *database) kept(t *testing.T) map[string]int {
	t.Helper()
	kept := map[string]int{}
	for _, table := range []string{"events", "devices", "job_runs", "supply", "taps", "offers", "idempotency_keys", "expansions"} {
		kept[table] = db.count(t, table)
	}
	return kept
}

// mustKeep fails the test unless there are so many rows of each table.
func (db *database) mustKeep(t *testing.T, want map[string]int) {
	t.Helper()
	for table, n := range db.kept(t) {
		if n != want[table] {
			t.Errorf("%d rows of %s are left, want %d", n, table, want[table])
		}
	}
}

// mustPrune fails the test unless Prune deletes so many rows.
func (db *database) mustPrune(t *testing.T, want int) {
	t.Helper()
	if n, err := db.Prune(t.Context()); n != want || err != nil {
		t.Errorf("pruned %d rows, %v; want %d", n, err, want)
	}
}

// agedRows is how many rows aged writes for each n.
const agedRows = 10

// beforeDeletes calls fn before each statement that Prune changes rows by, until the test ends.
func (db *database) beforeDeletes(t *testing.T, fn func(statement string)) {
	t.Helper()
	raw := db.work.Callback().Raw()
	must(t, raw.Before("gorm:raw").Register("test", func(tx *gorm.DB) { fn(tx.Statement.SQL.String()) }))
	t.Cleanup(func() { must(t, raw.Remove("test")) })
}

// Each table has its retention; younger rows stay, and so do rows that are kept for good.
func TestRetentionOfTables(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		db.mustAccept(t, d.ID, v.ID)
		long := micros(time.Now().Add(-1000 * day))
		db.exec(t, "UPDATE dispatches SET created_at = ?, updated_at = ?", long, long)
		db.exec(t, "UPDATE events SET at = ?", long)
		db.exec(t, "UPDATE claims SET accepted_at = ?", long)
		db.exec(t, "UPDATE audit SET at = ?, id = 'aud_0'", long)
		healthy := db.mustPut(t, someDevice(v.ID, "healthy", "healthy"))
		for i, status := range unfinished { // which are as old as can be
			must(t, db.decide.Create(&runRow{Job: "open", Slot: int64(i + 1), Status: status}).Error)
		}
		now := db.now(t)
		db.aged(t, 3, "young", func(kept time.Duration) time.Time { return now.Add(10*time.Minute - kept) })
		want := db.kept(t)
		db.aged(t, 3, "old", func(kept time.Duration) time.Time { return now.Add(-time.Millisecond - kept) })
		db.mustPrune(t, 3*agedRows)
		db.mustKeep(t, want)
		db.mustCount(t, 0, "devices WHERE push_token LIKE 'old%'")
		db.mustCount(t, 0, "job_runs WHERE job LIKE '%old'")
		db.mustCount(t, 0, "supply WHERE region LIKE 'old%'")
		db.mustCount(t, 1, "devices WHERE id = ?", healthy.ID)
		db.mustCount(t, len(unfinished), "job_runs WHERE job = 'open'")
		db.mustHold(t, 1, dispatch.EventAccepted, 1)
		db.mustCount(t, 1, "dispatches")
		db.mustCount(t, 1, "audit WHERE id = 'aud_0'")
	})
}

// What is known of an offer has its own age: of an old dispatch too, what a driver has just tapped, seen or declined is kept.
func TestNewsOfAnOldDispatchIsKept(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		long := db.now(t).Add(-100 * day)
		d := db.add(t, func(d *dispatch.Dispatch) { d.ID = dispatch.NewID(long) })
		v := db.drivers(t, 6)
		for _, seen := range []int{0, 2, 3} {
			must(t, db.MarkSeen(t.Context(), d.ID, 1, v[seen].ID))
		}
		for _, declined := range []int{1, 2, 4} {
			must(t, db.Decline(t.Context(), d.ID, 1, v[declined].ID, ""))
		}
		db.exec(t, "UPDATE offers SET seen_at = ? WHERE driver_id IN (?, ?)", micros(long), v[2].ID, v[3].ID)
		db.exec(t, "UPDATE offers SET declined_at = ? WHERE driver_id = ?", micros(long), v[4].ID)
		db.exec(t, "INSERT INTO offers (dispatch_id, round, driver_id) VALUES (?, 1, ?)", d.ID, v[5].ID)
		for i, last := range []time.Time{long, db.now(t)} {
			must(t, db.decide.Create(&tapRow{Of: tapKey{DispatchID: d.ID, DriverID: v[i].ID}, LastAt: micros(last)}).Error)
		}
		db.mustPrune(t, 4)
		db.mustCount(t, 3, "offers WHERE driver_id IN (?, ?, ?)", v[0].ID, v[1].ID, v[2].ID) // seen or declined just now
		db.mustCount(t, 1, "taps WHERE driver_id = ?", v[1].ID)                              // tapped just now
	})
}

// Notifications that are done go at their time, whatever became of them; those that are to be sent stay.
func TestRetentionOfNotifications(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.fill(t, 18)
		db.mustPrune(t, 18)
		db.mustCount(t, 5, "notifications")
		db.mustCount(t, 2, "notifications WHERE state = 0")
	})
}

// A failed Prune returns the error, and the number of rows that were deleted before.
func TestPruneThatFails(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.exec(t, "INSERT INTO supply (at, region, on_duty, open) VALUES (1, 'a', 1, 1), (1, 'b', 1, 1), (1, 'c', 1, 1)")
		db.without(t, "notifications", func() {
			if n, err := db.Prune(t.Context()); n != 3 || err == nil || !strings.Contains(err.Error(), "notifications") {
				t.Errorf("pruned %d, %v", n, err)
			}
		})
	})
}

// Prune deletes a bounded number of rows in a transaction, then rests for as long as that took, and lets no table wait for all rows of
// another.
func TestPruneRests(t *testing.T) {
	url := "sqlite://" + t.TempDir() + "/test.db"
	migrate(t, url)
	synctest.Test(t, func(t *testing.T) {
		db := databaseAt(t, url)
		const parts = 3
		db.exec(t, fmt.Sprintf(`WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < %d)
			INSERT INTO supply (at, region, on_duty, open) SELECT n, 'seoul', 1, 1 FROM n`, parts*deletedAtOnce))
		var deletes []string
		db.beforeDeletes(t, func(statement string) {
			<-time.After(time.Second)
			deletes = append(deletes, strings.Fields(statement)[2])
		})
		began := time.Now()
		db.mustPrune(t, parts*deletedAtOnce)
		testkit.Equal(t, "time with the rests", 2*time.Duration(len(deletes))*time.Second, time.Since(began))
		testkit.Equal(t, "what is deleted in the end", slices.Repeat([]string{"supply"}, parts), deletes[len(deletes)-parts:])
	})
}

// historyTables are the tables with rows about a dispatch.
var historyTables = []string{"claims", "dispatch_words", "events", "notifications", "offers", "taps", "webhook_deliveries"}

// past adds a dispatch of that status whose last change is at that time, with its words, a claim, and n rows about it in each other table.
func (db *database) past(t testing.TB, status dispatch.Status, at time.Time, v dispatch.DriverID, n int) dispatch.ID {
	t.Helper()
	now := db.now(t)
	id := dispatch.NewID(now)
	row := toDispatchRow(dispatch.Dispatch{ID: id, Terms: someTerms(now), Round: 1, Version: 1, CreatedAt: at, UpdatedAt: at})
	row.Status = status
	must(t, db.decide.Create(&row).Error)
	must(t, db.addWords(db.decide, db.dispatchWords(), wordEntries(id, row.words())))
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
		deliveries[i] = deliveryRow{
			DispatchID: id, WebhookID: "whk_1", EventID: dispatch.NewEventID(now), Body: []byte("{}"), Attempts: "[]", CreatedAt: micros(now),
			Status: []webhook.DeliveryStatus{webhook.Delivered, webhook.Failed}[i%2],
		}
		offers = append(offers, id, i+1, v, micros(now))
	}
	must(t, db.decide.Create(&events).Error)
	must(t, db.decide.Create(&taps).Error)
	must(t, db.decide.Create(&deliveries).Error)
	db.exec(t, "INSERT INTO offers (dispatch_id, round, driver_id, seen_at) VALUES (?, ?, ?, ?)"+strings.Repeat(", (?, ?, ?, ?)", n-1), offers...)
	d := dispatch.Dispatch{ID: id, Round: 1, Window: dispatch.Window{ExpiresAt: now.Add(time.Hour)}}
	db.notifications(t, d, n, func(i int, r *notificationRow) {
		r.DeviceID, r.DriverID, r.State, r.DueAt = dispatch.NewDeviceID(now), dispatch.NewDriverID(now), i%4, micros(now.Add(time.Hour))
	})
	return id
}

// about is how many rows there are about the dispatch, its own included.
func (db *database) about(t testing.TB, id dispatch.ID) int {
	t.Helper()
	n := db.count(t, "dispatches WHERE id = ?", id)
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
		var gone, stays []dispatch.ID
		for _, status := range []dispatch.Status{dispatch.Completed, dispatch.Canceled, dispatch.Expired} {
			gone = append(gone, db.past(t, status, now.Add(-365*day-time.Millisecond), v, 3))
			stays = append(stays, db.past(t, status, now.Add(10*time.Minute-365*day), v, 3))
		}
		for _, status := range []dispatch.Status{dispatch.Pending, dispatch.Accepted, dispatch.InProgress} {
			stays = append(stays, db.past(t, status, now.Add(-5000*day), v, 3))
		}
		all := db.about(t, gone[0])
		waits := deliveryRow{DispatchID: gone[0], WebhookID: "whk_2", EventID: dispatch.NewEventID(now), CreatedAt: micros(now), Body: []byte("{}")}
		waits.Status = webhook.Pending
		db.write(t, []deliveryRow{waits})
		db.mustPrune(t, len(gone)*(1+1+5*3))
		for i, id := range gone {
			testkit.Equal(t, "rows that are left: what is still to be delivered", []int{1, 0, 0}[i], db.about(t, id))
		}
		for _, id := range stays {
			testkit.Equal(t, "rows of one that stays", all, db.about(t, id))
		}
	})
}

// Prune that is cut off before any of its statements leaves a dispatch whole, or nothing of it. Of one with many rows, it deletes the
// dispatch's own last.
func TestRemovalThatIsInterrupted(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db = db.keeping(t, Retention{Ended: 365 * day})
		v, now := db.drivers(t, 1)[0].ID, db.now(t)
		small := db.past(t, dispatch.Completed, now.Add(-400*day), v, 3)
		large := db.past(t, dispatch.Canceled, now.Add(-401*day), v, deletedAtOnce/4)
		whole := db.about(t, small)
		var left int
		var cut context.CancelFunc
		db.beforeDeletes(t, func(string) {
			if left--; left == 0 {
				cut()
			}
		})
		for n := 1; ; n++ {
			var ctx context.Context
			ctx, cut = context.WithCancel(t.Context())
			left = n
			_, err := db.Prune(ctx)
			cut()
			if rows := db.about(t, small); rows != 0 && rows != whole {
				t.Errorf("%d of %d rows of a small dispatch are left", rows, whole)
			}
			for _, id := range []dispatch.ID{small, large} {
				if rows := db.about(t, id); rows > 0 && db.count(t, "dispatches WHERE id = ?", id) == 0 {
					t.Errorf("%d rows are left of a dispatch that is gone", rows)
				}
			}
			if err == nil {
				break
			}
		}
		testkit.Equal(t, "rows that are left", 0, db.about(t, small)+db.about(t, large))
	})
}

// While a dispatch is removed, its driver and others go on: the transaction locks nothing that a claim needs.
func TestClaimsDuringARemoval(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		db = db.keeping(t, Retention{Ended: 365 * day})
		v := db.drivers(t, 1)[0]
		old := db.past(t, dispatch.Completed, db.now(t).Add(-400*day), v.ID, 3)
		newer := db.add(t, nil)
		db.mustAccept(t, newer.ID, v.ID)
		db.mustUpdate(t, newer.ID, cancel)
		d := db.add(t, nil)
		reached, resume := make(chan struct{}), make(chan struct{})
		db.beforeDeletes(t, func(statement string) {
			if strings.HasPrefix(statement, "DELETE FROM dispatches") {
				reached <- struct{}{}
				<-resume
			}
		})
		ended := make(chan error)
		go func() { ended <- errorOf(db.Prune(t.Context())) }()
		<-reached
		db.mustAccept(t, d.ID, v.ID)
		must(t, db.AddAttempts(t.Context(), []dispatch.Attempt{{
			ID: dispatch.NewAttemptID(db.now(t)), Dispatch: d.ID, Round: 1, Driver: v.ID, Result: "SUCCESS", At: db.now(t),
		}}))
		close(resume)
		must(t, <-ended)
		testkit.Equal(t, "rows that are left", 0, db.about(t, old))
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
		db.mustPrune(t, 0)
		must(t, tx.Commit())
		db.mustPrune(t, 0)
		db.mustCount(t, 1, "dispatches WHERE id = ?", id)
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
			db.mustPrune(t, 2)
			db.mustAccept(t, second.ID, v.ID)
		}
		decided, _ := meanwhile(rule(1), between)
		_, err := db.Claim(t.Context(), first.ID, v.ID, decided)
		mustBeError(t, "a claim of the same hours", err, dispatch.ErrDriverBusy)
		db.mustCount(t, 1, "claims")
		db.mustBeIndexed(t) // the removal incremented the version
	})
}

// Audit entries are deleted by their age.
func TestRetentionOfTheAudit(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		now := db.now(t)
		db.exec(t, "DELETE FROM audit")
		for _, at := range []time.Time{now.Add(-730*day - time.Millisecond), now.Add(10*time.Minute - 730*day)} {
			id := strings.Replace(string(dispatch.NewID(at)), dispatch.DispatchPrefix, dispatch.AuditPrefix, 1)
			must(t, db.decide.Create(&auditRow{ID: id, Detail: "{}"}).Error)
		}
		db.keeping(t, Retention{Audit: 730 * day}).mustPrune(t, 1)
		db.mustCount(t, 1, "audit WHERE id > ?", dispatch.MinAuditID(now.Add(-730*day)))
	})
}

// A retention of 0 is for ever.
func TestKeptForEver(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		long := db.now(t).Add(-5000 * day)
		db.past(t, dispatch.Completed, long, db.drivers(t, 1)[0].ID, 0)
		must(t, db.decide.Create(&tapRow{Of: tapKey{DispatchID: dispatch.NewID(long)}, ID: dispatch.NewAttemptID(long)}).Error)
		db.exec(t, "INSERT INTO offers (dispatch_id, round, driver_id) VALUES (?, 1, 'drv_1')", dispatch.NewID(long))
		db.exec(t, "UPDATE audit SET id = 'aud_0'")
		db.keeping(t, Retention{}).mustPrune(t, 0)
	})
}

// Sent notifications of an offer without an end are deleted some day, too.
func TestOfferWithoutAnEnd(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		never := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
		o := db.as("ins_a")
		id := db.leased(t, o, 1)[0]
		db.exec(t, "UPDATE notifications SET expires_at = ?", micros(never))
		o.mustRecord(t, outbox.SendResult{Status: outbox.Sent}, id)
		db.mustBeAbout(t, "next_at", db.stored(t, id).DueAt, 92*day)
	})
}

// Who has an offer is to hear of its end, also if it was extended for longer than sent notifications are kept.
func TestSentOffersAreKeptThroughAnExtension(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		o := db.as("ins_a")
		ids := db.leased(t, o, 3)
		for _, id := range ids {
			o.mustRecord(t, outbox.SendResult{Status: outbox.Sent}, id)
		}
		db.exec(t, "UPDATE dispatches SET work_ends_at = work_ends_at + ?", (4 * day).Microseconds())
		d := db.mustRead(t, db.stored(t, ids[0]).DispatchID)
		db.mustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			return d.Extend(1, now.Add(3*day), "key_1", now)
		})
		due := func() { db.exec(t, "UPDATE notifications SET due_at = 1") } // long after the first end
		due()
		db.exec(t, "UPDATE notifications SET type = 'dispatch.accepted' WHERE id = ?", ids[2]) // no offer
		db.mustPrune(t, 1)
		db.mustCount(t, 2, "notifications")
		db.exec(t, "UPDATE notifications SET round = 2 WHERE id = ?", ids[1])
		db.mustPrune(t, 1)
		db.mustCount(t, 1, "notifications")
		db.exec(t, "UPDATE dispatches SET expires_at = ?", micros(db.now(t).Add(-keepDone-time.Second)))
		db.mustPrune(t, 1)
		db.mustCount(t, 0, "notifications")
	})
}
