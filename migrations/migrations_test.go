package migrations_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/glebarez/go-sqlite"

	"firsttap/migrations"
	"firsttap/servertest"
	"firsttap/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv(childURL) != "" {
		os.Exit(child())
	}
	os.Exit(servertest.Main(m))
}

// schema is an empty database, and a connection to inspect it.
type schema struct {
	db     *sql.DB
	new    func() *migrations.Migrator
	server bool
	tables string // a query for all columns, as table.column or table.column? if they may be NULL
}

// openSQLite opens the file as a process does that waits for another one's migration.
func openSQLite(t *testing.T, path string, wait time.Duration) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)", path, wait.Milliseconds()))
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// newSchema is an empty database of that kind.
func newSchema(t *testing.T, kind string) schema {
	t.Helper()
	if kind == servertest.SQLite {
		path := filepath.Join(t.TempDir(), "firsttap.db")
		lite := openSQLite(t, path, migrations.LockWait)
		return schema{
			db: lite,
			new: func() *migrations.Migrator {
				m, err := migrations.New(migrations.SQLite, lite, openSQLite(t, path+".migrate", migrations.LockWait), silent)
				must(t, err)
				return m
			},
			tables: `SELECT m.name || '.' || c.name || CASE WHEN c."notnull" THEN '' ELSE '?' END
				FROM sqlite_master m, pragma_table_xinfo(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%'`,
		}
	}
	db := openServer(t, servertest.EmptyURL(t, kind))
	dialect := migrations.MySQL
	if kind == servertest.TiDB {
		dialect = migrations.TiDB
	}
	return schema{
		db: db, server: true, new: func() *migrations.Migrator {
			m, err := migrations.New(dialect, db, nil, silent)
			must(t, err)
			return m
		},
		tables: `SELECT CONCAT(table_name, '.', column_name, IF(is_nullable = 'YES', '?', '')) FROM information_schema.columns
			WHERE table_schema = DATABASE()`,
	}
}

// onSchemas runs the test once for each kind of database, beside other tests.
func onSchemas(t *testing.T, test func(t *testing.T, s schema)) {
	t.Parallel()
	servertest.OnEach(t, servertest.Databases(), func(t *testing.T, kind string) {
		t.Parallel()
		test(t, newSchema(t, kind))
	})
}

// columns returns all columns but those of the migrations' own tables.
func (s schema) columns(t *testing.T) []string {
	t.Helper()
	columns := slices.DeleteFunc(texts(t, s.db, s.tables), func(column string) bool {
		return strings.HasPrefix(column, "goose_db_version.") || strings.HasPrefix(column, "migration_progress.")
	})
	slices.Sort(columns)
	return columns
}

// newest is the version of the last one. Versions may have gaps.
var newest = func() int {
	names, err := filepath.Glob("mysql/*.sql")
	if err != nil || len(names) == 0 {
		panic(err)
	}
	version, err := strconv.Atoi(filepath.Base(slices.Max(names))[:5])
	if err != nil {
		panic(err)
	}
	return version
}()

// steps is how many there are.
var steps = func() int {
	names, err := filepath.Glob("mysql/*.sql")
	if err != nil || len(names) == 0 {
		panic(fmt.Sprint("no migrations: ", err))
	}
	return len(names)
}()

func (s schema) mustUp(t *testing.T, want int) {
	t.Helper()
	if n, err := s.new().Up(t.Context()); n != want || err != nil {
		t.Fatalf("Up took %d steps, %v; want %d", n, err, want)
	}
}

func (s schema) mustShow(t *testing.T, want string) {
	t.Helper()
	var out bytes.Buffer
	must(t, s.new().Status(t.Context(), &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, line := range lines {
		if strings.HasPrefix(line, "pending") != (want == "pending") || !strings.HasSuffix(line, ".sql") {
			t.Errorf("the status is %q, want each step %s", line, want)
		}
	}
}

func TestUpStatusDown(t *testing.T) {
	onSchemas(t, func(t *testing.T, s schema) {
		m := s.new()
		s.mustShow(t, "pending")
		for range 2 {
			s.mustUp(t, steps)
			s.mustShow(t, "applied")
			s.mustUp(t, 0)
			if got := s.columns(t); len(got) == 0 {
				t.Error("no tables after Up")
			}
			for range steps {
				if took, err := m.Down(t.Context()); !took || err != nil {
					t.Fatalf("Down: %v, %v", took, err)
				}
			}
			s.mustShow(t, "pending")
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
		s.mustUp(t, steps)
		got := slices.DeleteFunc(s.columns(t), func(column string) bool { return strings.HasPrefix(column, "lock_") })
		if i == 0 {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has\n%q, SQLite has\n%q", kind, got, want)
		}
	}
	if len(want) < 50 {
		t.Errorf("only %d columns", len(want))
	}
}

func TestTogether(t *testing.T) {
	onSchemas(t, func(t *testing.T, s schema) {
		const n = 10
		migrators := make([]*migrations.Migrator, n)
		for i := range migrators {
			migrators[i] = s.new()
		}
		var total atomic.Int64
		testkit.Together(n, func(k int) {
			took, err := migrators[k].Up(t.Context())
			for errors.Is(err, migrations.ErrBusy) { // a slow server migrates for longer: a service repeats it, too
				took, err = migrators[k].Up(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
			total.Add(int64(took))
		})
		if n := total.Load(); n != int64(steps) {
			t.Errorf("%d steps were taken, want %d", n, steps)
		}
		s.mustShow(t, "applied")
		// The lock was given back.
		if took, err := s.new().Down(t.Context()); !took || err != nil {
			t.Errorf("Down: %v, %v", took, err)
		}
	})
}

// A service that starts goes on waiting after ErrBusy.
func TestAnotherProcessMigratesForLong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "firsttap.db")
	execute(t, openSQLite(t, path+".migrate", 0), "BEGIN EXCLUSIVE")
	m, err := migrations.New(migrations.SQLite, openSQLite(t, path, 0), openSQLite(t, path+".migrate", 0), silent)
	must(t, err)
	if err := up(t.Context(), m); !errors.Is(err, migrations.ErrBusy) {
		t.Errorf("got %v", err)
	}
}

func TestUpThatFails(t *testing.T) {
	onSchemas(t, func(t *testing.T, s schema) {
		execute(t, s.db, "CREATE TABLE api_keys (id INT)")
		if err := up(t.Context(), s.new()); err == nil || !strings.HasPrefix(err.Error(), "migrate up: ") {
			t.Errorf("got %v", err)
		}
		s.mustShow(t, "pending")
	})
}
