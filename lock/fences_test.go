package lock

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/glebarez/go-sqlite"
	"github.com/go-sql-driver/mysql"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// testDB is a database with the tables of this package.
type testDB struct {
	*sql.DB
	dialect Dialect
	config  *mysql.Config // nil for SQLite
}

// onEachDatabase runs the test on each kind of database, on a new one.
func onEachDatabase(t *testing.T, test func(*testing.T, *testDB)) {
	t.Helper()
	servertest.OnEach(t, servertest.Databases(), func(t *testing.T, kind string) {
		if kind == servertest.SQLite {
			test(t, openSQLite(t, filepath.Join(t.TempDir(), "locks.db"), "5000"))
			return
		}
		test(t, newStore(t, configOf(t, servertest.EmptyURL(t, kind))))
	})
}

// notOnTiDB skips a test that looks at InnoDB's transactions, counts statements, or holds names in sessions.
func notOnTiDB(t *testing.T, kind string) {
	t.Helper()
	if kind == servertest.TiDB {
		t.Skip("TiDB has no innodb_trx and no count of statements, and its sessions hold no names")
	}
}

// onEachServer is onEachDatabase without SQLite and TiDB.
func onEachServer(t *testing.T, test func(*testing.T, *testDB)) {
	t.Helper()
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) {
		notOnTiDB(t, kind)
		test(t, newStore(t, configOf(t, servertest.EmptyURL(t, kind))))
	})
}

// onEachOwnServer runs the test on servers that it may break, and that nobody else uses.
func onEachOwnServer(t *testing.T, test func(*testing.T, *servertest.Database, *testDB)) {
	t.Helper()
	t.Parallel()
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) {
		notOnTiDB(t, kind)
		server := servertest.StartDatabase(t, kind)
		test(t, server, newStore(t, configOf(t, server.URL(t))))
	})
}

func configOf(t testing.TB, rawURL string) *mysql.Config {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName, c.User = "tcp", u.Host, strings.TrimPrefix(u.Path, "/"), u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Logger = &mysql.NopLogger{} // the tests break connections on purpose
	return c
}

// through returns c with the proxy's address.
func through(c *mysql.Config, p *servertest.Proxy) *mysql.Config {
	c = c.Clone()
	c.Addr = p.Addr()
	return c
}

func newStore(t testing.TB, c *mysql.Config) *testDB {
	t.Helper()
	s := openStore(t, c)
	s.create(t)
	return s
}

func openStore(t testing.TB, c *mysql.Config) *testDB {
	t.Helper()
	connector, err := mysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return &testDB{DB: db, dialect: MySQL, config: c}
}

func openSQLite(t testing.TB, path, busy string) *testDB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout("+busy+")&_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s := &testDB{DB: db, dialect: SQLite}
	s.create(t)
	return s
}

func (s *testDB) create(t testing.TB) {
	t.Helper()
	for range 2 { // the statements may be repeated
		for _, statement := range s.dialect.Schema() {
			s.exec(t, statement)
		}
	}
}

func (s *testDB) exec(t testing.TB, query string, args ...any) (rows int64) {
	t.Helper()
	result, err := s.ExecContext(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	rows, _ = result.RowsAffected()
	return rows
}

func (s *testDB) queryInt(t testing.TB, query string, args ...any) (n int64) {
	t.Helper()
	if err := s.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// countStatements returns how many statements the server receives while f runs, which has to be the test's own. Connections
// should be open before. The server counts the end of a session as a statement, and the sessions that created the database may end late.
func (s *testDB) countStatements(t testing.TB, f func()) int64 {
	t.Helper()
	none := s.config.Clone()
	none.DBName = ""
	server := openStore(t, none)
	defer server.Close()
	testkit.Eventually(t, "only sessions of the test's database are left", func() bool {
		return !slices.ContainsFunc(servertest.Sessions(t, server.DB), func(s servertest.Session) bool { return s.User == "root" })
	})
	questions := func() (n int64) {
		var name string
		if err := s.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := questions()
	f()
	return questions() - before - 1
}

func (s *testDB) begin(t testing.TB) *sql.Tx {
	t.Helper()
	tx, err := s.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

func (s *testDB) commit(t testing.TB, tx *sql.Tx) {
	t.Helper()
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// wantErr fails the test unless err is want and no other of this package's kinds of errors.
func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
	for _, kind := range []error{ErrHeld, ErrUnavailable, ErrLost, ErrInvalid, ErrFenced} {
		if errors.Is(err, kind) && !errors.Is(want, kind) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
}

func TestFencesRefuseLowerTokens(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, s *testDB) {
		f := NewFences(s.DB, s.dialect)
		for i, step := range []struct {
			name  string
			fence int64
			want  error
		}{
			{"a", 5, nil}, {"a", 5, nil}, {"a", 7, nil}, {"a", 6, ErrFenced}, {"a", 7, nil}, {"A", 1, nil}, {"b", 6, nil},
			{"a", 8, nil}, {"a", 0, ErrInvalid}, {strings.Repeat("n", MaxNameLength), 1, nil},
			{strings.Repeat("n", MaxNameLength) + "o", 2, ErrInvalid}, {"é", 1, ErrInvalid},
		} {
			tx := s.begin(t)
			err := f.Enforce(t.Context(), tx, step.name, step.fence)
			if !errors.Is(err, step.want) {
				t.Errorf("step %d: got %v, want %v", i, err, step.want)
			}
			s.commit(t, tx)
		}
	})
}

func TestRolledBackFenceLeavesNoTrace(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, s *testDB) {
		f := NewFences(s.DB, s.dialect)
		wantErr(t, "raise", f.Raise(t.Context(), "known", 3), nil)
		for _, name := range []string{"known", "new"} {
			tx := s.begin(t)
			wantErr(t, name, f.Enforce(t.Context(), tx, name, 9), nil)
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			wantErr(t, name+" afterwards", f.Enforce(t.Context(), s, name, 4), nil)
		}
	})
}

func TestRaise(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, s *testDB) {
		f := NewFences(s.DB, s.dialect)
		wantErr(t, "a new one", f.Raise(t.Context(), "a", 10), nil)
		wantErr(t, "a smaller one", f.Raise(t.Context(), "a", 4), nil)
		wantErr(t, "an old writer", f.Enforce(t.Context(), s, "a", 9), ErrFenced)
		wantErr(t, "the same", f.Enforce(t.Context(), s, "a", 10), nil)
		s.Close()
		wantErr(t, "without a database", f.Raise(t.Context(), "a", 11), ErrUnavailable)
		wantErr(t, "without a database", f.Enforce(t.Context(), s, "a", 11), ErrUnavailable)
	})
}

