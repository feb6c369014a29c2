package board_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/internal/testkit"
	"firsttap/repository/board"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	. "firsttap/repository/repositorytest"
)

// unseen returns the dispatches on the board, and fails the test unless it counts as many.
func unseen(db *Bench, t *testing.T, region string) []dispatch.ID {
	t.Helper()
	b, err := db.Board.Board(t.Context(), region)
	Must(t, err)
	if b.UnseenIDs == nil || b.Unseen != len(b.UnseenIDs) {
		t.Errorf("%d are unseen: %v", b.Unseen, b.UnseenIDs)
	}
	return b.UnseenIDs
}

// TestBoardCounts: the board counts dispatches by what they are now, whatever is stored, and those that ended within a day.
func TestBoardCounts(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		add := func(n int, region string, status dispatch.Status, opened, expired, changed time.Duration) {
			for range n {
				d := db.Add(t, func(v *dispatch.Dispatch) { v.Region = region })
				now := db.Now(t)
				db.Exec(t, "UPDATE dispatches SET status = ?, opens_at = ?, expires_at = ?, updated_at = ? WHERE id = ?",
					status, database.Micros(now.Add(-opened)), database.Micros(now.Add(-expired)), database.Micros(now.Add(-changed)), d.ID)
			}
		}
		const hour = time.Hour
		for region, n := range map[string]int{"seoul": 1, "busan": 10} {
			add(n, region, dispatch.Pending, -hour, -2*hour, hour)    // opens later
			add(2*n, region, dispatch.Pending, 30*hour, -hour, hour)  // open
			add(3*n, region, dispatch.Pending, 2*hour, hour, 2*hour)  // over, and not marked yet
			add(n, region, dispatch.Pending, 30*hour, 25*hour, hour)  // over for more than a day
			add(4*n, region, dispatch.Expired, 30*hour, hour, hour)   // over
			add(n, region, dispatch.Expired, 30*hour, hour, 25*hour)  // for more than a day
			add(5*n, region, dispatch.Canceled, -hour, -2*hour, hour) // before it opened
			add(6*n, region, dispatch.Accepted, 50*hour, 40*hour, 40*hour)
			add(n, region, dispatch.InProgress, 50*hour, 40*hour, 40*hour)
		}
		for region, n := range map[string]int{"": 11, "seoul": 1, "busan": 10, "nowhere": 0} {
			b, err := db.Board.Board(t.Context(), region)
			Must(t, err)
			testkit.Equal(t, region, map[dispatch.Status]int{
				dispatch.Scheduled: n, dispatch.Pending: 2 * n, dispatch.Expired: 7 * n, dispatch.Canceled: 5 * n, dispatch.Accepted: 6 * n,
				dispatch.InProgress: n, dispatch.Completed: 0,
			}, b.Counts)
			open := map[string]int{}
			for _, r := range b.Regions {
				open[r.Region] = r.Open
			}
			want := map[string]int{"seoul": 2, "busan": 20}
			if region != "" {
				want = map[string]int{region: 2 * n}
			}
			if n == 0 {
				want = map[string]int{}
			}
			testkit.Equal(t, region+": open ones by region", want, open)
		}
	})
}

// TestUnseen: the board lists offers that are open for a minute in a round of that age and unseen in it; the oldest first.
func TestUnseen(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		ago := func(d time.Duration, edit func(*dispatch.Dispatch)) dispatch.ID {
			return db.Add(t, func(v *dispatch.Dispatch) {
				v.OpensAt, v.ExpiresAt = v.OpensAt.Add(time.Minute-d), v.ExpiresAt.Add(time.Hour)
				if edit != nil {
					edit(v)
				}
			}).ID
		}
		if found := unseen(db, t, ""); len(found) != 0 {
			t.Errorf("of none: %v", found)
		}
		newer, older := ago(2*time.Minute, nil), ago(20*time.Minute, nil)
		elsewhere := ago(10*time.Minute, func(v *dispatch.Dispatch) { v.Region = "busan" })
		for _, edit := range []func(*dispatch.Dispatch){
			func(v *dispatch.Dispatch) { v.OpensAt = v.OpensAt.Add(time.Hour) },     // not open yet
			func(v *dispatch.Dispatch) { v.ExpiresAt = v.OpensAt.Add(time.Second) }, // over
			func(v *dispatch.Dispatch) { v.Status = dispatch.Canceled },
		} {
			ago(5*time.Minute, edit)
		}
		seen, seenBefore := ago(5*time.Minute, nil), ago(5*time.Minute, nil)
		young := ago(30*time.Second, nil)
		db.Exec(t, "UPDATE dispatches SET updated_at = updated_at - 3600000000 WHERE id <> ?", young)
		db.Exec(t, "UPDATE events SET at = at - 3600000000")
		driver := db.Fleet(t, 1)[0].ID
		for _, id := range []dispatch.ID{seen, seenBefore} {
			Must(t, db.MarkSeen(t.Context(), id, 1, driver))
		}
		db.Exec(t, "UPDATE dispatches SET round = 2 WHERE id = ?", seenBefore) // and not in this one
		ago(15*time.Minute, nil)                                               // by its terms, which are new
		for region, want := range map[string][]dispatch.ID{
			"": {older, elsewhere, seenBefore, newer}, "seoul": {older, seenBefore, newer}, "busan": {elsewhere}, "nowhere": {},
		} {
			if found := unseen(db, t, region); !slices.Equal(found, want) {
				t.Errorf("%q: %v, want %v", region, found, want)
			}
		}
	})
}

