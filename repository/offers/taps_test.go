package offers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/repository"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/retention"
)

// allTaps reads the taps on a dispatch in pages of that size.
func allTaps(db *Bench, t testing.TB, id dispatch.ID, limit int) (all []dispatch.Attempt) {
	t.Helper()
	for page := (dispatch.Page{Limit: limit}); ; {
		items, next, err := db.Attempts(t.Context(), id, 0, page)
		Must(t, err)
		for _, r := range items {
			all = append(all, r.Attempt)
		}
		if page.Cursor = next; next == "" {
			return all
		}
	}
}

// stored is a tap as the ledger has it if there was no other like it.
func stored(a dispatch.Attempt) dispatch.Attempt {
	a.LastAt, a.Count = a.At, 1
	return a
}

// A tap is read as it was written, whatever an app calls its version.
func TestTapsAreReadAsWritten(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d := db.Add(t, nil)
		var taps, want []dispatch.Attempt
		for i, version := range []string{"", "3.1", `"\]["`, "버전 3", "a\tb\x01<&>", strings.Repeat("長", 64)} {
			a := tap(d.ID, dispatch.NewDriverID(d.CreatedAt), "ALREADY_TAKEN", d.CreatedAt.Add(time.Duration(i)*time.Millisecond))
			a.AppVersion = version
			taps, want = append(taps, a), append(want, stored(a))
		}
		for range 2 { // the second time because the reply to the first COMMIT may be lost
			Must(t, db.AddAttempts(t.Context(), taps))
		}
		testkit.Equal(t, "the taps", want, allTaps(db, t, d.ID, 100))
	})
}

// However often a driver taps, at however many instances, and whatever round the app sends, the ledger of a round has one row for each
// result, with the first, the last and how many. The driver's other results, other drivers' taps, and taps in the next round are rows of
// their own.
func TestEqualTapsAreOneRow(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v, d := db.Fleet(t, 2), db.Add(t, nil)
		other := db.By(OpenWith(t, db.URL, repository.Options{Log: Quiet, Patience: testkit.Patience}))
		at := func(us int) time.Time { return d.CreatedAt.Add(time.Duration(us) * time.Microsecond) }
		write := func(by *Bench, from, n int) {
			t.Helper()
			all := make([]dispatch.Attempt, n)
			for i := range all {
				all[i] = tap(d.ID, v[0].ID, "NOT_ELIGIBLE", at(from+i))
				all[i].Round = i // 0 is the current one, and those above have not begun
			}
			Must(t, by.AddAttempts(t.Context(), all))
		}
		write(db, 0, 150)
		write(other, 1000, 150)
		write(other, 1000, 150) // the reply to the COMMIT was lost
		write(db, 500, 150)
		db.MustCount(t, 1, "taps WHERE dispatch_id = ?", d.ID)
		got := allTaps(db, t, d.ID, 10)[0]
		if got.Count != 450 || !got.At.Equal(at(0)) || !got.LastAt.Equal(at(1149)) {
			t.Errorf("%d taps from %s to %s", got.Count, got.At, got.LastAt)
		}
		one, two := tap(d.ID, v[0].ID, "ALREADY_TAKEN", at(2000)), tap(d.ID, v[1].ID, "NOT_ELIGIBLE", at(3000))
		Must(t, db.AddAttempts(t.Context(), []dispatch.Attempt{two, one}))
		db.Exec(t, "UPDATE dispatches SET round = 2 WHERE id = ?", d.ID)
		next := tap(d.ID, v[0].ID, "NOT_ELIGIBLE", at(4000))
		next.Round = 2
		Must(t, db.AddAttempts(t.Context(), []dispatch.Attempt{next}))
		testkit.Equal(t, "the rows", []dispatch.Attempt{got, stored(one), stored(two), stored(next)}, allTaps(db, t, d.ID, 10))
	})
}

// Two instances that store the taps of the same drivers at once, in different orders, store all of them.
func TestTapsOfTwoInstancesAtOnce(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d := db.Add(t, nil)
		by := []*Bench{db, db.By(OpenWith(t, db.URL, repository.Options{Log: Quiet, Patience: testkit.Patience}))}
		const drivers, rounds = 30, 20
		v := db.Fleet(t, drivers)
		testkit.Together(len(by), func(i int) {
			for r := range rounds {
				taps := make([]dispatch.Attempt, drivers)
				for k := range taps {
					taps[k] = tap(d.ID, v[k].ID, "ALREADY_TAKEN", d.CreatedAt.Add(time.Duration(r*10+i+1)*time.Millisecond))
				}
				if i == 1 {
					slices.Reverse(taps)
				}
				Must(t, by[i].AddAttempts(t.Context(), taps))
			}
		})
		db.MustCount(t, drivers, "taps WHERE dispatch_id = ? AND count = ?", d.ID, len(by)*rounds)
	})
}

// Pages of any size return all taps, the oldest first.
func TestPagesOfTaps(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d := db.Add(t, nil)
		var taps, want []dispatch.Attempt
		for i := range 20 {
			a := tap(d.ID, dispatch.NewDriverID(d.CreatedAt), "ALREADY_TAKEN", d.CreatedAt.Add(time.Duration(i)*time.Millisecond))
			taps, want = append(taps, a), append(want, stored(a))
		}
		slices.Reverse(taps)
		Must(t, db.AddAttempts(t.Context(), taps))
		for _, limit := range []int{1, 3, 19, 20, 21} {
			testkit.Equal(t, fmt.Sprintf("the taps in pages of %d", limit), want, allTaps(db, t, d.ID, limit))
		}
	})
}

// A driver's signals count the taps of thirty days, and those that could not win of one day.
func TestTapsOfThirtyDays(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v, now := db.Fleet(t, 2), db.Now(t)
		for _, ago := range []time.Duration{30 * 24 * time.Hour, 24 * time.Hour} {
			for _, later := range []time.Duration{-30 * time.Minute, -20 * time.Minute, 20 * time.Minute} {
				d := db.Add(t, nil)
				for i := range v {
					Must(t, db.AddAttempts(t.Context(), []dispatch.Attempt{tap(d.ID, v[i].ID, dispatch.AttemptStale, now.Add(later-ago))}))
				}
			}
		}
		week := db.By(OpenWith(t, db.URL, repository.Options{Log: Quiet, Retention: retention.Periods{Attempts: 7 * Day}}))
		year := db.By(OpenWith(t, db.URL, repository.Options{Log: Quiet, Retention: retention.Periods{Attempts: 365 * Day}}))
		for _, c := range []struct {
			db   *Bench
			back time.Duration
			taps int
		}{{db, 30 * Day, 4}, {year, 30 * Day, 4}, {week, 7 * Day, 3}} {
			before := db.Now(t)
			got, err := c.db.TapStatistics(t.Context(), v[0].ID)
			Must(t, err)
			if got.Taps != c.taps || got.RecentUnwinnable != 1 {
				t.Errorf("%d taps in %s, want %d; %d of the last day could not win, want 1", got.Taps, c.back, c.taps, got.RecentUnwinnable)
			}
			if since := got.Since.Add(c.back); since.Before(before) || since.After(db.Now(t)) {
				t.Errorf("taps are counted since %s, want %s before the question", got.Since, c.back)
			}
		}
	})
}
