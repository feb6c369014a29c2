//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package retention_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/dispatch/webhook"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	"firsttap/repository/journal"
	"firsttap/repository/offers"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/retention"
	"firsttap/repository/runs"
	"firsttap/repository/webhooks"
)

// kept is how many rows there are of what is not kept for good.
func kept(db *Bench, t *testing.T) map[string]int {
	t.Helper()
	kept := map[string]int{}
	for _, table := range []string{"events", "devices", "job_runs", "supply", "taps", "offers", "idempotency_keys", "expansions"} {
		kept[table] = db.Count(t, table)
	}
	return kept
}

// mustKeep fails the test unless there are so many rows of each table.
func mustKeep(db *Bench, t *testing.T, want map[string]int) {
	t.Helper()
	for table, n := range kept(db, t) {
		if n != want[table] {
			t.Errorf("%d rows of %s are left, want %d", n, table, want[table])
		}
	}
}

// agedRows is how many rows aged writes for each n.
const agedRows = 10

// beforeDeletes calls fn before each statement that Prune changes rows by, until the test ends.
func beforeDeletes(db *Bench, t *testing.T, fn func(statement string)) {
	t.Helper()
	raw := db.Work.With(t.Context()).Callback().Raw()
	Must(t, raw.Before("gorm:raw").Register("test", func(tx database.Tx) { fn(tx.Statement.SQL.String()) }))
	t.Cleanup(func() { Must(t, raw.Remove("test")) })
}

// Each table has its retention; younger rows stay, and so do rows that are kept for good.
func TestRetentionOfTables(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		db.MustAccept(t, d.ID, v.ID)
		long := database.Micros(time.Now().Add(-1000 * Day))
		db.Exec(t, "UPDATE dispatches SET created_at = ?, updated_at = ?", long, long)
		db.Exec(t, "UPDATE events SET at = ?", long)
		db.Exec(t, "UPDATE claims SET accepted_at = ?", long)
		db.Exec(t, "UPDATE audit SET at = ?, id = 'aud_0'", long)
		healthy := db.MustPut(t, SomeDevice(v.ID, "healthy", "healthy"))
		for i, status := range runs.Unfinished { // which are as old as can be
			Must(t, db.Decide.With(t.Context()).Create(&runs.RunRow{Job: "open", Slot: int64(i + 1), Status: status}).Error)
		}
		now := db.Now(t)
		db.Aged(t, 3, "young", func(kept time.Duration) time.Time { return now.Add(10*time.Minute - kept) })
		want := kept(db, t)
		db.Aged(t, 3, "old", func(kept time.Duration) time.Time { return now.Add(-time.Millisecond - kept) })
		db.MustPrune(t, 3*agedRows)
		mustKeep(db, t, want)
		db.MustCount(t, 0, "devices WHERE push_token LIKE 'old%'")
		db.MustCount(t, 0, "job_runs WHERE job LIKE '%old'")
		db.MustCount(t, 0, "supply WHERE region LIKE 'old%'")
		db.MustCount(t, 1, "devices WHERE id = ?", healthy.ID)
		db.MustCount(t, len(runs.Unfinished), "job_runs WHERE job = 'open'")
		db.MustHold(t, 1, dispatch.EventAccepted, 1)
		db.MustCount(t, 1, "dispatches")
		db.MustCount(t, 1, "audit WHERE id = 'aud_0'")
	})
}

