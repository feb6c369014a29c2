package lock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// shedLockDDL is from ShedLock's README: names are case-insensitive, and times have milliseconds. The attributes of
// lock_until are those that servers with explicit_defaults_for_timestamp=OFF, such as MariaDB before 10.10, give to
// TIMESTAMP(3) NOT NULL.
const shedLockDDL = `CREATE TABLE shedlock(name VARCHAR(64) NOT NULL,
	lock_until TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
	locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))`

// eachTable runs the test on a Table in each kind of database, with our schema and, on servers, with ShedLock's.
func eachTable(t *testing.T, test func(*testing.T, *testDB, *Table)) {
	t.Helper()
	onEachDatabase(t, func(t *testing.T, s *testDB) {
		if s.dialect == MySQL {
			t.Run("ShedLock's columns", func(t *testing.T) {
				s.shedLock(t)
				test(t, s, NewTable(s.DB, s.dialect))
				s.exec(t, "DROP TABLE shedlock")
				s.create(t)
			})
		}
		t.Run("columns of ours", func(t *testing.T) { test(t, s, NewTable(s.DB, s.dialect)) })
	})
}

func (s *testDB) shedLock(t testing.TB) {
	t.Helper()
	s.exec(t, "DROP TABLE shedlock")
	s.exec(t, shedLockDDL)
}

// mustAcquire acquires a name that must be free.
func mustAcquire(t testing.TB, s Strategy, name, owner string, ttl time.Duration) Grant {
	t.Helper()
	g, err := s.Acquire(t.Context(), name, owner, ttl)
	if err != nil {
		t.Fatalf("%s for %s: %v", name, owner, err)
	}
	return g
}

// mustBeHeld fails the test unless an acquisition is refused because owner holds name.
func mustBeHeld(t testing.TB, s Strategy, name, owner string) *HeldError {
	t.Helper()
	var held *HeldError
	if g, err := s.Acquire(t.Context(), name, "a rival", time.Second); !errors.As(err, &held) || held.Owner != owner || g != nil {
		t.Fatalf("%s: got %v, %v, want it held by %s", name, g, err, owner)
	}
	return held
}

func TestTableEndsOnTheDatabasesClock(t *testing.T) {
	eachTable(t, func(t *testing.T, s *testDB, table *Table) {
		a := mustAcquire(t, table, "job", "a", time.Minute)
		// ShedLock's columns are rounded to a millisecond.
		if held := mustBeHeld(t, table, "job", "a"); held.Remaining < 50*time.Second || held.Remaining > time.Minute+time.Millisecond {
			t.Errorf("%s left", held.Remaining)
		}
		for range 20 { // also within a millisecond, where the row does not change
			wantErr(t, "extend", a.Extend(t.Context(), time.Hour), nil)
		}
		if held := mustBeHeld(t, table, "job", "a"); held.Remaining < 50*time.Minute {
			t.Errorf("%s left", held.Remaining)
		}
		wantErr(t, "release after 20 ms", a.Release(t.Context(), 20*time.Millisecond), nil)
		var b Grant
		testkit.Eventually(t, "free again", func() (ok bool) {
			var err error
			b, err = table.Acquire(t.Context(), "job", "b", 20*time.Millisecond)
			return err == nil
		})
		if b.Fence() <= a.Fence() {
			t.Errorf("fence %d after %d", b.Fence(), a.Fence())
		}
		wantErr(t, "extend a lock of another", a.Extend(t.Context(), time.Hour), ErrStolen)
		wantErr(t, "release a lock of another", a.Release(t.Context(), 0), ErrStolen)
		testkit.Eventually(t, "the end", func() bool {
			h, err := table.Show(t.Context(), "job")
			return err == nil && h.Owner == ""
		})
		wantErr(t, "extend an expired lock", b.Extend(t.Context(), time.Hour), ErrExpired)
		wantErr(t, "release an expired lock", b.Release(t.Context(), 0), ErrExpired)
		wantErr(t, "release of no row", (&tableGrant{table: table, name: "none", owner: "x"}).Release(t.Context(), 0), ErrExpired)
	})
}

