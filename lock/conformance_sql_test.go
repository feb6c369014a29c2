package lock_test

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/lock"
	"firsttap/lock/locktest"
)

// Each kind of lock is tested with faults on one server; a clock can be wrong on MariaDB only.
func TestTableOfMariaDBConforms(t *testing.T) {
	conforms(t, tableRig(servertest.MariaDB), locktest.Faults)
}

func TestTableOfMySQLConforms(t *testing.T) {
	testkit.OnlyInAll(t)
	conforms(t, tableRig(servertest.MySQL), locktest.Contract)
}

func TestNamedOfMariaDBConforms(t *testing.T) {
	conforms(t, sessionRig(servertest.MariaDB, named), locktest.Faults)
}

func TestNamedOfMySQLConforms(t *testing.T) {
	testkit.OnlyInAll(t)
	conforms(t, sessionRig(servertest.MySQL, named), locktest.Contract)
}

func TestRowsOfMariaDBConforms(t *testing.T) {
	conforms(t, rowsRig(servertest.MariaDB), locktest.Faults)
}

func TestRowsOfMySQLConforms(t *testing.T) {
	testkit.OnlyInAll(t)
	conforms(t, rowsRig(servertest.MySQL), locktest.Contract)
}

func named(s *lock.Sessions) lock.Strategy { return s.Named() }
func rows(s *lock.Sessions) lock.Strategy  { return s.Rows() }

func TestTableOfSQLiteConforms(t *testing.T) { conforms(t, sqliteRig(), locktest.Contract) }

func sqliteRig() locktest.Rig {
	const file = "it is a file"
	return locktest.Rig{
		Open: func(t testing.TB, path string, _ time.Duration) lock.Strategy {
			return lock.NewTable(openSQLite(t, path), lock.SQLite)
		},
		Start: func(t testing.TB) locktest.Server {
			path := filepath.Join(t.TempDir(), "locks.db")
			db := openSQLite(t, path)
			create(t, db, lock.SQLite)
			return locktest.Server{URL: path, Flush: func() { exec(t, db, "DELETE FROM shedlock") }}
		},
		MinTTL: 3 * minTTL, // there is one writer at a time
		Missing: map[string]string{
			"StartSkewed": file, "Link": file, "Partition": file, "Delay": file, "Cut": file, "LoseReply": file, "HoldRequest": file, "Freeze": file, "Kill": file,
		},
	}
}

// minDatabaseTTL is the shortest TTL of strategies whose commits wait for the disk of a busy machine.
const minDatabaseTTL = 5 * minTTL

func tableRig(kind string) locktest.Rig {
	rig := databaseRig(kind)
	rig.Open = func(t testing.TB, url string, _ time.Duration) lock.Strategy {
		db := openMySQL(t, url)
		return lock.NewTable(db, lock.MySQL)
	}
	start := rig.Start
	rig.Start = func(t testing.TB) locktest.Server {
		s := start(t)
		db := openMySQL(t, s.URL)
		s.Flush = func() { exec(t, db, "DELETE FROM shedlock") }
		link := s.Link
		s.Link = func(t testing.TB) locktest.Link { return matchInserts(link(t)) }
		return s
	}
	rig.MinTTL = minDatabaseTTL
	return rig
}

// matchInserts matches an acquisition by the statement that acquires a new name, and not by the SELECT before it.
func matchInserts(link locktest.Link) locktest.Link {
	statement := func(name string, request locktest.Request) string {
		if request == locktest.Acquire {
			return "VALUES ('" + name
		}
		return name
	}
	lose, hold := link.LoseReply, link.HoldRequest
	link.LoseReply = func(name string, request locktest.Request) <-chan struct{} {
		return lose(statement(name, request), request)
	}
	link.HoldRequest = func(name string, request locktest.Request) (<-chan struct{}, func()) {
		return hold(statement(name, request), request)
	}
	return link
}

func sessionRig(kind string, strategy func(*lock.Sessions) lock.Strategy) locktest.Rig {
	rig := databaseRig(kind)
	rig.StartSkewed, rig.Missing["StartSkewed"] = nil, "a session ends by how much time passes"
	rig.Open = func(t testing.TB, url string, longest time.Duration) lock.Strategy {
		t.Helper()
		const names = 30
		s, err := lock.OpenPatientSessions(config(t, url), longest, names)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return strategy(s)
	}
	rig.MinTTL, rig.EndsWithConnection = time.Second, true
	rig.Missing["Flush"] = "the sessions hold the names, not the tables"
	return rig
}

// rowsRig matches renewals by their statement, because they do not contain the name.
func rowsRig(kind string) locktest.Rig {
	rig := sessionRig(kind, rows)
	start := rig.Start
	rig.Start = func(t testing.TB) locktest.Server {
		server := start(t)
		link := server.Link
		server.Link = func(t testing.TB) locktest.Link {
			l := link(t)
			lose := l.LoseReply
			l.LoseReply = func(name string, request locktest.Request) <-chan struct{} {
				if request == locktest.Renew {
					name = "SELECT (CONCAT(@@GLOBAL.read_only"
				}
				return lose(name, request)
			}
			return l
		}
		return server
	}
	return rig
}

func databaseRig(kind string) locktest.Rig {
	rig := locktest.Rig{
		Start:   func(t testing.TB) locktest.Server { return databaseServer(t, servertest.StartDatabase(t, kind)) },
		Missing: map[string]string{},
	}
	if kind == servertest.MariaDB {
		rig.StartSkewed = func(t testing.TB, offset time.Duration) locktest.Server {
			return databaseServer(t, servertest.StartMariaDBSkewed(t, offset))
		}
	} else {
		rig.Missing["StartSkewed"] = "MariaDB's is enough"
	}
	return rig
}

func databaseServer(t testing.TB, d *servertest.Database) locktest.Server {
	t.Helper()
	url := d.URL(t)
	create(t, openMySQL(t, url), lock.MySQL)
	return locktest.Server{
		URL: url, Freeze: d.Freeze, Thaw: d.Thaw, Kill: d.Kill, Start: d.Start,
		Link: func(t testing.TB) locktest.Link {
			p := servertest.StartProxy(t, d.Addr())
			link := linkOf(t, []*servertest.Proxy{p})
			link.URL = p.URL(url)
			return link
		},
	}
}

func config(t testing.TB, rawURL string) *mysql.Config {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName, c.User = "tcp", u.Host, strings.TrimPrefix(u.Path, "/"), u.User.Username()
	c.Timeout, c.ReadTimeout, c.WriteTimeout = lock.Patience, lock.Patience, lock.Patience
	c.InterpolateParams = true    // statements contain the name, for the proxy to match
	c.Logger = &mysql.NopLogger{} // the tests break connections on purpose
	return c
}

func openMySQL(t testing.TB, url string) *sql.DB {
	t.Helper()
	connector, err := mysql.NewConnector(config(t, url))
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	const most = 20 // per client, of the server's 500 connections
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	t.Cleanup(func() { db.Close() })
	return db
}

func openSQLite(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(4) // there is one writer at a time
	t.Cleanup(func() { db.Close() })
	return db
}

func create(t testing.TB, db *sql.DB, dialect lock.Dialect) {
	t.Helper()
	for _, statement := range dialect.Schema() {
		exec(t, db, statement)
	}
}

func exec(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
