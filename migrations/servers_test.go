package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/migrations"
)

var errGone = errors.New("the process is gone")

// scissors cut a process off from its database at one of the statements that it sends: before it is sent, or between its execution and
// its reply.
type scissors struct {
	mu    sync.Mutex
	at    int // which statement, from 1 on
	after bool
	sent  int
	gone  bool
	last  string // the statement at which the process was cut off
	conns []net.Conn
	stop  context.CancelFunc
}

func (s *scissors) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		conn.Close()
		return nil, errGone
	}
	s.conns = append(s.conns, conn)
	return &cutConn{Conn: conn, s: s}, nil
}

// end is called with mu held.
func (s *scissors) end() {
	s.gone = true
	for _, conn := range s.conns {
		conn.Close()
	}
	s.stop()
}

type cutConn struct {
	net.Conn
	s       *scissors
	replied bool // ends the process when the reply is there
}

func (c *cutConn) Write(b []byte) (int, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.gone {
		return 0, errGone
	}
	const query = 3
	if len(b) > 5 && b[3] == 0 && b[4] == query {
		if c.s.sent++; c.s.sent == c.s.at {
			c.s.last = string(b[5:])
			if !c.s.after {
				c.s.end()
				return 0, errGone
			}
			c.replied = true
		}
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.replied {
		c.s.end()
	}
	if c.s.gone {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// cutAt runs op in a process that is cut off at the statement of that number. It returns the statement, "" if there was none.
func (s schema) cutAt(t *testing.T, at int, after bool, op func(ctx context.Context, db *sql.DB) error) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	cut := &scissors{at: at, after: after, stop: stop}
	config := configOf(t, s.url)
	config.DialFunc = cut.dial
	db := openServer(t, config)
	err := op(ctx, db)
	db.Close()
	cut.mu.Lock()
	defer cut.mu.Unlock()
	if !cut.gone {
		must(t, err)
		return ""
	}
	return cut.last
}

// A process is cut off at each statement of each migration, before it is sent or before its reply is there, up and down. The next process
// goes on, and the last one ends where an undisturbed one does.
func TestCutAtEveryStatement(t *testing.T) {
	onServers(t, func(t *testing.T, s schema) {
		m := s.new(t)
		recorded := func() int {
			if len(texts(t, s.db, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'goose_db_version'")) == 0 {
				return 0
			}
			return len(texts(t, s.db, "SELECT id FROM goose_db_version WHERE version_id > 0"))
		}
		must(t, up(t.Context(), m))
		whole := s.content(t)
		cuts, at := 0, map[string]bool{}
		for _, after := range []bool{false, true} {
			cut := func(n int, op func(context.Context, *migrations.Migrator) error) (was bool) {
				t.Helper()
				statement := s.cutAt(t, n, after, func(ctx context.Context, db *sql.DB) error { return op(ctx, s.through(t, db)) })
				if statement != "" {
					cuts++
					at[statement] = true
				}
				return statement != ""
			}
			chain := func(until int, op func(context.Context, *migrations.Migrator) error) {
				t.Helper()
				for n := 1; recorded() != until; n++ {
					before := recorded()
					cut(n, op)
					if recorded() != before {
						n = 0
					}
				}
			}
			chain(0, down)
			testkit.Equal(t, "columns after cuts down", 0, len(s.columns(t)))
			execute(t, s.db, "DROP TABLE goose_db_version")
			chain(m.Count(), up)
			testkit.Equal(t, "the schema after cuts up", whole, s.content(t))
			for n := 1; cut(n, down); n++ {
				for k := 1; cut(k, up); k++ {
				}
				testkit.Equal(t, "the schema after a cut down and up", whole, s.content(t))
			}
			must(t, up(t.Context(), m))
		}
		for _, kind := range []string{"CREATE TABLE goose_db_version", "GET_LOCK", "CREATE TABLE IF NOT EXISTS claims", "INSERT INTO goose_db_version",
			"UPDATE goose_db_version", "DELETE FROM goose_db_version WHERE NOT", "DROP TABLE", "DELETE FROM goose_db_version WHERE version_id", "RELEASE_LOCK"} {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(at)), func(statement string) bool { return strings.Contains(statement, kind) }) {
				t.Errorf("was not cut: %s", kind)
			}
		}
		t.Logf("%d cuts at %d different statements, all ended", cuts, len(at))
	})
}

// altering returns a Migrator whose one migration adds a column to the table events, which must be there.
func (s schema) altering(t *testing.T, db *sql.DB, log *slog.Logger) *migrations.Migrator {
	t.Helper()
	files := fstest.MapFS{"00901_later.sql": {Data: []byte("-- +goose Up\nALTER TABLE events ADD COLUMN later INT NOT NULL DEFAULT 0;\n\n-- +goose Down\n" +
		"ALTER TABLE events DROP COLUMN later;\n")}}
	m, err := migrations.NewOf(migrations.MySQL, db, files, log)
	must(t, err)
	return m
}

// block has a transaction that reads the table events, and returns a function that ends it.
func (s schema) block(t *testing.T) (unblock func()) {
	t.Helper()
	execute(t, s.db, "CREATE TABLE events (id INT PRIMARY KEY)")
	reader, err := s.db.Begin()
	must(t, err)
	t.Cleanup(func() { reader.Rollback() })
	_, err = reader.Exec("SELECT COUNT(*) FROM events")
	must(t, err)
	return func() { must(t, reader.Rollback()) }
}

func (s schema) mustHaveLater(t *testing.T) {
	t.Helper()
	if !slices.Contains(s.columns(t), "events.later") {
		t.Error("the column is not there")
	}
	if n, err := s.altering(t, s.db, silent).Pending(t.Context()); n != 0 || err != nil {
		t.Errorf("%d are pending, %v", n, err)
	}
}

// One long transaction keeps neither the table's readers waiting for long, nor the migration from its end.
func TestWaitsForATableInTurns(t *testing.T) {
	notOnTiDB(t, "no statement was seen to wait for a transaction that reads the table")
	onServers(t, func(t *testing.T, s schema) {
		unblock := s.block(t)
		log := &testkit.LogBuffer{}
		ended := make(chan error, 1)
		go func() { ended <- up(t.Context(), s.altering(t, s.db, slog.New(slog.NewTextHandler(log, nil)))) }()
		testkit.Eventually(t, "a log line says that the migration waits", func() bool { return log.Count("waits") > 0 && log.Count("00901_later.sql") > 0 })
		execute(t, s.db, "SELECT COUNT(*) FROM events") // by a later process
		unblock()
		must(t, <-ended)
		s.mustHaveLater(t)
	})
}

// A process loses its session while the server executes its statement, which the server goes on with: the next process waits for its end.
func TestKilledWithTheStatementUnderWay(t *testing.T) {
	notOnTiDB(t, "no statement was seen to wait for a transaction that reads the table")
	onServers(t, func(t *testing.T, s schema) {
		long := fstest.MapFS{"00901_long.sql": {Data: []byte("-- +goose Up\nCREATE TABLE z AS SELECT BENCHMARK(3000000, SHA2('x', 512)) x;\n-- +goose Down\nDROP TABLE z;\n")}}
		migrator := func(db *sql.DB) *migrations.Migrator {
			m, err := migrations.NewOf(migrations.MySQL, db, long, silent)
			must(t, err)
			return m
		}
		proxy := servertest.StartProxy(t, configOf(t, s.url).Addr)
		config := configOf(t, s.url)
		config.Addr = proxy.Addr()
		ended := make(chan error, 1)
		go func() { ended <- up(t.Context(), migrator(openServer(t, config))) }()
		testkit.Eventually(t, "the statement is executed", func() bool {
			return slices.ContainsFunc(servertest.Sessions(t, s.db), func(s servertest.Session) bool { return strings.Contains(s.Statement, "BENCHMARK") })
		})
		proxy.CutAll()
		if err := <-ended; err == nil {
			t.Error("a process without a session has migrated")
		}
		const free = "SELECT IS_FREE_LOCK(CONCAT('firsttap.migrate:', LEFT(SHA2(DATABASE(), 256), 32)))"
		if got := texts(t, s.db, free); got[0] != "0" {
			t.Error("the lock was free while the server executed the statement")
		}
		must(t, up(t.Context(), migrator(s.db)))
		testkit.Equal(t, "recorded versions", []string{"901"}, texts(t, s.db, "SELECT version_id FROM goose_db_version WHERE version_id > 0 AND is_applied"))
		testkit.Equal(t, "rows", 1, len(texts(t, s.db, "SELECT x FROM z")))
	})
}

// A process stands still after its statement until it has lost the lock, and another process takes the version back meanwhile: the first
// one records nothing.
func TestLostLockRecordsNothing(t *testing.T) {
	notOnTiDB(t, "it does not tell which session has the lock")
	onServers(t, func(t *testing.T, s schema) {
		execute(t, s.db, "CREATE TABLE events (id INT PRIMARY KEY)")
		proxy := servertest.StartProxy(t, configOf(t, s.url).Addr)
		config := configOf(t, s.url)
		config.Addr = proxy.Addr()
		hold := proxy.Hold("INSERT INTO goose_db_version", "ALTER TABLE events")
		ended := make(chan error, 1)
		go func() { ended <- up(t.Context(), s.altering(t, openServer(t, config), silent)) }()
		<-hold.Reached()
		execute(t, s.db, "KILL "+texts(t, s.db, "SELECT IS_USED_LOCK(CONCAT('firsttap.migrate:', LEFT(SHA2(DATABASE(), 256), 32)))")[0])
		must(t, up(t.Context(), s.altering(t, s.db, silent)))
		must(t, down(t.Context(), s.altering(t, s.db, silent)))
		hold.Release()
		if err := <-ended; err == nil {
			t.Error("a process without the lock has migrated")
		}
		if n, err := s.altering(t, s.db, silent).Pending(t.Context()); n != 1 || err != nil {
			t.Errorf("%d are pending, %v", n, err)
		}
	})
}

func notOnTiDB(t *testing.T, why string) {
	t.Helper()
	if testkit.TiDB() {
		t.Skip("TiDB: " + why)
	}
}

// What exists already, or is gone, is no error: a process did it, and was killed before it could record it.
func TestDoneBefore(t *testing.T) {
	onServers(t, func(t *testing.T, s schema) {
		for what, change := range map[string][2]string{
			"a table":  {"CREATE TABLE a (id INT PRIMARY KEY)", "DROP TABLE a"},
			"a column": {"ALTER TABLE b ADD COLUMN c INT", "ALTER TABLE b DROP COLUMN c"},
			"an index": {"CREATE INDEX ix_b ON b (id)", "DROP INDEX ix_b ON b"},
		} {
			execute(t, s.db, "DROP TABLE IF EXISTS a, b, goose_db_version", "CREATE TABLE b (id INT PRIMARY KEY)")
			file := fmt.Sprintf("-- +goose Up\n%s;\n-- +goose Down\n%s;\n", change[0], change[1])
			m, err := migrations.NewOf(migrations.MySQL, s.db, fstest.MapFS{"00901_x.sql": {Data: []byte(file)}}, silent)
			must(t, err)
			execute(t, s.db, change[0])
			if n, err := m.Up(t.Context()); n != 1 || err != nil {
				t.Errorf("%s that exists: %d, %v", what, n, err)
			}
			execute(t, s.db, change[1])
			if took, err := m.Down(t.Context()); !took || err != nil {
				t.Errorf("%s that is gone: %v, %v", what, took, err)
			}
		}
		file := "-- +goose Up\nALTER TABLE b ADD COLUMN wrong NOTHING;\n-- +goose Down\n"
		m, err := migrations.NewOf(migrations.MySQL, s.db, fstest.MapFS{"00901_x.sql": {Data: []byte(file)}}, silent)
		must(t, err)
		if n, err := m.Up(t.Context()); n != 0 || err == nil || !strings.HasPrefix(err.Error(), "migrate up: ") {
			t.Errorf("a statement that fails: %d, %v", n, err)
		}
	})
}
