package lock

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/glebarez/go-sqlite"
	"github.com/go-sql-driver/mysql"

	"firsttap/servertest"
	"firsttap/testkit"
)

// store is a database with the tables of this package.
type store struct {
	*sql.DB
	dialect Dialect
	config  *mysql.Config // nil on SQLite
}

// eachStore runs the test on each kind of database.
func eachStore(t *testing.T, test func(*testing.T, *store)) {
	t.Helper()
	eachServer(t, test)
	t.Run("sqlite", func(t *testing.T) { test(t, openSQLite(t, filepath.Join(t.TempDir(), "locks.db"), "5000")) })
}

// eachServer runs the test on the databases that are servers, in a database of its own.
func eachServer(t *testing.T, test func(*testing.T, *store)) {
	t.Helper()
	for name, fresh := range map[string]func(testing.TB) string{
		"mariadb": servertest.MariaDBURL, "mysql": servertest.MySQLURL,
	} {
		t.Run(name, func(t *testing.T) { test(t, newStore(t, configOf(t, fresh(t)))) })
	}
}

// eachOwnServer runs the test on servers that it may break.
func eachOwnServer(t *testing.T, test func(*testing.T, *servertest.Database, *store)) {
	t.Helper()
	for name, start := range map[string]func(testing.TB) *servertest.Database{
		"mariadb": servertest.StartMariaDB, "mysql": servertest.StartMySQL,
	} {
		t.Run(name, func(t *testing.T) {
			server := start(t)
			test(t, server, newStore(t, configOf(t, server.URL(t))))
		})
	}
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
	c.Logger = &mysql.NopLogger{} // what breaks here is broken on purpose
	return c
}

// via is c by way of the proxy.
func via(c *mysql.Config, p *servertest.Proxy) *mysql.Config {
	c = c.Clone()
	c.Addr = p.Addr()
	return c
}

func newStore(t testing.TB, c *mysql.Config) *store {
	t.Helper()
	s := openStore(t, c)
	s.create(t)
	return s
}

func openStore(t testing.TB, c *mysql.Config) *store {
	t.Helper()
	connector, err := mysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return &store{DB: db, dialect: MySQL, config: c}
}

func openSQLite(t testing.TB, path, busy string) *store {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout("+busy+")&_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s := &store{DB: db, dialect: SQLite}
	s.create(t)
	return s
}

func (s *store) create(t testing.TB) {
	t.Helper()
	for range 2 { // a second time does no harm
		for _, statement := range s.dialect.Schema() {
			s.exec(t, statement)
		}
	}
}

