package migrations_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/glebarez/go-sqlite"
	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/migrations"
)

var silent = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) {
	if os.Getenv(childFile) != "" {
		os.Exit(child())
	}
	os.Exit(servertest.Main(m))
}

// schema is an empty database, and a connection to inspect it.
type schema struct {
	kind, url string
	db        *sql.DB
}

// newSchema is an empty database of that kind.
func newSchema(t *testing.T, kind string) schema {
	t.Helper()
	if kind == servertest.SQLite {
		path := filepath.Join(t.TempDir(), "firsttap.db")
		return schema{kind, path, openSQLite(t, path, migrations.LockWait)}
	}
	raw := servertest.EmptyURL(t, kind)
	return schema{kind, raw, openServer(t, configOf(t, raw))}
}

// onSchemas runs the test once for each kind of database, beside other tests.
func onSchemas(t *testing.T, test func(t *testing.T, s schema)) {
	t.Parallel()
	servertest.OnEach(t, servertest.Databases(), func(t *testing.T, kind string) {
		t.Parallel()
		test(t, newSchema(t, kind))
	})
}

// onServers is onSchemas without SQLite.
func onServers(t *testing.T, test func(t *testing.T, s schema)) {
	t.Parallel()
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) {
		t.Parallel()
		test(t, newSchema(t, kind))
	})
}

// openSQLite opens the file as a process does that waits so long for another one's migration.
func openSQLite(t *testing.T, path string, wait time.Duration) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)&_txlock=immediate", path, wait.Milliseconds()))
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func configOf(t *testing.T, rawURL string) *mysql.Config {
	t.Helper()
	u, err := url.Parse(rawURL)
	must(t, err)
	config := mysql.NewConfig()
	config.Net, config.Addr, config.User, config.DBName = "tcp", u.Host, u.User.Username(), u.Path[1:]
	config.Passwd, _ = u.User.Password()
	config.ParseTime, config.InterpolateParams, config.ClientFoundRows = true, true, true
	config.Logger = &mysql.NopLogger{}
	return config
}

