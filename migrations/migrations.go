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
type Migrator struct {
	provider *goose.Provider
	// lock keeps other processes out until release. It is taken around all that goose does, its first look included.
	lock func(ctx context.Context) (release func() error, err error)
}

// New returns a Migrator for db. On SQLite, lockDB is a second database in a file of its own, whose write lock
// keeps other processes out while this one migrates; on MySQL a named lock does that and lockDB is nil.
func New(dialect Dialect, db, lockDB *sql.DB) (*Migrator, error) {
	m := &Migrator{lock: func(ctx context.Context) (func() error, error) { return namedLock(ctx, db) }}
	gooseDialect := goose.DialectMySQL
	if dialect == SQLite {
		m.lock = func(ctx context.Context) (func() error, error) { return fileLock(ctx, lockDB) }
		gooseDialect = goose.DialectSQLite3
	}
	sqlFiles, err := fs.Sub(files, string(dialect))
	if err != nil {
		return nil, err
	}
	if m.provider, err = goose.NewProvider(gooseDialect, db, sqlFiles, goose.WithDisableGlobalRegistry(true)); err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return m, nil
}

// Up applies whatever is missing and returns how many steps that took.
func (m *Migrator) Up(ctx context.Context) (steps int, err error) {
	release, err := m.lock(ctx)
	if err != nil {
		return 0, fmt.Errorf("migrate up: %w", err)
	}
	defer func() { err = errors.Join(err, release()) }()
	done, err := m.provider.Up(ctx)
	if err != nil {
		return len(done), fmt.Errorf("migrate up: %w", err)
	}
	return len(done), nil
}

// Down takes the newest step back, with the data that only it has room for. False means there was none.
func (m *Migrator) Down(ctx context.Context) (took bool, err error) {
	release, err := m.lock(ctx)
	if err != nil {
		return false, fmt.Errorf("migrate down: %w", err)
	}
	defer func() { err = errors.Join(err, release()) }()
	_, err = m.provider.Down(ctx)
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

const lockName = "CONCAT('firsttap.migrate:', LEFT(SHA2(DATABASE(), 256), 32))"

// namedLock is MySQL's GET_LOCK, on a connection of its own so that it ends with it. The name carries the database's:
// named locks belong to the whole server.
func namedLock(ctx context.Context, db *sql.DB) (release func() error, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var got sql.NullInt64
	err = conn.QueryRowContext(ctx, "SELECT GET_LOCK("+lockName+", ?)", int(LockWait.Seconds())).Scan(&got)
	if err == nil && got.Int64 != 1 {
		err = errLockTimeout
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK("+lockName+")")
		return errors.Join(err, conn.Close())
	}, nil
}

// fileLock is the write lock of a SQLite file that holds nothing else: the operating system ends it with the
// process. A transaction on the database itself would not do, since each step is a transaction of its own.
func fileLock(ctx context.Context, db *sql.DB) (release func() error, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, "BEGIN EXCLUSIVE"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(err, conn.Close())
	}, nil
}