func (s *store) exec(t testing.TB, query string, args ...any) (rows int64) {
	t.Helper()
	result, err := s.ExecContext(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	rows, _ = result.RowsAffected()
	return rows
}

func (s *store) ask(t testing.TB, query string, args ...any) (n int64) {
	t.Helper()
	if err := s.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// statements is how many statements the server is sent while f runs. Connections should have been opened before.
func (s *store) statements(t testing.TB, f func()) int64 {
	t.Helper()
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

func (s *store) begin(t testing.TB) *sql.Tx {
	t.Helper()
	tx, err := s.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

func (s *store) commit(t testing.TB, tx *sql.Tx) {
	t.Helper()
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// mustBe fails the test unless err is want, nil or one of this package's errors, and no other kind of error.
func mustBe(t testing.TB, what string, err, want error) {
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

func TestFencesRefuseWhatIsOvertaken(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		f := NewFences(s.DB, s.dialect)
		for i, step := range []struct {
			name  string
			fence int64
			want  error
		}{
			{"a", 5, nil}, {"a", 5, nil}, {"a", 7, nil}, {"a", 6, ErrFenced}, {"a", 7, nil}, {"A", 1, nil}, {"b", 6, nil},
			{"a", 8, nil}, {"a", 0, ErrInvalid}, {strings.Repeat("n", MaxName), 1, nil},
			{strings.Repeat("n", MaxName) + "o", 2, ErrInvalid}, {"é", 1, ErrInvalid},
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
	eachStore(t, func(t *testing.T, s *store) {
		f := NewFences(s.DB, s.dialect)
		mustBe(t, "raise", f.Raise(t.Context(), "known", 3), nil)
		for _, name := range []string{"known", "new"} {
			tx := s.begin(t)
			mustBe(t, name, f.Enforce(t.Context(), tx, name, 9), nil)
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			mustBe(t, name+" afterwards", f.Enforce(t.Context(), s, name, 4), nil)
		}
	})
}

func TestRaise(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		f := NewFences(s.DB, s.dialect)
		mustBe(t, "a new one", f.Raise(t.Context(), "a", 10), nil)
		mustBe(t, "a smaller one", f.Raise(t.Context(), "a", 4), nil)
		mustBe(t, "an old writer", f.Enforce(t.Context(), s, "a", 9), ErrFenced)
		mustBe(t, "the same", f.Enforce(t.Context(), s, "a", 10), nil)
		s.Close()
		mustBe(t, "without a database", f.Raise(t.Context(), "a", 11), ErrUnavailable)
		mustBe(t, "without a database", f.Enforce(t.Context(), s, "a", 11), ErrUnavailable)
	})
}

// A stale writer that has to wait for the newer one's commit is refused then, at each level of isolation, also where
// nobody has written before; after a rollback it goes on.
func TestWriterThatWaits(t *testing.T) {
	eachServer(t, func(t *testing.T, s *store) {
		f := NewFences(s.DB, s.dialect)
		mustBe(t, "raise", f.Raise(t.Context(), "known", 1), nil)
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
			for name, end := range map[string]func(*sql.Tx) error{"known": (*sql.Tx).Commit, "new": (*sql.Tx).Rollback, "newer": (*sql.Tx).Commit} {
				newer := s.begin(t)
				mustBe(t, "the newer", f.Enforce(t.Context(), newer, name, 1000), nil)
				stale, err := s.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
				if err != nil {
					t.Fatal(err)
				}
				var n int // a snapshot from before the commit changes nothing
				if err := stale.QueryRow("SELECT COUNT(*) FROM fences").Scan(&n); err != nil {
					t.Fatal(err)
				}
				got := make(chan error, 1)
				go func() { got <- f.Enforce(t.Context(), stale, name, 999) }()
				s.waiting(t)
				if err := end(newer); err != nil {
					t.Fatal(err)
				}
				want := ErrFenced
				if name == "new" {
					want = nil
				}
				mustBe(t, name+" at "+level.String(), <-got, want)
				if err := stale.Rollback(); err != nil {
					t.Fatal(err)
				}
				s.exec(t, "DELETE FROM fences WHERE name LIKE 'new%'")
			}
		}
	})
}

// waiting waits until somebody waits for a row lock in this database.
func (s *store) waiting(t testing.TB) {
	t.Helper()
	// The server makes the table anew only when nobody has read it for 100 ms.
	tick := time.NewTicker(120 * time.Millisecond)
	defer tick.Stop()
	for range 100 {
		<-tick.C
		if s.ask(t, `SELECT COUNT(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p
			ON p.id = x.trx_mysql_thread_id WHERE x.trx_state = 'LOCK WAIT' AND p.db = DATABASE()`) > 0 {
			return
		}
	}
	t.Fatal("nobody waits for a row")
}

// Many first writers at once: none is a deadlock's victim, and the largest fence stays.
func TestFirstWritersAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		f := NewFences(s.DB, s.dialect)
		const writers = 16
		testkit.Together(writers, func(i int) {
			name := []string{"a", "b", "c", "d"}[i%4]
			err := f.Enforce(t.Context(), s, name, int64(i+1))
			if err != nil && !errors.Is(err, ErrFenced) {
				t.Error(err)
			}
		})
		if largest := s.ask(t, "SELECT MAX(fence) FROM fences"); largest != writers {
			t.Errorf("the largest is %d", largest)
		}
	})
}

// One statement, whatever the pool's settings: RowsAffected may mean rows found, and arguments go into the text or not.
func TestFencesCostOneStatement(t *testing.T) {
	eachServer(t, func(t *testing.T, s *store) {
		for _, interpolate := range []bool{false, true} {
			c := s.config.Clone()
			c.ClientFoundRows, c.InterpolateParams = interpolate, interpolate
			o := openStore(t, c)
			f := NewFences(o.DB, o.dialect)
			o.SetMaxOpenConns(1)
			mustBe(t, "first", f.Enforce(t.Context(), o, "a", 9), nil)
			for fence, want := range map[int64]error{9: nil, 8: ErrFenced} {
				n := o.statements(t, func() { mustBe(t, "again", f.Enforce(t.Context(), o, "a", fence), want) })
				if n != 1 {
					t.Errorf("%d statements", n)
				}
			}
		}
	})
}

func TestEnforceEndsWithItsContext(t *testing.T) {
	eachServer(t, func(t *testing.T, s *store) {
		f := NewFences(s.DB, s.dialect)
		mustBe(t, "the one that holds the row", f.Enforce(t.Context(), s.begin(t), "a", 1), nil)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := f.Enforce(ctx, s, "a", 2)
		mustBe(t, "waiting", err, ErrUnavailable)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, which does not say why", err)
		}
	})
}

// The file has another writer: nobody can tell.
func TestTableInABusyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	s, other := openSQLite(t, path, "10"), openSQLite(t, path, "10")
	table := NewTable(s.DB, SQLite)
	g := take(t, table, "job", "me", time.Minute)
	tx := other.begin(t)
	if _, err := tx.Exec("UPDATE shedlock SET locked_by = locked_by"); err != nil {
		t.Fatal(err)
	}
	mustBeHeld(t, table, "job", "me") // reading goes on
	_, err := table.Acquire(t.Context(), "free", "me", time.Minute)
	mustBe(t, "acquire", err, ErrUnavailable)
	mustBe(t, "extend", g.Extend(t.Context(), time.Minute), ErrUnavailable)
	mustBe(t, "release", g.Release(t.Context(), 0), ErrUnavailable)
	_, err = table.Break(t.Context(), "job")
	mustBe(t, "break", err, ErrUnavailable)
	s2 := NewFences(s.DB, SQLite)
	mustBe(t, "raise", s2.Raise(t.Context(), "job", 1), ErrUnavailable)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	mustBe(t, "release", g.Release(t.Context(), 0), nil)
}

func TestTableEndsWithItsContext(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		g, err := NewTable(s.DB, s.dialect).Acquire(ctx, "job", "me", time.Minute)
		mustBe(t, "acquire", err, ErrUnavailable)
		if g != nil {
			t.Error("a grant, although nothing was sent")
		}
	})
}