func openServer(t *testing.T, config *mysql.Config) *sql.DB {
	t.Helper()
	connector, err := mysql.NewConnector(config)
	must(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

func (s schema) dialect() migrations.Dialect {
	return map[string]migrations.Dialect{servertest.SQLite: migrations.SQLite, servertest.TiDB: migrations.TiDB}[s.kind]
}

func (s schema) new(t *testing.T) *migrations.Migrator { return s.through(t, s.db) }

// through returns the schema's Migrator, which uses that database.
func (s schema) through(t *testing.T, db *sql.DB) *migrations.Migrator {
	t.Helper()
	dialect := s.dialect()
	if dialect == "" {
		dialect = migrations.MySQL
	}
	m, err := migrations.New(dialect, db, silent)
	must(t, err)
	return m
}

var anyCounter = regexp.MustCompile(` AUTO_INCREMENT=\d+`)

// content is every table's definition, and the recorded versions.
func (s schema) content(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	if s.kind == servertest.SQLite {
		fmt.Fprintln(&out, texts(t, s.db, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"))
	} else {
		for _, table := range texts(t, s.db, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name") {
			var name, definition string
			must(t, s.db.QueryRow("SHOW CREATE TABLE "+table).Scan(&name, &definition))
			fmt.Fprintln(&out, anyCounter.ReplaceAllString(definition, ""))
		}
	}
	fmt.Fprintln(&out, texts(t, s.db, "SELECT version_id FROM goose_db_version WHERE version_id > 0 ORDER BY version_id"))
	return out.String()
}

// columns are all columns but goose's, as table.column, or table.column? if they may be NULL.
func (s schema) columns(t *testing.T) []string {
	t.Helper()
	query := `SELECT CONCAT(table_name, '.', column_name, IF(is_nullable = 'YES', '?', '')) FROM information_schema.columns WHERE table_schema = DATABASE()`
	if s.kind == servertest.SQLite {
		query = `SELECT m.name || '.' || c.name || CASE WHEN c."notnull" THEN '' ELSE '?' END
			FROM sqlite_master m, pragma_table_xinfo(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%'`
	}
	columns := slices.DeleteFunc(texts(t, s.db, query), func(column string) bool { return strings.HasPrefix(column, "goose_db_version.") })
	slices.Sort(columns)
	return columns
}

func texts(t *testing.T, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.Query(query)
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var s string
		must(t, rows.Scan(&s))
		all = append(all, s)
	}
	must(t, rows.Err())
	return all
}

func execute(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func up(ctx context.Context, m *migrations.Migrator) error { _, err := m.Up(ctx); return err }

func down(ctx context.Context, m *migrations.Migrator) error { _, err := m.Down(ctx); return err }

func (s schema) mustUp(t *testing.T, want int) {
	t.Helper()
	if n, err := s.new(t).Up(t.Context()); n != want || err != nil {
		t.Fatalf("Up took %d steps, %v; want %d", n, err, want)
	}
}

// mustShow fails the test unless each step is pending, or none is.
func (s schema) mustShow(t *testing.T, pending bool) {
	t.Helper()
	var out bytes.Buffer
	must(t, s.new(t).Status(t.Context(), &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, line := range lines {
		if strings.HasPrefix(line, "pending") != pending || !strings.HasSuffix(line, ".sql") {
			t.Errorf("the status is %q", line)
		}
	}
	if len(lines) != s.new(t).Count() {
		t.Errorf("the status has %d lines", len(lines))
	}
}

func TestUpStatusDown(t *testing.T) {
	onSchemas(t, func(t *testing.T, s schema) {
		m := s.new(t)
		s.mustShow(t, true)
		for range 2 {
			s.mustUp(t, m.Count())
			s.mustShow(t, false)
			s.mustUp(t, 0)
			if len(s.columns(t)) == 0 {
				t.Error("no tables after Up")
			}
			for range m.Count() {
				name, sql, err := m.Newest(t.Context())
				if took, err2 := m.Down(t.Context()); !took || name == "" || !strings.HasPrefix(sql, "DROP TABLE") || err != nil || err2 != nil {
					t.Fatalf("Down: %v, %q, %q, %v, %v", took, name, sql, err, err2)
				}
			}
			s.mustShow(t, true)
			if took, err := m.Down(t.Context()); took || err != nil {
				t.Fatalf("Down of nothing: %v, %v", took, err)
			}
			if got := s.columns(t); len(got) != 0 {
				t.Errorf("after Down there is %v", got)
			}
		}
	})
}

// But for what locks by sessions and rows need, which SQLite has none of.
func TestTheSchemasAreTheSame(t *testing.T) {
	t.Parallel()
	var want []string
	for i, kind := range servertest.Databases() {
		s := newSchema(t, kind)
		must(t, up(t.Context(), s.new(t)))
		got := slices.DeleteFunc(s.columns(t), func(column string) bool { return strings.HasPrefix(column, "lock_") })
		if i == 0 {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s has %s", kind, diff)
		}
	}
	if len(want) < 50 {
		t.Errorf("only %d columns", len(want))
	}
}

func TestTogether(t *testing.T) {
	onSchemas(t, func(t *testing.T, s schema) {
		var total atomic.Int64
		testkit.Together(10, func(int) {
			took, err := s.new(t).Up(t.Context())
			for errors.Is(err, migrations.ErrBusy) { // a slow server migrates for longer: a service repeats it, too
				took, err = s.new(t).Up(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
			total.Add(int64(took))
		})
		if n := total.Load(); n != int64(s.new(t).Count()) {
			t.Errorf("%d steps were taken", n)
		}
		s.mustShow(t, false)
		// The lock was given back.
		if took, err := s.new(t).Down(t.Context()); !took || err != nil {
			t.Errorf("Down: %v, %v", took, err)
		}
	})
}

// A service that starts goes on waiting after ErrBusy.
func TestAnotherProcessMigratesForLong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "firsttap.db")
	s := schema{servertest.SQLite, path, openSQLite(t, path, 0)}
	execute(t, openSQLite(t, path, 0), "BEGIN EXCLUSIVE")
	if err := up(t.Context(), s.new(t)); !errors.Is(err, migrations.ErrBusy) {
		t.Errorf("got %v", err)
	}
}

// A database that a program from before 1.0.0 made has tables of these names that are others.
func TestDatabaseFromBefore(t *testing.T) {
	onSchemas(t, func(t *testing.T, s schema) {
		execute(t, s.db, "CREATE TABLE goose_db_version (id INTEGER PRIMARY KEY, version_id BIGINT, is_applied INTEGER)",
			"INSERT INTO goose_db_version (id, version_id, is_applied) VALUES (1, 0, 1), (2, 18, 1)")
		if err := up(t.Context(), s.new(t)); err == nil || !strings.Contains(err.Error(), "before 1.0.0") {
			t.Errorf("got %v", err)
		}
		if err := s.new(t).Status(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "before 1.0.0") {
			t.Errorf("the status: %v", err)
		}
	})
}

func errorOf(_ any, err error) error { return err }