// What is known of an offer has its own age: of an old dispatch too, what a driver has just tapped, seen or declined is kept.
func TestNewsOfAnOldDispatchIsKept(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		long := db.Now(t).Add(-100 * Day)
		d := db.Add(t, func(d *dispatch.Dispatch) { d.ID = dispatch.NewID(long) })
		v := db.Fleet(t, 6)
		for _, seen := range []int{0, 2, 3} {
			Must(t, db.MarkSeen(t.Context(), d.ID, 1, v[seen].ID))
		}
		for _, declined := range []int{1, 2, 4} {
			Must(t, db.Decline(t.Context(), d.ID, 1, v[declined].ID, ""))
		}
		db.Exec(t, "UPDATE offers SET seen_at = ? WHERE driver_id IN (?, ?)", database.Micros(long), v[2].ID, v[3].ID)
		db.Exec(t, "UPDATE offers SET declined_at = ? WHERE driver_id = ?", database.Micros(long), v[4].ID)
		db.Exec(t, "INSERT INTO offers (dispatch_id, round, driver_id) VALUES (?, 1, ?)", d.ID, v[5].ID)
		for i, last := range []time.Time{long, db.Now(t)} {
			Must(t, db.Decide.With(t.Context()).Create(&offers.TapRow{DispatchID: d.ID, DriverID: v[i].ID, LastAt: database.Micros(last)}).Error)
		}
		db.MustPrune(t, 4)
		db.MustCount(t, 3, "offers WHERE driver_id IN (?, ?, ?)", v[0].ID, v[1].ID, v[2].ID) // seen or declined just now
		db.MustCount(t, 1, "taps WHERE driver_id = ?", v[1].ID)                              // tapped just now
	})
}

// Notifications that are done go at their time, whatever became of them; those that are to be sent stay.
func TestRetentionOfNotifications(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		db.Fill(t, 18)
		db.MustPrune(t, 18)
		db.MustCount(t, 5, "notifications")
		db.MustCount(t, 2, "notifications WHERE state = 0")
	})
}

// A failed Prune returns the error, and the number of rows that were deleted before.
func TestPruneThatFails(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		db.Exec(t, "INSERT INTO supply (at, region, on_duty, open) VALUES (1, 'a', 1, 1), (1, 'b', 1, 1), (1, 'c', 1, 1)")
		db.Without(t, "notifications", func() {
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
	Migrate(t, url)
	testkit.Bubble(t, func(t *testing.T) {
		db := DatabaseAt(t, url)
		const parts = 3
		db.Exec(t, fmt.Sprintf(`WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < %d)
			INSERT INTO supply (at, region, on_duty, open) SELECT n, 'seoul', 1, 1 FROM n`, parts*retention.DeletedAtOnce))
		var deletes []string
		beforeDeletes(db, t, func(statement string) {
			<-time.After(time.Second)
			deletes = append(deletes, strings.Fields(statement)[2])
		})
		began := time.Now()
		db.MustPrune(t, parts*retention.DeletedAtOnce)
		testkit.Equal(t, "time with the rests", 2*time.Duration(len(deletes))*time.Second, time.Since(began))
		testkit.Equal(t, "what is deleted in the end", slices.Repeat([]string{"supply"}, parts), deletes[len(deletes)-parts:])
	})
}

// about is how many rows there are about the dispatch, its own included.
func about(db *Bench, t testing.TB, id dispatch.ID) int {
	t.Helper()
	n := db.Count(t, "dispatches WHERE id = ?", id)
	for _, table := range HistoryTables {
		n += db.Count(t, table+" WHERE dispatch_id = ?", id)
	}
	return n
}

// A dispatch that ended goes with all that is about it, exactly after its retention; one that has not ended stays, however old it is.
func TestEndedDispatchesAreRemoved(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		db = db.Keeping(t, retention.Periods{Ended: 365 * Day})
		v, now := db.Fleet(t, 1)[0].ID, db.Now(t)
		var gone, stays []dispatch.ID
		for _, status := range []dispatch.Status{dispatch.Completed, dispatch.Canceled, dispatch.Expired} {
			gone = append(gone, db.Past(t, status, now.Add(-365*Day-time.Millisecond), v, 3))
			stays = append(stays, db.Past(t, status, now.Add(10*time.Minute-365*Day), v, 3))
		}
		for _, status := range []dispatch.Status{dispatch.Pending, dispatch.Accepted, dispatch.InProgress} {
			stays = append(stays, db.Past(t, status, now.Add(-5000*Day), v, 3))
		}
		all := about(db, t, gone[0])
		waits := webhooks.DeliveryRow{
			Key: webhooks.Key{DispatchID: gone[0], WebhookID: "whk_2", EventID: dispatch.NewEventID(now)}, CreatedAt: database.Micros(now), Body: []byte("{}"),
			Status: webhook.Pending,
		}
		db.Write(t, []webhooks.DeliveryRow{waits})
		db.MustPrune(t, len(gone)*(1+1+5*3))
		for i, id := range gone {
			testkit.Equal(t, "rows that are left: what is still to be delivered", []int{1, 0, 0}[i], about(db, t, id))
		}
		for _, id := range stays {
			testkit.Equal(t, "rows of one that stays", all, about(db, t, id))
		}
	})
}