// TestManyUnseen are counted up to dispatch.MaxUnseen. Of those that are counted, the first to have opened are named.
func TestManyUnseen(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		ids := unseenDispatches(db, t, dispatch.MaxUnseen+5)
		for _, region := range []string{"", "seoul"} {
			for _, c := range []struct{ unseen, from, last int }{{dispatch.MaxUnseen, 0, dispatch.MaxUnseen}, {dispatch.MaxUnseen - 1, 6, dispatch.MaxUnseen + 5}} {
				db.Exec(t, "UPDATE dispatches SET status = CASE WHEN id < ? THEN 'CANCELED' ELSE 'PENDING' END", ids[c.from])
				named := slices.Clone(ids[c.last-board.MaxUnseenIDs : c.last])
				slices.Reverse(named)
				b, err := db.Board.Board(t.Context(), region)
				if err != nil || b.Unseen != c.unseen || !slices.Equal(b.UnseenIDs, named) {
					t.Errorf("%q: %d are unseen, want %d; %d are named, %v", region, b.Unseen, c.unseen, len(b.UnseenIDs), err)
				}
			}
		}
	})
}

// unseenDispatches adds n dispatches that nobody has seen, and returns them in the order of their creation. Each opened a minute before the
// one that was created before it.
func unseenDispatches(db *Bench, t testing.TB, n int) []dispatch.ID {
	t.Helper()
	now := db.Now(t)
	rows, ids := make([]dispatches.Row, n), make([]dispatch.ID, n)
	for i := range rows {
		at := now.Add(time.Duration(i-n) * time.Millisecond)
		d := dispatch.Dispatch{
			ID: dispatch.NewID(at), Status: dispatch.Pending, Terms: SomeTerms(now), Round: 1, Version: 1, CreatedAt: at, UpdatedAt: now.Add(-time.Hour),
			Window: dispatch.Window{OpensAt: now.Add(-time.Duration(i+2) * time.Minute), ExpiresAt: now.Add(time.Hour)},
		}
		rows[i], ids[i] = dispatches.RowOf(d), d.ID
	}
	db.Write(t, rows)
	return ids
}

// TestBoardOnSQLite goes along the indexes, as the servers do: TestPagesCostTheSame counts what they read.
func TestBoardOnSQLite(t *testing.T) {
	db := Migrated(t, "sqlite://"+t.TempDir()+"/test.db")
	for _, region := range []string{"", "seoul"} {
		db.MustReadFew(t, map[string]Reading{region: {Do: func() error { unseen(db, t, region); return nil }}})
	}
}

// running begins a run of a job that is known then.
func running(db *Bench, t testing.TB, job, owner string) cronjob.Run {
	t.Helper()
	db.Known(t, job)
	run, err := db.BeginRun(t.Context(), job, owner, time.Minute, func(_ cronjob.JobState, now time.Time) time.Time { return now })
	Must(t, err)
	return run
}

// supplied returns the stored counts: "region on duty/open", in the order of the regions.
func supplied(db *Bench, t testing.TB, slot time.Time) string {
	t.Helper()
	var rows []struct {
		Region       string
		OnDuty, Open int
	}
	Must(t, db.Serve.With(t.Context()).Raw("SELECT region, on_duty, open FROM supply WHERE at = ? ORDER BY region", database.Micros(slot)).Scan(&rows).Error)
	all := make([]string, len(rows))
	for i, r := range rows {
		all[i] = fmt.Sprintf("%s %d/%d", r.Region, r.OnDuty, r.Open)
	}
	return strings.Join(all, ", ")
}

