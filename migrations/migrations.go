// Package migrations holds the versioned schema for MySQL and SQLite and applies it, one process at a time.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed mysql/*.sql sqlite/*.sql
var files embed.FS

// Dialect is which of the two schemas a database gets.
type Dialect string

// The dialects. MariaDB takes MySQL's.
const (
	MySQL  Dialect = "mysql"
	SQLite Dialect = "sqlite"
)

// Migrator brings one database's schema up and down.
type Migrator struct{ provider *goose.Provider }

// New returns a Migrator for db. On SQLite, lockDB is a second database in a file of its own, whose write lock
// keeps other processes out while this one migrates; on MySQL a named lock does that and lockDB is nil.
func New(dialect Dialect, db, lockDB *sql.DB) (*Migrator, error) {
	gooseDialect, locker := goose.DialectMySQL, lock.SessionLocker(namedLock{})
	if dialect == SQLite {
		gooseDialect, locker = goose.DialectSQLite3, &fileLock{db: lockDB}
	}
	sqlFiles, err := fs.Sub(files, string(dialect))
	if err != nil {
		return nil, err
	}
	provider, err := goose.NewProvider(gooseDialect, db, sqlFiles,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return &Migrator{provider: provider}, nil
}

// Up applies whatever is missing and returns how many steps that took.
func (m *Migrator) Up(ctx context.Context) (int, error) {
	done, err := m.provider.Up(ctx)
	if err != nil {
		return len(done), fmt.Errorf("migrate up: %w", err)
	}
	return len(done), nil
}

// Down takes the newest step back, with the data that only it has room for. False means there was none.
func (m *Migrator) Down(ctx context.Context) (bool, error) {
	_, err := m.provider.Down(ctx)
	switch {
	case errors.Is(err, goose.ErrNoNextVersion):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("migrate down: %w", err)
	}
	return true, nil
}

// Status writes a line for each step: its file, and when it was applied.
func (m *Migrator) Status(ctx context.Context, w io.Writer) error {
	steps, err := m.provider.Status(ctx)
	if err != nil {
		return fmt.Errorf("migrate status: %w", err)
	}
	for _, s := range steps {
		applied := "pending"
		if s.State == goose.StateApplied {
			applied = s.AppliedAt.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%-20s  %s\n", applied, s.Source.Path)
	}
	return nil
}

// LockWait is how long one process waits for another that migrates.
const LockWait = 60 * time.Second

var errLockTimeout = fmt.Errorf("another process has been migrating for %s", LockWait)

// namedLock is MySQL's GET_LOCK on the connection that migrates, so that it ends with that connection. The name
// carries the database's: named locks belong to the whole server.
type namedLock struct{}

const lockName = "CONCAT('firsttap.migrate:', LEFT(SHA2(DATABASE(), 256), 32))"

func (namedLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullInt64
	err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+lockName+", ?)", int(LockWait.Seconds())).Scan(&got)
	if err != nil {
		return err
	}
	if got.Int64 != 1 {
		return errLockTimeout
	}
	return nil
}

func (namedLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "DO RELEASE_LOCK("+lockName+")")
	return err
}

// fileLock is the write lock of a SQLite file that holds nothing else: the operating system ends it with the
// process. A transaction on the database itself would not do, since each step is a transaction of its own.
type fileLock struct {
	db   *sql.DB
	conn *sql.Conn
}

func (l *fileLock) SessionLock(ctx context.Context, _ *sql.Conn) (err error) {
	ctx, cancel := context.WithTimeout(ctx, LockWait)
	defer cancel()
	if l.conn, err = l.db.Conn(ctx); err != nil {
		return err
	}
	if _, err = l.conn.ExecContext(ctx, "BEGIN EXCLUSIVE"); err != nil {
		return errors.Join(err, l.conn.Close())
	}
	return nil
}

func (l *fileLock) SessionUnlock(ctx context.Context, _ *sql.Conn) error {
	_, err := l.conn.ExecContext(ctx, "ROLLBACK")
	return errors.Join(err, l.conn.Close())
}