// Prune that is cut off before any of its statements leaves a dispatch whole, or nothing of it. Of one with many rows, it deletes the
// dispatch's own last.
func TestRemovalThatIsInterrupted(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		db = db.Keeping(t, retention.Periods{Ended: 365 * Day})
		v, now := db.Fleet(t, 1)[0].ID, db.Now(t)
		small := db.Past(t, dispatch.Completed, now.Add(-400*Day), v, 3)
		large := db.Past(t, dispatch.Canceled, now.Add(-401*Day), v, retention.DeletedAtOnce/4)
		whole := about(db, t, small)
		var left int
		var cut context.CancelFunc
		beforeDeletes(db, t, func(string) {
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
			if rows := about(db, t, small); rows != 0 && rows != whole {
				t.Errorf("%d of %d rows of a small dispatch are left", rows, whole)
			}
			for _, id := range []dispatch.ID{small, large} {
				if rows := about(db, t, id); rows > 0 && db.Count(t, "dispatches WHERE id = ?", id) == 0 {
					t.Errorf("%d rows are left of a dispatch that is gone", rows)
				}
			}
			if err == nil {
				break
			}
		}
		testkit.Equal(t, "rows that are left", 0, about(db, t, small)+about(db, t, large))
	})
}

// While a dispatch is removed, its driver and others go on: the transaction locks nothing that a claim needs.
func TestClaimsDuringARemoval(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		db = db.Keeping(t, retention.Periods{Ended: 365 * Day})
		v := db.Fleet(t, 1)[0]
		old := db.Past(t, dispatch.Completed, db.Now(t).Add(-400*Day), v.ID, 3)
		newer := db.Add(t, nil)
		db.MustAccept(t, newer.ID, v.ID)
		db.MustUpdate(t, newer.ID, Cancel)
		d := db.Add(t, nil)
		reached, resume := make(chan struct{}), make(chan struct{})
		beforeDeletes(db, t, func(statement string) {
			if strings.HasPrefix(statement, "DELETE FROM dispatches") {
				reached <- struct{}{}
				<-resume
			}
		})
		ended := make(chan error)
		go func() { ended <- ErrorOf(db.Prune(t.Context())) }()
		<-reached
		db.MustAccept(t, d.ID, v.ID)
		Must(t, db.AddAttempts(t.Context(), []dispatch.Attempt{{
			ID: dispatch.NewAttemptID(db.Now(t)), Dispatch: d.ID, Round: 1, Driver: v.ID, Result: "SUCCESS", At: db.Now(t),
		}}))
		close(resume)
		Must(t, <-ended)
		testkit.Equal(t, "rows that are left", 0, about(db, t, old))
	})
}

// A dispatch that is reopened while it is about to be removed stays: the row's lock decides.
func TestReopenedDispatchStays(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		db.NotOnTiDB(t, "SKIP LOCKED")
		db = db.Keeping(t, retention.Periods{Ended: 365 * Day})
		v, now := db.Fleet(t, 1)[0].ID, db.Now(t)
		id := db.Past(t, dispatch.Expired, now.Add(-400*Day), v, 1)
		tx := db.Begun(t)
		Must(t, ErrorOf(tx.Exec("UPDATE dispatches SET status = 'PENDING', updated_at = ? WHERE id = ?", database.Micros(now), id)))
		db.MustPrune(t, 0)
		Must(t, tx.Commit())
		db.MustPrune(t, 0)
		db.MustCount(t, 1, "dispatches WHERE id = ?", id)
	})
}

