package migrations_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"firsttap/migrations"
	"firsttap/servertest"
	"firsttap/testkit"
)

// A child is this test's program as a process that migrates the database of childURL, up or, with childDown, down, and
// kills itself before it executes childDies.
const (
	childURL  = "FIRSTTAP_TEST_MIGRATE"
	childDown = "FIRSTTAP_TEST_MIGRATE_DOWN"
	childDies = "FIRSTTAP_TEST_MIGRATE_DIES"
)

func child() int {
	if err := childMigrates(os.Getenv(childURL)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func childMigrates(url string) error {
	var db, lockDB *sql.DB
	dialect := migrations.MySQL
	if path, ok := strings.CutPrefix(url, "sqlite://"); ok {
		var err error
		if db, err = sql.Open("sqlite", path); err != nil {
			return err
		}
		sql.Register("mortal", mortal{db.Driver()})
		db.Close()
		db, err = sql.Open("mortal", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
		if err != nil {
			return err
		}
		if lockDB, err = sql.Open("sqlite", "file:"+path+".migrate"); err != nil {
			return err
		}
		dialect = migrations.SQLite
	} else {
		var err error
		if db, err = sql.Open("mysql", url); err != nil {
			return err
		}
	}
	m, err := migrations.New(dialect, db, lockDB, silent)
	if err != nil {
		return err
	}
	if os.Getenv(childDown) != "" {
		return down(context.Background(), m)
	}
	return up(context.Background(), m)
}

// mortal is a database driver whose process dies before it executes a certain statement.
type mortal struct{ driver.Driver }

type sqliteConn interface {
	driver.Conn
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnBeginTx
}

type mortalConn struct{ sqliteConn }

func (m mortal) Open(name string) (driver.Conn, error) {
	conn, err := m.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	return mortalConn{conn.(sqliteConn)}, nil
}

func (c mortalConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if query == os.Getenv(childDies) {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return c.sqliteConn.ExecContext(ctx, query, args)
}

func startChild(t *testing.T, url string, settings ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childURL+"="+url), settings...)
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() && said.Len() > 0 {
			t.Log(said.String())
		}
	})
	return cmd
}

func sqliteContent(t *testing.T, db *sql.DB) string {
	t.Helper()
	return strings.Join(texts(t, db, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"), "\n") + "\n" +
		strings.Join(texts(t, db, "SELECT version_id FROM goose_db_version ORDER BY version_id"), " ")
}

// A process is killed before every single statement, up and down.
func TestKilledOnSQLite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "killed.db")
	calmPath := filepath.Join(dir, "calm.db")
	calmDB, db := openSQLite(t, calmPath, migrations.LockWait), openSQLite(t, path, migrations.LockWait)
	calm, err := migrations.New(migrations.SQLite, calmDB, openSQLite(t, calmPath+".migrate", migrations.LockWait), silent)
	must(t, err)
	kills := 0
	die := func(statement string, settings ...string) {
		t.Helper()
		cmd := startChild(t, "sqlite://"+path, append(settings, childDies+"="+statement)...)
		cmd.Wait()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() {
			t.Fatalf("a process ended with %v instead of to die at %s", cmd.ProcessState, statement)
		}
		kills++
	}
	compare := func(what string) {
		t.Helper()
		if got, want := sqliteContent(t, db), sqliteContent(t, calmDB); got != want {
			t.Fatalf("%s, killed everywhere, ends with\n%s\nand undisturbed with\n%s", what, got, want)
		}
	}
	all := files(t, "sqlite/*.sql")
	for _, f := range all {
		for _, s := range f.up {
			die(s)
		}
	}
	must(t, startChild(t, "sqlite://"+path).Wait())
	must(t, up(t.Context(), calm))
	compare("up")
	for _, f := range slices.Backward(all) {
		for _, s := range f.down {
			die(s, childDown+"=1")
		}
		must(t, startChild(t, "sqlite://"+path, childDown+"=1").Wait())
		must(t, down(t.Context(), calm))
		compare("down")
	}
	t.Logf("%d processes killed, all ended", kills)
}

// blocked is a database whose next migration's first statement waits for a transaction that reads its table.
type blocked struct {
	t       *testing.T
	url     string
	db      *sql.DB
	reader  *sql.Tx
	log     testkit.LogBuffer
	ended   chan error
	beat    chan struct{} // has the process check its lock
	waiting string        // the statement
}

