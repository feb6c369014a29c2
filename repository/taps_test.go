package repository

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

// allTaps reads the taps on a dispatch in pages of that size.
func (db *database) allTaps(t testing.TB, id dispatch.ID, limit int) (all []dispatch.AttemptRecord) {
	t.Helper()
	for page := (dispatch.Page{Limit: limit}); ; {
		items, next, err := db.Attempts(t.Context(), id, 0, page)
		must(t, err)
		all = append(all, items...)
		if page.Cursor = next; next == "" {
			return all
		}
	}
}

// A tap is read as it was written, whatever an app calls its version.
func TestTapsAreReadAsWritten(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v, d := db.drivers(t, 2), db.add(t, nil)
		var taps []dispatch.Attempt
		for i, version := range []string{"", "3.1", `"\]["`, "버전 3", "a\tb\x01<&>", strings.Repeat("長", 64)} {
			a := tap(d.ID, v[i%2].ID, "ALREADY_TAKEN", d.CreatedAt.Add(time.Duration(i)*time.Microsecond))
			a.AppVersion = version
			taps = append(taps, a)
		}
		for range 2 { // the second time because the reply to the first COMMIT may be lost
			must(t, db.AddAttempts(t.Context(), taps))
		}
		db.mustCount(t, 1, "tap_batches WHERE dispatch_id = ? AND count = ? AND instance = 'a:1'", d.ID, len(taps))
		got := collect(db.allTaps(t, d.ID, 100), func(r dispatch.AttemptRecord) dispatch.Attempt { return r.Attempt })
		testkit.Equal(t, "the taps", taps, got)
	})
}

// A driver who taps without end, whatever round the app sends, fills a round's ledger up to a limit. Their other results, other drivers' taps,
// and taps in the next round are stored. Taps that were not written don't count.
func TestEndlessTapsAreNotStored(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v, d := db.drivers(t, 2), db.add(t, nil)
		var failing atomic.Bool
		db = db.by(openWith(t, db.url, Options{Log: quiet, Patience: testkit.Patience, Observer: func(ctx context.Context, s Statement) (context.Context, func(error)) {
			if failing.Load() && s.Operation == "insert" {
				canceled, cancel := context.WithCancel(ctx)
				cancel()
				ctx = canceled
			}
			return ctx, func(error) {}
		}}))
		var made int
		write := func(n int, by dispatch.DriverID, result dispatch.AttemptResult, round func(i int) int) error {
			all := make([]dispatch.Attempt, n)
			for i := range all {
				all[i] = tap(d.ID, by, result, d.CreatedAt.Add(time.Duration(made)*time.Microsecond))
				all[i].Round = round(i)
				made++
			}
			return db.AddAttempts(t.Context(), all)
		}
		first, any := func(int) int { return 1 }, func(i int) int { return i }
		failing.Store(true)
		if err := write(maxEqualTaps-1, v[0].ID, "ALREADY_TAKEN", any); err == nil {
			t.Error("the taps were written all the same")
		}
		failing.Store(false)
		for range 3 {
			must(t, write(maxEqualTaps-1, v[0].ID, "ALREADY_TAKEN", any))
		}
		testkit.Equal(t, "taps of one driver", maxEqualTaps, len(db.allTaps(t, d.ID, 1000)))
		must(t, write(1, v[0].ID, dispatch.AttemptWon, first))
		must(t, write(1, v[1].ID, "ALREADY_TAKEN", first))
		testkit.Equal(t, "taps with two others", maxEqualTaps+2, len(db.allTaps(t, d.ID, 1000)))
		db.exec(t, "UPDATE dispatches SET round = 2 WHERE id = ?", d.ID)
		must(t, write(1, v[0].ID, "ALREADY_TAKEN", func(int) int { return 2 }))
		testkit.Equal(t, "taps with the next round", maxEqualTaps+3, len(db.allTaps(t, d.ID, 1000)))
	})
}

