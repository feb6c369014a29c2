package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/idempotency"
	"firsttap/outbox"
	"firsttap/testkit"
)

// fill writes n done notifications that are due to be deleted, and five that are not.
func (db *database) fill(t *testing.T, n int) {
	t.Helper()
	past, future := micros(time.Now().Add(-time.Minute)), micros(time.Now().Add(time.Hour))
	for i := range n {
		db.notification(t, "dsp_1", func(r *notificationRow) { r.State, r.NextAt = 1+i%3, past })
	}
	for state := range 4 {
		db.notification(t, "dsp_1", func(r *notificationRow) { r.State, r.NextAt = state, future })
	}
	db.notification(t, "dsp_1", func(r *notificationRow) { r.State, r.NextAt = statePending, past })
}

func TestPrune(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		const kept = 5
		db.fill(t, 18)
		left := func() int { return db.count(t, "notifications") }
		for _, want := range []int{4, 4, 4, 4, 2, 0} {
			before := left()
			db.mustPrune(t, 4, want)
			if gone := before - left(); gone != want {
				t.Errorf("%d rows are gone, want %d", gone, want)
			}
		}
		if left() != kept || db.count(t, "notifications WHERE state = 0") != 2 {
			t.Errorf("%d left, want %d", left(), kept)
		}
		db.many(t, 3*deleteBatchSize)
		db.exec(t, "UPDATE notifications SET next_at = 0 WHERE dispatch_id = 'dsp_1' AND device_id = 'dev_1'")
		for _, want := range []int{2*deleteBatchSize + 1, deleteBatchSize - 1} {
			db.mustPrune(t, 2*deleteBatchSize+1, want)
		}
	})
}

// Prune rests after each transaction, of which none is long, and ends with the error of a rest that ends.
func TestPruneRests(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.many(t, 10*deleteBatchSize)
		var gone []int
		before, over := db.count(t, "notifications"), errors.New("over")
		n, err := db.Prune(t.Context(), 10*deleteBatchSize, func(context.Context) error {
			left := db.count(t, "notifications")
			gone = append(gone, before-left)
			before = left
			if len(gone) == 4 {
				return over
			}
			return nil
		})
		if want := slices.Repeat([]int{deleteBatchSize}, 4); !slices.Equal(gone, want) || n != 4*deleteBatchSize || !errors.Is(err, over) {
			t.Errorf("%d rows are deleted, %v by transaction, %v", n, gone, err)
		}
	})
}

const day = 24 * time.Hour

// aged writes into each table rows of a time, of which those are found that what names.
func (db *database) aged(t *testing.T, n int, what string, age func(kept time.Duration) time.Time) {
	t.Helper()
	create := func(row any) {
		must(t, db.writes.WithContext(t.Context()).Create(row).Error)
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

func noRest(context.Context) error { return nil }

// mustPrune has up to limit rows deleted, and fails the test unless so many were.
func (db *database) mustPrune(t *testing.T, limit, want int) {
	t.Helper()
	if n, err := db.Prune(t.Context(), limit, noRest); n != want || err != nil {
		t.Errorf("pruned %d rows, %v; want %d of up to %d", n, err, want, limit)
	}
}

// agedRows is how many rows aged writes for each n.
const agedRows = 10

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
			must(t, db.writes.Create(&runRow{Job: "open", Slot: int64(i + 1), Status: status}).Error)
		}
		now := db.now(t)
		db.aged(t, 3, "young", func(kept time.Duration) time.Time { return now.Add(10*time.Minute - kept) })
		want := db.kept(t)
		db.aged(t, 3, "old", func(kept time.Duration) time.Time { return now.Add(-time.Millisecond - kept) })
		db.mustPrune(t, 1000, 3*agedRows)
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
			must(t, db.writes.Create(&tapRow{Of: tapKey{DispatchID: d.ID, DriverID: v[i].ID}, LastAt: micros(last)}).Error)
		}
		db.mustPrune(t, 100, 4)
		db.mustCount(t, 3, "offers WHERE driver_id IN (?, ?, ?)", v[0].ID, v[1].ID, v[2].ID) // seen or declined just now
		db.mustCount(t, 1, "taps WHERE driver_id = ?", v[1].ID)                              // tapped just now
	})
}

