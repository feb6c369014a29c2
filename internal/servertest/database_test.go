package servertest

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"firsttap/internal/testkit"

	driver "github.com/go-sql-driver/mysql"
)

// open opens the database of that name; its connections are closed with the test.
func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	c, err := driver.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	c.Logger = &driver.NopLogger{} // these errors are provoked
	connector, err := driver.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

func openURL(t testing.TB, url string) *sql.DB {
	t.Helper()
	u := parsed(t, url)
	c := configOf(u)
	c.DBName = strings.TrimPrefix(u.Path, "/")
	return open(t, c.FormatDSN())
}

func mustExec(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// mustBegin begins a transaction with the statement.
func mustBegin(t testing.TB, db *sql.DB, statement string) *sql.Tx {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(statement); err != nil {
		t.Fatal(err)
	}
	return tx
}

func mustScan(t testing.TB, db *sql.DB, query, want string) {
	t.Helper()
	var got string
	if err := db.QueryRow(query).Scan(&got); err != nil || got != want {
		t.Fatalf("%s: got %q, %v; want %q", query, got, err, want)
	}
}

func nameOf(u string) string { return u[strings.LastIndexByte(u, '/')+1:] }

func TestDatabase(t *testing.T) {
	t.Parallel()
	OnEach(t, Servers(), func(t *testing.T, name string) {
		d := StartDatabase(t, name)
		u := d.URL(t)
		if again := d.URL(t); again == u {
			t.Errorf("URL gives %s twice", u)
		}
		db := open(t, d.DSN(nameOf(u)))
		mustScan(t, db, "SELECT @@version LIKE '%MariaDB%'", map[string]string{mariadb: "1", mysql: "0"}[name])
		mustScan(t, db, "SELECT @@innodb_flush_log_at_trx_commit", "1")

		t.Run("keeps what was committed over Kill and Start", func(t *testing.T) { keepsCommitted(t, d, db) })
		t.Run("Freeze and Thaw", func(t *testing.T) { freezes(t, d, db) })
		t.Run("CutReply of a COMMIT", func(t *testing.T) { cutsCommit(t, d, nameOf(u)) })
	})
}

func keepsCommitted(t *testing.T, d *Database, db *sql.DB) {
	mustExec(t, db, "CREATE TABLE kept (id INT PRIMARY KEY)", "INSERT INTO kept VALUES (1), (2)")
	tx := mustBegin(t, db, "INSERT INTO kept VALUES (3)")
	d.Kill()
	if err := tx.Commit(); err == nil {
		t.Fatal("a dead server committed")
	}
	d.Start()
	mustScan(t, db, "SELECT GROUP_CONCAT(id ORDER BY id) FROM kept", "1,2")
}

func freezes(t *testing.T, d *Database, db *sql.DB) {
	mustScan(t, db, "SELECT 1", "1")
	d.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), glance)
	defer cancel()
	if err := db.PingContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want %v", err, context.DeadlineExceeded)
	}
	d.Thaw()
	mustScan(t, db, "SELECT 1", "1")
}

func cutsCommit(t *testing.T, d *Database, database string) {
	direct := open(t, d.DSN(database))
	mustExec(t, direct, "CREATE TABLE cut (id INT PRIMARY KEY)")
	p := StartProxy(t, d.Addr())
	db := open(t, strings.Replace(d.DSN(database), d.Addr(), p.Addr(), 1))
	tx := mustBegin(t, db, "INSERT INTO cut VALUES (1)")
	cut := p.CutReply("COMMIT")
	if err := tx.Commit(); err == nil {
		t.Fatal("the commit's reply came through")
	}
	testkit.Await(t, "the cut", cut.Done())
	mustScan(t, direct, "SELECT COUNT(*) FROM cut", "1")
}

func TestDataTemplateIsBuiltByManyAtOnce(t *testing.T) {
	e, err := installed[mariadb]()
	require(t, mariadb, err)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	testkit.Together(3, func(int) {
		template, err := dataTemplate(e)
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := os.Stat(filepath.Join(template, "mysql")); err != nil {
			t.Error(err)
		}
	})
	left, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "firsttap", "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("the cache holds %v, %v", left, err)
	}
}