// The batches of two instances overlap in time. Pages of any size return all taps, the oldest first.
func TestTapsOfSeveralInstances(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v, d := db.drivers(t, 3), db.add(t, nil)
		batches := make([][]dispatch.Attempt, 3)
		for i := range 20 {
			a := tap(d.ID, v[i%3].ID, "ALREADY_TAKEN", d.CreatedAt.Add(time.Duration(i)*time.Millisecond))
			batches[i*i%3] = append(batches[i*i%3], a)
		}
		want := slices.Concat(batches...)
		slices.SortFunc(want, func(a, b dispatch.Attempt) int { return strings.Compare(string(a.ID), string(b.ID)) })
		for _, batch := range batches {
			must(t, db.AddAttempts(t.Context(), batch))
		}
		for _, limit := range []int{1, 3, 19, 20, 21} {
			got := collect(db.allTaps(t, d.ID, limit), func(r dispatch.AttemptRecord) dispatch.Attempt { return r.Attempt })
			testkit.Equal(t, fmt.Sprintf("the taps in pages of %d", limit), want, got)
		}
	})
}

// What an earlier version has written, with a row for each tap, is read like batches, and beside them.
func TestTapsOfAnEarlierVersion(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v, d := db.drivers(t, 5), db.add(t, nil)
		at := func(ms int) time.Time { return d.CreatedAt.Add(time.Duration(ms) * time.Millisecond) }
		taps := []dispatch.Attempt{
			tap(d.ID, v[1].ID, dispatch.AttemptEarly, at(-10)), tap(d.ID, v[0].ID, dispatch.AttemptWon, at(10)),
			tap(d.ID, v[1].ID, "ALREADY_TAKEN", at(20)), tap(d.ID, v[2].ID, "NOT_ELIGIBLE", at(30)),
			tap(d.ID, v[3].ID, dispatch.AttemptStale, at(40)), tap(d.ID, v[1].ID, "ALREADY_TAKEN", at(50)),
		}
		must(t, db.AddAttempts(t.Context(), taps))
		db.mustAccept(t, d.ID, v[0].ID)
		db.notification(t, d.ID, func(n *notificationRow) {
			n.DriverID, n.Round, n.State, n.SentAt = v[1].ID, 1, stateDone, new(micros(at(5)))
		})
		read := func() (all []string) {
			note := func(what string, value any, err error) {
				must(t, err)
				text, err := json.Marshal(value)
				must(t, err)
				all = append(all, what+": "+string(text))
			}
			note("taps", db.allTaps(t, d.ID, 4), nil)
			offers, _, err := db.Offers(t.Context(), d.ID, 0, dispatch.Page{Limit: 10})
			note("offers", offers, err)
			funnel, _, err := db.Funnel(t.Context(), d.ID)
			note("funnel", funnel, err)
			for _, driver := range v {
				offer, err := db.OfferTo(t.Context(), d.ID, driver.ID)
				note("offer", offer.Contact, err)
				standing, err := db.RaceStanding(t.Context(), d.ID, 1, driver.ID, v[0].ID)
				standing.Now = time.Time{}
				note("standing", standing, err)
				statistics, err := db.TapStatistics(t.Context(), driver.ID)
				statistics.Since = time.Time{}
				note("statistics", statistics, err)
			}
			return all
		}
		batches := read()
		for _, moved := range []int{3, 3} { // half of them, and then all
			db.exec(t, "DELETE FROM tap_batches")
			for _, a := range taps[:moved] {
				db.exec(t, "INSERT INTO attempts (id, dispatch_id, round, driver_id, result, at, instance, app_version) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
					a.ID, a.Dispatch, a.Round, a.Driver, a.Result, micros(a.At), a.Instance, a.AppVersion)
			}
			taps = taps[moved:]
			if len(taps) > 0 {
				must(t, db.AddAttempts(t.Context(), taps))
			}
			testkit.Equal(t, fmt.Sprintf("what is read with %d taps in batches", len(taps)), batches, read())
		}
	})
}

