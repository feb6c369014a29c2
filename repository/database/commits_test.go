package database_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/internal/doctor"
	"firsttap/internal/doctor/dbcheck"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

// A server that answers reads and commits nothing is away, and so is one that refuses the account's writes.
func TestProbeOfAServerThatCommitsNothing(t *testing.T) {
	EachOwn(t, func(t *testing.T, db *Bench) {
		p := Started(t, db.Usual(t).Store)
		becomes(p, t, true)
		locking, err := db.Raw.Conn(t.Context())
		Must(t, err)
		defer locking.Close()
		for range 2 {
			Must(t, ErrorOf(locking.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK")))
			becomes(p, t, false)
			Must(t, ErrorOf(locking.ExecContext(t.Context(), "UNLOCK TABLES")))
			becomes(p, t, true)
		}
		app, _ := db.Restricted(t, "SELECT, UPDATE, EXECUTE")
		if app.Probe(t.Context()).Up() {
			t.Error("up, though the account may not insert")
		}
	})
}

// A database that commits writes and lacks a table that taps or drivers need is away, until the table is there.
func TestProbeOfMissingTables(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		for _, table := range []string{"claims", "drivers", "taps", "devices"} {
			db.Without(t, table, func() {
				if db.Probe(t.Context()).Up() {
					t.Errorf("up, without %s", table)
				}
			})
		}
		p := Started(t, db.Store)
		db.Without(t, "claims", func() { becomes(p, t, false) })
		becomes(p, t, true)
	})
}

// A server that refuses the changes of a tap is away, even if it commits other writes.
func TestProbeWithoutTheRightToTap(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		app, _ := db.Restricted(t, "SELECT, INSERT, EXECUTE")
		u, err := url.Parse(db.URL)
		Must(t, err)
		name := strings.TrimPrefix(u.Path, "/")
		db.Exec(t, "GRANT UPDATE ON "+name+".shedlock TO u"+name)
		Must(t, app.Ping(t.Context()))
		if app.Probe(t.Context()).Up() {
			t.Error("up, though the account may change no dispatch")
		}
	})
}

// Instances that check together write one row, and only one of them in a while.
func TestProbesShareAWrite(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		for range 3 {
			Must(t, db.Ping(t.Context()))
		}
		db.MustCount(t, 1, "shedlock WHERE name = '"+database.ProbeRow+"'")
	})
}

// A file that can be read, and refuses writes, is away.
func TestProbeOfAFileThatRefusesWrites(t *testing.T) {
	db := Pooled(t, servertest.SQLite)
	p := Started(t, db.Store)
	becomes(p, t, true)
	db.Exec(t, "CREATE TRIGGER full BEFORE INSERT ON shedlock BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END")
	becomes(p, t, false)
	db.Exec(t, "DROP TRIGGER full")
	becomes(p, t, true)
}

// A file whose write lock is held on and on is away, for the doctor too. One that others write to in turns is not.
func TestProbeOfAFileThatIsHeld(t *testing.T) {
	db := Pooled(t, servertest.SQLite)
	p := Started(t, db.Store)
	becomes(p, t, true)
	holder, err := db.Raw.Conn(t.Context())
	Must(t, err)
	defer holder.Close()
	run := func(statement string) {
		t.Helper()
		Must(t, ErrorOf(holder.ExecContext(t.Context(), statement)))
	}
	run("BEGIN IMMEDIATE")
	becomes(p, t, false)
	r := doctor.NewReport(doctor.Options{Each: testkit.Patience})
	dbcheck.Examine(t.Context(), r, db.URL, false, dbcheck.Secrets{})
	for _, l := range r.Lines {
		if l.Check == "database.role" && (l.Status != doctor.Fails || !strings.Contains(l.Found, "another process holds the file's write lock")) {
			t.Errorf("the doctor says %+v", l)
		}
	}
	run("ROLLBACK")
	becomes(p, t, true)

	other, err := database.SQLiteConns(strings.TrimPrefix(db.URL, "sqlite://"), 0, 1)
	Must(t, err)
	defer other.Close()
	Must(t, database.UnlessHeld(t.Context(), other, func() error {
		run("INSERT INTO fences (name, fence) VALUES ('x', 1)")
		run("BEGIN IMMEDIATE")
		return ErrorOf(other.ExecContext(t.Context(), "DELETE FROM fences"))
	}))
	run("ROLLBACK")
}

// A server does not notice that a caller has given up. However many do, it has no more connections than the pool may have, but for the one
// that asks which of them have ended.
func TestStatementsThatAreGivenUpCount(t *testing.T) {
	EachOwn(t, func(t *testing.T, db *Bench) {
		s := db.Usual(t)
		locking, err := db.Raw.Conn(t.Context())
		Must(t, err)
		defer locking.Close()
		Must(t, ErrorOf(locking.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK")))
		write := func(name string) error {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			return s.Decide.With(ctx).Exec("INSERT INTO fences (name, fence) VALUES (?, 1)", name).Error
		}
		for round := range 5 {
			var writing sync.WaitGroup
			for k := range database.DecideConns {
				writing.Go(func() {
					if write(fmt.Sprintf("%d-%d", round, k)) == nil {
						t.Error("a write is committed under a lock of all tables")
					}
				})
			}
			writing.Wait()
		}
		n := 0
		for _, session := range servertest.Sessions(t, db.Raw) {
			if strings.HasPrefix(session.Statement, "INSERT INTO fences") {
				n++
			}
		}
		if n == 0 || n > database.DecideConns {
			t.Errorf("the server executes %d writes of a pool of %d connections", n, database.DecideConns)
		}
		Must(t, ErrorOf(locking.ExecContext(t.Context(), "UNLOCK TABLES")))
		testkit.Eventually(t, "a write is committed again", func() bool { return write("after") == nil })
	})
}

// A replica that can't be reached, or refuses the password, is no reason not to start. The log says once that it is left.
func TestStartWithoutTheReplica(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		db.NotOnTiDB(t, "replicas")
		u, err := url.Parse(db.URL)
		Must(t, err)
		wrong, away := *u, *u
		wrong.User, away.Host = url.UserPassword("root", "a-wrong-password"), testkit.FreeAddress(t)
		for what, replica := range map[string]*url.URL{"refuses the password": &wrong, "can't be reached": &away} {
			log := &testkit.LogBuffer{}
			s := OpenWith(t, db.URL, repository.Options{Log: slog.New(slog.NewTextHandler(log, nil)), Patience: testkit.Patience, ReplicaURL: replica.String()})
			Started(t, s)
			testkit.Eventually(t, "a replica that "+what+" is left", func() bool {
				use, _ := s.Replica()
				return !use.InUse
			})
			Must(t, ErrorOf(s.Board.Board(t.Context(), "")))
			if n := log.Count("the read replica is left"); n != 1 {
				t.Errorf("a replica that %s: %d lines", what, n)
			}
		}
	})
}