func TestRecordSupply(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		var drivers []dispatch.Driver
		for i, edit := range []func(*dispatch.Driver){
			func(*dispatch.Driver) {}, // seoul and busan
			func(v *dispatch.Driver) { v.Regions = []string{"busan", "seoul"} },
			func(v *dispatch.Driver) { v.Regions = []string{"제주", "seoul", "seoul"} },
			func(v *dispatch.Driver) { v.SuspendedUntil = &past },
			func(v *dispatch.Driver) { v.SuspendedUntil = &future },
			func(v *dispatch.Driver) { v.OnDuty = false },
		} {
			v := SomeDriver(i)
			edit(&v)
			drivers = append(drivers, v)
		}
		Must(t, db.AddDrivers(t.Context(), drivers, false))
		for _, edit := range []func(*dispatch.Dispatch){
			nil, nil,
			func(d *dispatch.Dispatch) { d.Region = "daegu" },
			func(d *dispatch.Dispatch) { d.OpensAt = future },
			func(d *dispatch.Dispatch) { d.ExpiresAt = past },
			func(d *dispatch.Dispatch) { d.Region, d.OpensAt = "gwangju", future },
			func(d *dispatch.Dispatch) { d.Region, d.ExpiresAt = "ulsan", past },
		} {
			db.Add(t, edit)
		}
		db.MustAccept(t, db.Add(t, nil).ID, drivers[0].ID)

		run := running(db, t, "supply", "host:1/a")
		n, err := db.RecordSupply(t.Context(), run)
		Must(t, err)
		want := " 4/3, busan 3/0, daegu 0/1, seoul 4/2, 제주 1/0"
		if got := supplied(db, t, run.Slot); got != want || n != 4 {
			t.Errorf("%d regions: %q, want %q", n, got, want)
		}
		if last := db.LastRun(t, "supply"); last == nil || last.Status != cronjob.Succeeded || last.Result != "4 regions" {
			t.Errorf("the run: %+v, %v", last, err)
		}
		// A late or repeated count writes nothing.
		for _, late := range []cronjob.Run{run, {Job: "supply", Slot: run.Slot, Owner: "host:2/b"}} {
			if _, err := db.RecordSupply(t.Context(), late); !errors.Is(err, dispatch.ErrNotLeased) {
				t.Errorf("%s counts again: %v", late.Owner, err)
			}
		}
		if got := supplied(db, t, run.Slot); got != want {
			t.Errorf("then %q", got)
		}
	})
}

func TestRecordSupplyWithoutDispatches(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		run := running(db, t, "supply", "host:1/a")
		if n, err := db.RecordSupply(t.Context(), run); n != 0 || err != nil || supplied(db, t, run.Slot) != " 0/0" {
			t.Errorf("%d, %v, %q", n, err, supplied(db, t, run.Slot))
		}
		other := running(db, t, "supply", "host:1/b")
		Must(t, db.Interrupt(t, other))
		if _, err := db.RecordSupply(t.Context(), other); !errors.Is(err, dispatch.ErrNotLeased) || db.Count(t, "supply") != 1 {
			t.Errorf("a run that was given up: %v", err)
		}
	})
}

// Of a long time with many regions, the answer has every nth minute, with all regions, also if the last minute had few.
func TestSupplyIsBounded(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		const regions, step = 500, 2
		const slots = board.MaxSupplyPoints/regions + 3
		now := database.Micros(db.Now(t))
		newest := now - now%(step*time.Minute).Microseconds()
		db.Exec(t, "INSERT INTO supply (at, region, on_duty, open) VALUES (?, '', 1, 1)", newest)
		for i := range slots {
			var args []any
			for k := range regions {
				args = append(args, newest-int64(i+1)*time.Minute.Microseconds(), fmt.Sprint("region ", k))
			}
			db.Exec(t, "INSERT INTO supply (at, region, on_duty, open) VALUES "+strings.TrimSuffix(strings.Repeat("(?, ?, 1, 1),", regions), ","), args...)
		}
		all, err := db.Supply(t.Context(), "", 168)
		Must(t, err)
		testkit.Equal(t, "points", 1+slots/step*regions, len(all))
		minutes := map[int64]int{}
		for _, s := range all {
			minutes[(newest-database.Micros(s.At))/time.Minute.Microseconds()%step]++
		}
		testkit.Equal(t, "points that are no minute of a step", 0, len(all)-minutes[0])
		one, err := db.Supply(t.Context(), "region 7", 168)
		Must(t, err)
		testkit.Equal(t, "points of one region", slots, len(one))
	})
}
