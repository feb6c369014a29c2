package migrations_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/migrations"
)

// A child is this test's program as a process that migrates the file childFile, up or, with childDown, down, and kills itself before
// the statement of the number childDies.
const (
	childFile = "FIRSTTAP_TEST_MIGRATE"
	childDown = "FIRSTTAP_TEST_MIGRATE_DOWN"
	childDies = "FIRSTTAP_TEST_MIGRATE_DIES"
)

func child() int {
	dies, _ := strconv.Atoi(os.Getenv(childDies))
	lite, err := sql.Open("sqlite", "")
	if err == nil {
		sql.Register("mortal", &mortal{lite.Driver(), dies})
	}
	db, err2 := sql.Open("mortal", "file:"+os.Getenv(childFile)+"?_pragma=journal_mode(WAL)&_txlock=immediate")
	m, err3 := migrations.New(migrations.SQLite, db, silent)
	op := up
	if os.Getenv(childDown) != "" {
		op = down
	}
	if err == nil && err2 == nil && err3 == nil {
		err = op(context.Background(), m)
	}
	if err != nil || err2 != nil || err3 != nil {
		fmt.Fprintln(os.Stderr, err, err2, err3)
		return 1
	}
	return 0
}

// mortal is a database driver whose process dies before it executes the next statement but left.
type mortal struct {
	driver.Driver
	left int
}

type sqliteConn interface {
	driver.Conn
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnBeginTx
}

type mortalConn struct {
	sqliteConn
	of *mortal
}

func (m *mortal) Open(name string) (driver.Conn, error) {
	conn, err := m.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	return mortalConn{conn.(sqliteConn), m}, nil
}

func (c mortalConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.of.left--; c.of.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return c.sqliteConn.ExecContext(ctx, query, args)
}

// A process is killed before every single statement, up and down. The next one ends where an undisturbed one does.
func TestKilledOnSQLite(t *testing.T) {
	t.Parallel()
	s := newSchema(t, servertest.SQLite)
	m := s.new(t)
	run := func(settings ...string) (killed bool) {
		t.Helper()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(append(os.Environ(), childFile+"="+s.url), settings...)
		said, _ := cmd.CombinedOutput()
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !status.Signaled() && status.ExitStatus() != 0 {
			t.Fatalf("a process ended with %v: %s", cmd.ProcessState, said)
		}
		return status.Signaled()
	}
	must(t, up(t.Context(), m))
	whole := s.content(t)
	kills := 0
	for n := 1; run(childDown+"=1", childDies+"="+strconv.Itoa(n)); n++ {
		kills++
		must(t, up(t.Context(), m))
		testkit.Equal(t, "up after a Down that was killed", whole, s.content(t))
	}
	s.url = filepath.Join(t.TempDir(), "new.db")
	s.db = openSQLite(t, s.url, migrations.LockWait)
	for n := 1; run(childDies + "=" + strconv.Itoa(n)); n++ { // each goes on where the last one died
		kills++
	}
	testkit.Equal(t, "up after Ups that were killed", whole, s.content(t))
	t.Logf("%d processes killed, all ended", kills)
}