// A stale transaction that waits for a newer one is rejected after the newer one's commit, at each isolation level, also
// if the name has no row yet. After a rollback it continues.
func TestWriterThatWaits(t *testing.T) {
	onEachServer(t, func(t *testing.T, s *testDB) {
		f := NewFences(s.DB, s.dialect)
		wantErr(t, "raise", f.Raise(t.Context(), "known", 1), nil)
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
			for name, end := range map[string]func(*sql.Tx) error{"known": (*sql.Tx).Commit, "new": (*sql.Tx).Rollback, "newer": (*sql.Tx).Commit} {
				newer := s.begin(t)
				wantErr(t, "the newer", f.Enforce(t.Context(), newer, name, 1000), nil)
				stale, err := s.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
				if err != nil {
					t.Fatal(err)
				}
				var n int // takes a snapshot before the newer one's commit
				if err := stale.QueryRow("SELECT COUNT(*) FROM fences").Scan(&n); err != nil {
					t.Fatal(err)
				}
				got := make(chan error, 1)
				go func() { got <- f.Enforce(t.Context(), stale, name, 999) }()
				s.awaitRowLockWait(t)
				if err := end(newer); err != nil {
					t.Fatal(err)
				}
				want := ErrFenced
				if name == "new" {
					want = nil
				}
				wantErr(t, name+" at "+level.String(), <-got, want)
				if err := stale.Rollback(); err != nil {
					t.Fatal(err)
				}
				s.exec(t, "DELETE FROM fences WHERE name LIKE 'new%'")
			}
		}
	})
}

// awaitRowLockWait waits until a transaction in this database waits for a row lock.
func (s *testDB) awaitRowLockWait(t testing.TB) {
	t.Helper()
	// The server refreshes innodb_trx only if it was not read for 100 ms.
	tick := time.NewTicker(120 * time.Millisecond)
	defer tick.Stop()
	for range 300 {
		<-tick.C
		for _, session := range servertest.Sessions(t, s.DB) {
			if s.queryInt(t, "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_mysql_thread_id = ?", session.ID) > 0 {
				return
			}
		}
	}
	t.Fatal("no transaction waits for a row lock")
}

// Concurrent first writes under a name do not deadlock, and the largest fence stays.
func TestFirstWritersAtOnce(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, s *testDB) {
		f := NewFences(s.DB, s.dialect)
		const writers = 16
		testkit.Together(writers, func(i int) {
			name := []string{"a", "b", "c", "d"}[i%4]
			err := f.Enforce(t.Context(), s, name, int64(i+1))
			if err != nil && !errors.Is(err, ErrFenced) {
				t.Error(err)
			}
		})
		if largest := s.queryInt(t, "SELECT MAX(fence) FROM fences"); largest != writers {
			t.Errorf("the largest is %d", largest)
		}
	})
}

// Enforce costs one statement, with and without ClientFoundRows and InterpolateParams.
func TestFencesCostOneStatement(t *testing.T) {
	onEachOwnServer(t, func(t *testing.T, _ *servertest.Database, s *testDB) {
		for _, interpolate := range []bool{false, true} {
			c := s.config.Clone()
			c.ClientFoundRows, c.InterpolateParams = interpolate, interpolate
			o := openStore(t, c)
			f := NewFences(o.DB, o.dialect)
			o.SetMaxOpenConns(1)
			wantErr(t, "first", f.Enforce(t.Context(), o, "a", 9), nil)
			for fence, want := range map[int64]error{9: nil, 8: ErrFenced} {
				n := o.countStatements(t, func() { wantErr(t, "again", f.Enforce(t.Context(), o, "a", fence), want) })
				if n != 1 {
					t.Errorf("%d statements", n)
				}
			}
		}
	})
}

func TestEnforceEndsWithItsContext(t *testing.T) {
	onEachServer(t, func(t *testing.T, s *testDB) {
		f := NewFences(s.DB, s.dialect)
		wantErr(t, "the one that holds the row", f.Enforce(t.Context(), s.begin(t), "a", 1), nil)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := f.Enforce(ctx, s, "a", 2)
		wantErr(t, "waiting", err, ErrUnavailable)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, which does not say why", err)
		}
	})
}