// A driver's signals count the taps of thirty days, and those that could not win of one day, wherever in a batch they are.
func TestTapsOfThirtyDays(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v, d, now := db.drivers(t, 2), db.add(t, nil), db.now(t)
		for _, ago := range []time.Duration{30 * 24 * time.Hour, 24 * time.Hour} {
			var batch []dispatch.Attempt
			for _, later := range []time.Duration{-30 * time.Minute, -20 * time.Minute, 20 * time.Minute} {
				for i := range v {
					batch = append(batch, tap(d.ID, v[i].ID, dispatch.AttemptStale, now.Add(later-ago)))
				}
			}
			must(t, db.AddAttempts(t.Context(), batch))
		}
		db.mustCount(t, 2, "tap_batches")
		week := db.by(openWith(t, db.url, Options{Log: quiet, Retention: Retention{Attempts: 7 * day}}))
		year := db.by(openWith(t, db.url, Options{Log: quiet, Retention: Retention{Attempts: 365 * day}}))
		for _, c := range []struct {
			db   *database
			back time.Duration
			taps int
		}{{db, 30 * day, 4}, {year, 30 * day, 4}, {week, 7 * day, 3}} {
			before := db.now(t)
			got, err := c.db.TapStatistics(t.Context(), v[0].ID)
			must(t, err)
			if got.Taps != c.taps || got.RecentUnwinnable != 1 {
				t.Errorf("%d taps in %s, want %d; %d of the last day could not win, want 1", got.Taps, c.back, c.taps, got.RecentUnwinnable)
			}
			if since := got.Since.Add(c.back); since.Before(before) || since.After(db.now(t)) {
				t.Errorf("taps are counted since %s, want %s before the question", got.Since, c.back)
			}
		}
	})
}

// Where drivers tap a lot, a driver's signals count those of the newest batches, and say since when.
func TestTapsOfManyBatches(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		v, d, now := db.drivers(t, 1)[0], db.add(t, nil), db.now(t)
		for _, ago := range []time.Duration{24 * time.Hour, time.Minute} {
			must(t, db.AddAttempts(t.Context(), []dispatch.Attempt{tap(d.ID, v.ID, dispatch.AttemptStale, now.Add(-ago))}))
		}
		oldest := now.Add(-time.Hour).Truncate(time.Microsecond)
		db.exec(t, fmt.Sprintf(`INSERT INTO tap_batches (id, dispatch_id, instance, count, taps) SELECT CONCAT('%s', LPAD(n, 10, '0')), '%s', '', 0, '[]'
			FROM %s WHERE n < %d ORDER BY n`, dispatch.MinAttemptID(oldest)[:20], d.ID, numbers(6), signalBatches-1))
		got, err := db.TapStatistics(t.Context(), v.ID)
		must(t, err)
		if got.Taps != 1 || !got.Since.Equal(oldest) {
			t.Errorf("%d taps since %s, want 1 since %s", got.Taps, got.Since, oldest)
		}
	})
}

// Fields that a later version appends are ignored; a damaged row is reported, with its dispatch.
func TestStoredTaps(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		db.exec(t, `INSERT INTO tap_batches (id, dispatch_id, instance, count, taps) VALUES ('att_1', ?, 'here', 1, '[["att_1",1,"drv_1","SUCCESS",5,"3.1",{"later":1}]]')`, d.ID)
		if taps := db.allTaps(t, d.ID, 10); len(taps) != 1 || taps[0].Driver != "drv_1" || taps[0].AppVersion != "3.1" || taps[0].At.UnixMicro() != 5 {
			t.Errorf("%+v", taps)
		}
		for _, damaged := range []string{`[["att_1",1,"drv_1","SUCCESS",5]]`, `[["att_1","1","drv_1","SUCCESS",5,""]]`, `[[`, ``} {
			db.exec(t, "UPDATE tap_batches SET taps = ?", damaged)
			if _, _, err := db.Attempts(t.Context(), d.ID, 0, dispatch.Page{Limit: 1}); err == nil || !strings.Contains(err.Error(), string(d.ID)) {
				t.Errorf("%s: %v", damaged, err)
			}
		}
	})
}