// Of two claims at once whose hours overlap one fails, also if the driver's newest claim is removed in between: it has the number that
// keeps them apart.
func TestRemovalOfTheNewestClaim(t *testing.T) {
	Every(t, func(t *testing.T, db *Bench) {
		db = db.Keeping(t, retention.Periods{Ended: 365 * Day})
		v := db.Fleet(t, 1)[0]
		db.Past(t, dispatch.Completed, db.Now(t).Add(-400*Day), v.ID, 0)
		first, second := db.Add(t, nil), db.Add(t, nil)
		between := func() {
			db.MustPrune(t, 2)
			db.MustAccept(t, second.ID, v.ID)
		}
		decided, _ := Meanwhile(Rule(1), between)
		_, err := db.Claim(t.Context(), first.ID, v.ID, decided)
		MustBeError(t, "a claim of the same hours", err, dispatch.ErrDriverBusy)
		db.MustCount(t, 1, "claims")
	})
}

// Audit entries are deleted by their age.
func TestRetentionOfTheAudit(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		now := db.Now(t)
		db.Exec(t, "DELETE FROM audit")
		for _, at := range []time.Time{now.Add(-730*Day - time.Millisecond), now.Add(10*time.Minute - 730*Day)} {
			id := strings.Replace(string(dispatch.NewID(at)), dispatch.DispatchPrefix, dispatch.AuditPrefix, 1)
			Must(t, db.Decide.With(t.Context()).Create(&journal.AuditRow{ID: id, Detail: "{}"}).Error)
		}
		db.Keeping(t, retention.Periods{Audit: 730 * Day}).MustPrune(t, 1)
		db.MustCount(t, 1, "audit WHERE id > ?", dispatch.MinAuditID(now.Add(-730*Day)))
	})
}

// A retention of 0 is for ever.
func TestKeptForEver(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		long := db.Now(t).Add(-5000 * Day)
		db.Past(t, dispatch.Completed, long, db.Fleet(t, 1)[0].ID, 0)
		Must(t, db.Decide.With(t.Context()).Create(&offers.TapRow{DispatchID: dispatch.NewID(long), ID: dispatch.NewAttemptID(long)}).Error)
		db.Exec(t, "INSERT INTO offers (dispatch_id, round, driver_id) VALUES (?, 1, 'drv_1')", dispatch.NewID(long))
		db.Exec(t, "UPDATE audit SET id = 'aud_0'")
		db.Keeping(t, retention.Periods{}).MustPrune(t, 0)
	})
}

// Sent notifications of an offer without an end are deleted some day, too.
func TestOfferWithoutAnEnd(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		never := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
		o := db.As("ins_a")
		id := db.Leased(t, o, 1)[0]
		db.Exec(t, "UPDATE notifications SET expires_at = ?", database.Micros(never))
		o.MustRecord(t, outbox.SendResult{Status: outbox.Sent}, id)
		db.MustBeAbout(t, "next_at", db.Stored(t, id).DueAt, 92*Day)
	})
}

// Who has an offer is to hear of its end, also if it was extended for longer than sent notifications are kept.
func TestSentOffersAreKeptThroughAnExtension(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		o := db.As("ins_a")
		ids := db.Leased(t, o, 3)
		for _, id := range ids {
			o.MustRecord(t, outbox.SendResult{Status: outbox.Sent}, id)
		}
		db.Exec(t, "UPDATE dispatches SET work_ends_at = work_ends_at + ?", (4 * Day).Microseconds())
		d := db.MustRead(t, db.Stored(t, ids[0]).DispatchID)
		db.MustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			return d.Extend(1, now.Add(3*Day), "key_1", now)
		})
		due := func() { db.Exec(t, "UPDATE notifications SET due_at = 1") } // long after the first end
		due()
		db.Exec(t, "UPDATE notifications SET type = 'dispatch.accepted' WHERE id = ?", ids[2]) // no offer
		db.MustPrune(t, 1)
		db.MustCount(t, 2, "notifications")
		db.Exec(t, "UPDATE notifications SET round = 2 WHERE id = ?", ids[1])
		db.MustPrune(t, 1)
		db.MustCount(t, 1, "notifications")
		db.Exec(t, "UPDATE dispatches SET expires_at = ?", database.Micros(db.Now(t).Add(-pushes.KeepDone-time.Second)))
		db.MustPrune(t, 1)
		db.MustCount(t, 0, "notifications")
	})
}