// Prune deletes no more rows than its limit over all tables, the oldest first.
func TestPruneInBatches(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		now := db.now(t)
		db.aged(t, 3, "old", func(kept time.Duration) time.Time { return now.Add(-time.Hour - kept) })
		db.exec(t, "UPDATE devices SET quarantined_at = 1 WHERE push_token = 'old 1'")
		for _, step := range []struct{ limit, want int }{{0, 0}, {1, 1}, {10, 10}, {100, 3*agedRows - 11}, {100, 0}} {
			db.mustPrune(t, step.limit, step.want)
			if n := db.count(t, "devices WHERE push_token = 'old 1'"); step.limit == 1 && n != 0 {
				t.Error("the oldest is left")
			}
		}
		db.mustKeep(t, map[string]int{})
	})
}

// A failed Prune returns the error and the number of rows that were deleted before.
func TestPruneThatFails(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.fill(t, 3)
		db.exec(t, "INSERT INTO supply (at, region, on_duty, open) VALUES (1, 'a', 1, 1), (1, 'b', 1, 1), (1, 'c', 1, 1)")
		db.without(t, "notifications", func() {
			if n, err := db.Prune(t.Context(), 100, noRest); n != 3 || err == nil || !strings.Contains(err.Error(), "notifications") {
				t.Errorf("pruned %d, %v", n, err)
			}
		})
		db.mustPrune(t, 100, 3)
	})
}

// Rows that others have locked are left for the next time, one of each kind here.
func TestPruneSkipsLockedRows(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "SKIP LOCKED")
		const n = 3
		db.fill(t, 3*n)
		now := db.now(t)
		db.aged(t, n, "old", func(kept time.Duration) time.Time { return now.Add(-time.Hour - kept) })
		all := slices.DeleteFunc(db.retentionRules(now), func(r retentionRule) bool { return r.table == removedTable || r.table == webhooksTable })
		locked := len(all)
		// What is not to be deleted is of no concern either.
		all = append(all, retentionRule{table: "notifications", key: "id", where: "state = 0", order: "next_at"})
		tx := db.begun(t)
		for _, h := range all {
			keys, err := keysOf(db.general.Raw("SELECT "+h.key+" FROM "+h.table+" WHERE "+h.where+" ORDER BY "+h.order+" LIMIT 1", h.args...))
			if err != nil || len(keys) != 1 {
				t.Fatalf("no row of %s is due for deletion: %v", h.table, err)
			}
			lock := "SELECT 1 FROM " + h.table + " WHERE " + strings.ReplaceAll(h.key, ", ", " = ? AND ") + " = ? FOR UPDATE"
			must(t, errorOf(tx.Exec(lock, keys[0]...)))
		}
		total := n * (3 + agedRows)
		db.mustPrune(t, 1000, total-locked)
		tx.Rollback()
		db.mustPrune(t, 1000, locked)
	})
}

// No table waits until all rows of another table are deleted.
func TestPruneIsFair(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		now := db.now(t)
		db.fill(t, 40)
		db.aged(t, 1, "old", func(kept time.Duration) time.Time { return now.Add(-time.Hour - kept) })
		const limit = 40
		db.mustPrune(t, limit, limit)
		db.mustKeep(t, map[string]int{}) // no old row waits for the notifications
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
		db.mustBeAbout(t, "next_at", db.stored(t, id).NextAt, 92*day)
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
		d = db.mustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			return d.Extend(1, now.Add(3*day), "key_1", now)
		})
		due := func() { db.exec(t, "UPDATE notifications SET next_at = 1") } // long after the first end
		due()
		db.exec(t, "UPDATE notifications SET type = 'dispatch.accepted' WHERE id = ?", ids[2]) // no offer
		db.mustPrune(t, 100, 3)
		db.mustCount(t, 2, "notifications")
		testkit.Equal(t, "the time until which an offer is kept", micros(d.ExpiresAt.Add(keepDone)), db.stored(t, ids[0]).NextAt)
		due()
		db.exec(t, "UPDATE notifications SET round = 2 WHERE id = ?", ids[1])
		db.mustPrune(t, 100, 2)
		db.mustCount(t, 1, "notifications")
		due()
		db.exec(t, "UPDATE dispatches SET expires_at = ?", micros(db.now(t).Add(-keepDone-time.Second)))
		db.mustPrune(t, 100, 1)
		db.mustCount(t, 0, "notifications")
	})
}