// A released name is free at once, even if its end is rounded, and each fence is larger than the one before and equal to
// the stored one.
func TestTableFence(t *testing.T) {
	eachTable(t, func(t *testing.T, s *testDB, table *Table) {
		before := time.Now().Add(-time.Second).UnixMicro()
		last := before
		for i := range testkit.Scale(20, 100) {
			g := mustAcquire(t, table, "job", "me", time.Minute)
			if g.Fence() <= last || g.Fence() > last+time.Minute.Microseconds() {
				t.Fatalf("fence %d after %d", g.Fence(), last)
			}
			last = g.Fence()
			if h, err := table.Show(t.Context(), "job"); err != nil || h.Fence != last || h.Owner != "me" {
				t.Fatalf("%+v, %v, want the fence %d", h, err, last)
			}
			if i%2 == 0 { // the same owner acquires it again, for the whole TTL
				wantErr(t, "shorten", g.Release(t.Context(), time.Second), nil)
				again := mustAcquire(t, table, "job", "me", time.Hour)
				if h, _ := table.Show(t.Context(), "job"); again.Fence() <= last || h.Remaining < 50*time.Minute {
					t.Fatalf("fence %d after %d, %s left", again.Fence(), last, h.Remaining)
				}
				last = again.Fence()
			}
			wantErr(t, "release", g.Release(t.Context(), 0), nil)
			wantErr(t, "release again", g.Release(t.Context(), 0), ErrExpired)
		}
		g := mustAcquire(t, table, "job", "me", time.Minute)
		if h, err := table.Break(t.Context(), "job"); err != nil || h.Owner != "me" || h.Fence <= g.Fence() {
			t.Errorf("broken is %+v, %v, after the fence %d", h, err, g.Fence())
		}
		wantErr(t, "extend what was broken", g.Extend(t.Context(), time.Minute), ErrExpired)
	})
}

// While the clock stands still and a column rounds, a released name is free and the fence grows.
func TestTableWithinAMillisecond(t *testing.T) {
	onEachServer(t, func(t *testing.T, s *testDB) {
		s.shedLock(t)
		c := s.config.Clone()
		c.Params = map[string]string{"timestamp": "1800000000.000600"}
		table, last := NewTable(openStore(t, c).DB, MySQL), int64(0)
		for i := range int64(3) {
			g := mustAcquire(t, table, "job", itoa(i), time.Minute)
			if h, err := table.Show(t.Context(), "job"); err != nil || g.Fence() <= last || h.Fence != g.Fence() {
				t.Errorf("fence %d after %d, stored is %+v, %v", g.Fence(), last, h, err)
			}
			last = g.Fence()
			wantErr(t, "extend to where it is", g.Extend(t.Context(), time.Minute), nil)
			wantErr(t, "extend to where it is", g.Extend(t.Context(), time.Minute), nil)
			wantErr(t, "release", g.Release(t.Context(), 0), nil)
		}
	})
}

// The fence grows even if the clock goes back.
func TestTableFenceWithAClockThatGoesBack(t *testing.T) {
	eachTable(t, func(t *testing.T, s *testDB, table *Table) {
		g := mustAcquire(t, table, "job", "a", time.Minute)
		wantErr(t, "release", g.Release(t.Context(), 0), nil)
		ahead := "locked_at + INTERVAL 1 HOUR"
		if s.dialect == SQLite {
			ahead = "strftime('%Y-%m-%d %H:%M:%f', locked_at, '+1 hour')"
		}
		s.exec(t, "UPDATE shedlock SET lock_until = lock_until, locked_at = "+ahead)
		b := mustAcquire(t, table, "job", "b", time.Minute)
		if want := g.Fence() + time.Hour.Microseconds() + 1000; b.Fence() != want {
			t.Errorf("fence %d, want %d", b.Fence(), want)
		}
	})
}

// Names and owners that a column would truncate or fold are refused.
func TestTableRefuses(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, s *testDB) {
		table := NewTable(s.DB, s.dialect)
		for _, name := range []string{"", strings.Repeat("n", MaxNameLength+1), "é", "a b", "a\x00"} {
			wantErr(t, name, acquireErr(t, table, name, "me", time.Minute), ErrInvalid)
			_, err := table.Break(t.Context(), name)
			wantErr(t, name, err, ErrInvalid)
		}
		for _, owner := range []string{"", strings.Repeat("o", maxOwner+1)} {
			wantErr(t, "owner", acquireErr(t, table, "free", owner, time.Minute), ErrInvalid)
		}
		mustAcquire(t, table, "free", strings.Repeat("o", maxOwner), time.Minute)
		if n := s.queryInt(t, "SELECT COUNT(*) FROM shedlock"); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
}

// wantOneWinner fails the test unless exactly one of the rivals acquires the name.
func wantOneWinner(t *testing.T, strategy Strategy, name string, rivals int) {
	t.Helper()
	won := make(chan Grant, rivals)
	testkit.Together(rivals, func(i int) {
		g, err := strategy.Acquire(t.Context(), name, itoa(int64(i)), time.Minute)
		switch {
		case err == nil:
			won <- g
		case !errors.Is(err, ErrHeld):
			t.Error(err)
		}
	})
	if len(won) != 1 {
		t.Fatalf("%d of %d acquired the name", len(won), rivals)
	}
	wantErr(t, "release", (<-won).Release(t.Context(), 0), nil)
}

