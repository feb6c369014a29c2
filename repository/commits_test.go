package repository

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/doctor"
	"firsttap/servertest"
	"firsttap/testkit"
)

// A server that answers reads and commits nothing is away, and so is one that refuses the account's writes.
func TestProbeOfAServerThatCommitsNothing(t *testing.T) {
	eachOwn(t, func(t *testing.T, db *database) {
		p := started(t, db.usual(t).Store)
		p.becomes(t, true)
		locking, err := db.raw.Conn(t.Context())
		must(t, err)
		defer locking.Close()
		for range 2 {
			must(t, errorOf(locking.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK")))
			p.becomes(t, false)
			must(t, errorOf(locking.ExecContext(t.Context(), "UNLOCK TABLES")))
			p.becomes(t, true)
		}
		app, _ := db.restricted(t, "SELECT, UPDATE, EXECUTE")
		if app.Probe(t.Context()).Up() {
			t.Error("up, though the account may not insert")
		}
	})
}

// A database that commits writes and lacks a table that taps or drivers need is away, until the table is there.
func TestProbeOfMissingTables(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		for _, table := range []string{"claims", "drivers", "taps", "devices"} {
			db.without(t, table, func() {
				if db.Probe(t.Context()).Up() {
					t.Errorf("up, without %s", table)
				}
			})
		}
		p := started(t, db.Store)
		db.without(t, "claims", func() { p.becomes(t, false) })
		p.becomes(t, true)
	})
}

// A server that refuses the changes of a tap is away, even if it commits other writes.
func TestProbeWithoutTheRightToTap(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		app, _ := db.restricted(t, "SELECT, INSERT, EXECUTE")
		u, err := url.Parse(db.url)
		must(t, err)
		name := strings.TrimPrefix(u.Path, "/")
		db.exec(t, "GRANT UPDATE ON "+name+".shedlock TO u"+name)
		must(t, app.Ping(t.Context()))
		if app.Probe(t.Context()).Up() {
			t.Error("up, though the account may change no dispatch")
		}
	})
}

// Instances that check together write one row, and only one of them in a while.
func TestProbesShareAWrite(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		for range 3 {
			must(t, db.Ping(t.Context()))
		}
		db.mustCount(t, 1, "shedlock WHERE name = '"+probeRow+"'")
	})
}

// A file that can be read, and refuses writes, is away.
func TestProbeOfAFileThatRefusesWrites(t *testing.T) {
	db := pooled(t, servertest.SQLite)
	p := started(t, db.Store)
	p.becomes(t, true)
	db.exec(t, "CREATE TRIGGER full BEFORE INSERT ON shedlock BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END")
	p.becomes(t, false)
	db.exec(t, "DROP TRIGGER full")
	p.becomes(t, true)
}

// A file whose write lock is held on and on is away, for the doctor too. One that others write to in turns is not.
func TestProbeOfAFileThatIsHeld(t *testing.T) {
	db := pooled(t, servertest.SQLite)
	p := started(t, db.Store)
	p.becomes(t, true)
	holder, err := db.raw.Conn(t.Context())
	must(t, err)
	defer holder.Close()
	run := func(statement string) {
		t.Helper()
		must(t, errorOf(holder.ExecContext(t.Context(), statement)))
	}
	run("BEGIN IMMEDIATE")
	p.becomes(t, false)
	r := doctor.NewReport(doctor.Options{Each: testkit.Patience})
	Examine(t.Context(), r, db.url, false, Secrets{})
	for _, l := range r.Lines {
		if l.Check == checkRole && (l.Status != doctor.Fails || !strings.Contains(l.Found, "another process holds the file's write lock")) {
			t.Errorf("the doctor says %+v", l)
		}
	}
	run("ROLLBACK")
	p.becomes(t, true)

	other, err := sqliteConns(strings.TrimPrefix(db.url, "sqlite://"), 0, 1)
	must(t, err)
	defer other.Close()
	must(t, unlessHeld(t.Context(), other, func() error {
		run("INSERT INTO fences (name, fence) VALUES ('x', 1)")
		run("BEGIN IMMEDIATE")
		return errorOf(other.ExecContext(t.Context(), "DELETE FROM fences"))
	}))
	run("ROLLBACK")
}

// A server does not notice that a caller has given up. However many do, it has no more connections than the pool may have, but for the one
// that asks which of them have ended.
func TestStatementsThatAreGivenUpCount(t *testing.T) {
	eachOwn(t, func(t *testing.T, db *database) {
		s := db.usual(t)
		locking, err := db.raw.Conn(t.Context())
		must(t, err)
		defer locking.Close()
		must(t, errorOf(locking.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK")))
		write := func(name string) error {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			return s.decide.WithContext(ctx).Exec("INSERT INTO fences (name, fence) VALUES (?, 1)", name).Error
		}
		for round := range 5 {
			var writing sync.WaitGroup
			for k := range decideConns {
				writing.Go(func() {
					if write(fmt.Sprintf("%d-%d", round, k)) == nil {
						t.Error("a write is committed under a lock of all tables")
					}
				})
			}
			writing.Wait()
		}
		n := 0
		for _, session := range servertest.Sessions(t, db.raw) {
			if strings.HasPrefix(session.Statement, "INSERT INTO fences") {
				n++
			}
		}
		if n == 0 || n > decideConns {
			t.Errorf("the server executes %d writes of a pool of %d connections", n, decideConns)
		}
		must(t, errorOf(locking.ExecContext(t.Context(), "UNLOCK TABLES")))
		testkit.Eventually(t, "a write is committed again", func() bool { return write("after") == nil })
	})
}

// A replica that can't be reached, or refuses the password, is no reason not to start. The log says once that it is left.
func TestStartWithoutTheReplica(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "replicas")
		u, err := url.Parse(db.url)
		must(t, err)
		wrong, away := *u, *u
		wrong.User, away.Host = url.UserPassword("root", "a-wrong-password"), testkit.FreeAddress(t)
		for what, replica := range map[string]*url.URL{"refuses the password": &wrong, "can't be reached": &away} {
			log := &testkit.LogBuffer{}
			s := openWith(t, db.url, Options{Log: slog.New(slog.NewTextHandler(log, nil)), Patience: testkit.Patience, ReplicaURL: replica.String()})
			started(t, s)
			testkit.Eventually(t, "a replica that "+what+" is left", func() bool {
				use, _ := s.Replica()
				return !use.InUse
			})
			must(t, errorOf(s.Board(t.Context(), "")))
			if n := log.Count("the read replica is left"); n != 1 {
				t.Errorf("a replica that %s: %d lines", what, n)
			}
		}
	})
}