func block(t *testing.T, url string) *blocked {
	t.Helper()
	notOnTiDB(t, "no statement was seen to wait for a transaction that reads the table; why was not looked into")
	b := &blocked{t: t, url: url, db: openServer(t, url), ended: make(chan error, 1), beat: make(chan struct{})}
	must(t, mysqlMigrator(t, b.db, silent).UpTo(t.Context(), migrations.LastUnjournaled-1))
	b.waiting = strings.TrimSuffix(files(t, "mysql/*.sql")[migrations.LastUnjournaled-1].up[0], ";")
	var err error
	b.reader, err = b.db.Begin()
	must(t, err)
	t.Cleanup(func() { b.reader.Rollback() })
	_, err = b.reader.Exec("SELECT COUNT(*) FROM events")
	must(t, err)
	return b
}

func (b *blocked) up() {
	m := mysqlMigrator(b.t, b.db, slog.New(slog.NewTextHandler(&b.log, nil)))
	m.BeatAt(b.beat)
	go func() { b.ended <- up(b.t.Context(), m) }()
}

// mustWait waits until the server has a session that executes the statement.
func (b *blocked) mustWait() {
	b.t.Helper()
	testkit.Eventually(b.t, "the statement waits", func() bool { return b.sessions() == 1 })
}

func (b *blocked) unblock() {
	b.t.Helper()
	must(b.t, b.reader.Rollback())
}

// sessions are those that execute the statement in this database.
func (b *blocked) sessions() int {
	b.t.Helper()
	n := 0
	for _, session := range servertest.Sessions(b.t, b.db) {
		if session.Statement == b.waiting {
			n++
		}
	}
	return n
}

func (b *blocked) mustEnd() {
	b.t.Helper()
	must(b.t, <-b.ended)
	mustMiss(b.t, mysqlMigrator(b.t, openServer(b.t, b.url), silent), 0)
}

// One long transaction keeps neither the table's readers waiting for long, nor the migration from its end.
func TestWaitsForALockInTurns(t *testing.T) {
	onServers(t, func(t *testing.T, newURL func() string) {
		b := block(t, newURL())
		b.up()
		testkit.Eventually(t, "a log line says that the migration waits", func() bool {
			return b.log.Count("waits for a lock") > 0 && b.log.Count("table=events") > 0 && b.log.Count("00006_api.sql") > 0
		})
		execute(t, b.db, "SELECT COUNT(*) FROM events") // by a later process
		b.unblock()
		b.mustEnd()
	})
}

// A process is killed while the server executes its statement, which the server goes on with.
func TestKilledWithTheStatementUnderWay(t *testing.T) {
	onServers(t, func(t *testing.T, newURL func() string) {
		b := block(t, newURL())
		cmd := startChild(t, configOf(t, b.url).FormatDSN())
		b.mustWait()
		cmd.Process.Kill()
		cmd.Wait()
		b.up()
		b.unblock()
		b.mustEnd()
	})
}

// The next process waits until the server has ended what it executes for the one before, whatever else the server executes.
func TestOutlastsTheStatementOfTheDead(t *testing.T) {
	onServers(t, func(t *testing.T, newURL func() string) {
		b := block(t, newURL())
		const rowNoted = 5 // START TRANSACTION, the journal's table, and a transaction with its row
		cutAt(t, b.url, rowNoted, up)
		orphan := make(chan error, 1)
		go func() {
			_, err := b.db.Exec(b.waiting)
			orphan <- err
		}()
		b.mustWait()
		executeBytes(t, b)
		b.up()
		testkit.Eventually(t, "a log line says so", func() bool { return b.log.Count("still executes a statement") > 0 })
		b.unblock()
		must(t, <-orphan)
		b.mustEnd()
		if b.log.Count("was done before") == 0 {
			t.Error("the statement was executed again")
		}
	})
}

// executeBytes has a session execute a statement with bytes that are no text, until the test ends.
func executeBytes(t *testing.T, b *blocked) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = b.db.ExecContext(ctx, "DO SLEEP(3600), ?", []byte("\xAE\xFB\xF5")) // ends with its context
	}()
	t.Cleanup(func() { cancel(); <-ended })
	testkit.Eventually(t, "the bytes are there", func() bool {
		return slices.ContainsFunc(servertest.Sessions(t, b.db), func(s servertest.Session) bool { return strings.HasPrefix(s.Statement, "DO SLEEP") })
	})
}

// A process that loses the lock ends, since another process may migrate now.
func TestLosesTheLock(t *testing.T) {
	onServers(t, func(t *testing.T, newURL func() string) {
		b := block(t, newURL())
		b.up()
		b.mustWait()
		var session int
		must(t, b.db.QueryRow("SELECT IS_USED_LOCK(CONCAT('firsttap.migrate:', LEFT(SHA2(DATABASE(), 256), 32)))").Scan(&session))
		execute(t, b.db, fmt.Sprintf("KILL %d", session))
		b.beat <- struct{}{}
		if err := <-b.ended; err == nil || !strings.Contains(err.Error(), "was lost") {
			t.Errorf("got %v", err)
		}
		b.unblock()
		b.up()
		b.mustEnd()
	})
}