// A name that ShedLock's own statements hold is held for Table, and the other way round.
func TestTableIsSharedWithShedLock(t *testing.T) {
	const (
		insert = `INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES(?,
			TIMESTAMPADD(MICROSECOND, ? * 1000, UTC_TIMESTAMP(3)), UTC_TIMESTAMP(3), 'host-1')`
		update = `UPDATE shedlock SET lock_until = TIMESTAMPADD(MICROSECOND, ? * 1000, UTC_TIMESTAMP(3)), locked_at = UTC_TIMESTAMP(3),
			locked_by = 'host-1' WHERE name = ? AND lock_until <= UTC_TIMESTAMP(3)`
		unlock = `UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = ? AND locked_by = 'host-1'`
	)
	onEachServer(t, func(t *testing.T, s *testDB) {
		s.shedLock(t)
		for _, zone := range []string{"'+00:00'", "'+09:00'"} {
			s.exec(t, "DELETE FROM shedlock")
			c := s.config.Clone()
			c.Params = map[string]string{"time_zone": zone}
			theirs := openStore(t, c)
			table := NewTable(openStore(t, c).DB, MySQL)
			theirs.exec(t, insert, "job", 120_000)
			if held := mustBeHeld(t, table, "job", "host-1"); held.Remaining < time.Minute || held.Remaining > 2*time.Minute {
				t.Errorf("%s left", held.Remaining)
			}
			theirs.exec(t, unlock, "job")
			g := mustAcquire(t, table, "job", "host-1/mine", time.Minute)
			mustBeHeld(t, table, "JOB", "host-1/mine") // ShedLock's names are case-insensitive: one lock, not two holders
			if n := theirs.exec(t, update, 1000, "job"); n != 0 {
				t.Error("ShedLock acquired a name that is held")
			}
			if n := theirs.exec(t, unlock, "job"); n != 0 {
				t.Error("ShedLock released the lock of another owner")
			}
			wantErr(t, "extend", g.Extend(t.Context(), time.Minute), nil)
			wantErr(t, "release", g.Release(t.Context(), 0), nil)
			wantOneWinner(t, table, "another", 20)
			wantOneWinner(t, table, "another", 20)
			testkit.Eventually(t, "ShedLock has it", func() bool { return theirs.exec(t, update, 60_000, "job") == 1 })
			wantErr(t, "extend a lock of ShedLock", g.Extend(t.Context(), time.Minute), ErrStolen)
			if list, err := table.List(t.Context()); err != nil || len(list) != 1 || list[0].Owner != "host-1" {
				t.Errorf("%+v, %v", list, err)
			}
		}
	})
}

// With our schema, sessions may have any time zone.
func TestTableInTwoTimeZones(t *testing.T) {
	onEachServer(t, func(t *testing.T, s *testDB) {
		table := NewTable(s.DB, MySQL)
		c := s.config.Clone()
		c.Params = map[string]string{"time_zone": "'-08:00'"}
		far := NewTable(openStore(t, c).DB, MySQL)
		g := mustAcquire(t, table, "job", "me", time.Minute)
		if held := mustBeHeld(t, far, "job", "me"); held.Remaining < 50*time.Second || held.Remaining > time.Minute+time.Millisecond {
			t.Errorf("%s left", held.Remaining)
		}
		wantErr(t, "release", g.Release(t.Context(), 0), nil)
		if next := mustAcquire(t, far, "job", "you", time.Minute); next.Fence() <= g.Fence() || next.Fence() > g.Fence()+time.Minute.Microseconds() {
			t.Errorf("fence %d after %d", next.Fence(), g.Fence())
		}
	})
}

func TestTableStatements(t *testing.T) {
	onEachOwnServer(t, func(t *testing.T, _ *servertest.Database, s *testDB) {
		c := s.config.Clone()
		c.InterpolateParams = true
		o := openStore(t, c)
		o.SetMaxOpenConns(1)
		table := NewTable(o.DB, MySQL)
		var g Grant
		for what, want := range map[string]int64{"new": 2, "known": 2} {
			if what == "known" {
				wantErr(t, "release", mustAcquire(t, table, what, "x", time.Minute).Release(t.Context(), 0), nil)
			}
			if n := o.countStatements(t, func() { g = mustAcquire(t, table, what, "me", time.Minute) }); n != want {
				t.Errorf("winning %s: %d statements", what, n)
			}
			if n := o.countStatements(t, func() { mustBeHeld(t, table, what, "me") }); n != 1 {
				t.Errorf("losing: %d statements", n)
			}
		}
		if n := o.countStatements(t, func() { wantErr(t, "extend", g.Extend(t.Context(), time.Minute), nil) }); n != 1 {
			t.Errorf("extending: %d statements", n)
		}
		if n := o.countStatements(t, func() { wantErr(t, "release", g.Release(t.Context(), 0), nil) }); n != 1 {
			t.Errorf("releasing: %d statements", n)
		}
	})
}
