// Package migrations holds the versioned schema for MySQL and SQLite and applies it, one process at a time.
//
// An interrupted migration is resumed by the next call of Up or Down. On SQLite a file is one transaction. MySQL and MariaDB
// commit each statement that changes a definition by itself, so the table migration_progress records the current statement
// and a fingerprint of its table before it. The process that resumes executes the statement again: it was done before if
// the server reports that its effect exists and the table has changed. Statements that change rows are committed with their
// record. The progress row is deleted in the transaction that writes the version.
//
// A call first completes an interrupted migration, in its direction, and then does its own work; Down completes an
// interrupted Down and does no more.
//
// Versions up to 6 may have been interrupted by a release that kept no record. Without a progress row, and for these
// versions only, a statement whose effect exists counts as done: a table if it is exactly what the statement makes, anything
// else by its name.
package migrations

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

//go:embed mysql/*.sql sqlite/*.sql tidb/*.sql
var files embed.FS

// Dialect selects how the schema is made.
type Dialect string

// The dialects. MariaDB has MySQL's.
const (
	MySQL  Dialect = "mysql"
	SQLite Dialect = "sqlite"
	TiDB   Dialect = "tidb"
)

// Migrator applies and reverts the migrations of one database.
type Migrator struct {
	db       *sql.DB
	provider *goose.Provider
	// names are the files' names by version.
	names map[int64]string
	// journal is nil on SQLite.
	journal *journal
	// lock keeps other processes from migrating until release. It covers all that goose does, including its first read. held
	// ends with ctx, or when the lock is lost.
	lock func(ctx context.Context) (held context.Context, release func() error, err error)
	// untilHeartbeat waits until the lock is to be checked.
	untilHeartbeat func(ctx context.Context) error
	log            *slog.Logger
}

// New returns a Migrator for db. On SQLite, lockDB is a database in a file of its own, whose write lock keeps other processes
// from migrating; on MySQL a named lock does that, and lockDB is nil.
func New(dialect Dialect, db, lockDB *sql.DB, log *slog.Logger) (*Migrator, error) {
	sqlFiles, err := fs.Sub(files, string(dialect))
	if err != nil {
		return nil, err
	}
	m := &Migrator{db: db, names: map[int64]string{}, log: log}
	m.untilHeartbeat = func(ctx context.Context) error { return sleep(ctx, lockHeartbeat) }
	options := []goose.ProviderOption{goose.WithDisableGlobalRegistry(true)}
	if dialect == SQLite {
		m.lock = func(ctx context.Context) (context.Context, func() error, error) { return fileLock(ctx, lockDB) }
		m.provider, err = goose.NewProvider(goose.DialectSQLite3, db, sqlFiles, options...)
	} else {
		lock := namedLock
		if dialect == TiDB {
			lock = tidbLock
		}
		m.lock = func(ctx context.Context) (context.Context, func() error, error) {
			return lock(ctx, db, LockWait, m.untilHeartbeat)
		}
		m.journal = &journal{db: db, files: map[int64]*file{}, lastUnjournaled: lastUnjournaled, silence: statementSilence, log: log}
		if dialect == TiDB {
			m.journal.onTiDB()
		}
		taken, readErr := serverFiles(dialect)
		if readErr != nil {
			return nil, readErr
		}
		for _, f := range taken {
			m.journal.files[f.version], m.names[f.version] = f, f.name
		}
		options = append(options, goose.WithGoMigrations(m.journal.goMigrations()...))
		m.provider, err = goose.NewProvider(goose.DialectMySQL, db, nil, options...)
	}
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	for _, s := range m.provider.ListSources() {
		if s.Path != "" {
			m.names[s.Version] = s.Path
		}
	}
	return m, nil
}

// Up applies all missing migrations, and returns how many. ErrBusy, ErrOvertaken, ErrLockLost.
func (m *Migrator) Up(ctx context.Context) (steps int, err error) {
	err = m.withLock(ctx, func(ctx context.Context) error {
		ended, up, err := m.resume(ctx)
		if err != nil {
			return err
		}
		if ended && up {
			steps++
		}
		done, err := m.provider.Up(ctx)
		steps += len(done)
		return err
	})
	if err != nil {
		return steps, fmt.Errorf("migrate up: %w", err)
	}
	return steps, nil
}

// Down reverts the newest migration and deletes the data that only it has columns for. It returns false if there was none.
// ErrBusy, ErrOvertaken, ErrLockLost.
func (m *Migrator) Down(ctx context.Context) (took bool, err error) {
	err = m.withLock(ctx, func(ctx context.Context) error {
		if version, _, err := m.interrupted(ctx); err == nil && version != 0 && m.names[version] == "" {
			return fmt.Errorf("migration %d was interrupted, and this FirstTap release does not have it", version)
		}
		if ended, up, err := m.resume(ctx); err != nil || ended && !up {
			took = ended
			return err
		}
		_, err := m.provider.Down(ctx)
		took = err == nil
		if errors.Is(err, goose.ErrNoNextVersion) {
			return nil
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("migrate down: %w", err)
	}
	return took, nil
}

// Newest returns the name and the statements of what Down would revert next, "" if there is nothing.
func (m *Migrator) Newest(ctx context.Context) (name string, statements []string, err error) {
	version, err := m.provider.GetDBVersion(ctx)
	if err != nil || version == 0 {
		return "", nil, err
	}
	if name = m.names[version]; name == "" {
		return "", nil, fmt.Errorf("the database has migration %d, and this FirstTap release does not", version)
	}
	if m.journal == nil {
		text, err := fs.ReadFile(files, string(SQLite)+"/"+name)
		_, statements = split(string(text))
		return name, statements, err
	}
	for _, s := range m.journal.files[version].down {
		statements = append(statements, s.sql)
	}
	return name, statements, nil
}

// Count returns how many migrations there are.
func (m *Migrator) Count() int { return len(m.names) }

// Pending returns how many migrations Up would apply. It waits for no other process, and writes nothing in MySQL.
func (m *Migrator) Pending(ctx context.Context) (int, error) {
	missing := maps.Clone(m.names)
	store, err := database.NewStore(database.DialectMySQL, goose.DefaultTablename) // SQLite's statement is the same
	if err != nil {
		return 0, err
	}
	applied, err := store.ListMigrations(ctx, m.db)
	if err != nil && !isError(err, noSuchTable) && !strings.Contains(err.Error(), "no such table: "+goose.DefaultTablename) {
		return 0, fmt.Errorf("migrations: %w", err)
	}
	for _, a := range applied {
		delete(missing, a.Version)
	}
	version, _, err := m.interrupted(ctx)
	if name := m.names[version]; name != "" {
		missing[version] = name
	}
	return len(missing), err
}

func (m *Migrator) interrupted(ctx context.Context) (version int64, up bool, err error) {
	if m.journal == nil {
		return 0, false, nil
	}
	return m.journal.interrupted(ctx)
}

// resume completes an interrupted migration, and reports whether there was one, and its direction.
func (m *Migrator) resume(ctx context.Context) (ended, up bool, err error) {
	if m.journal == nil {
		return false, false, nil
	}
	if err := errors.Join(m.journal.repairVersionTable(ctx), m.journal.createFirst(ctx)); err != nil {
		return false, false, err
	}
	version, up, err := m.interrupted(ctx)
	switch {
	case err != nil || version == 0:
		return false, false, err
	case m.names[version] == "":
		m.log.Warn("a migration that this FirstTap release does not have was interrupted; a release that has it will resume it", "version", version)
		return false, false, nil
	}
	_, err = m.provider.ApplyVersion(ctx, version, up)
	switch {
	case errors.Is(err, goose.ErrAlreadyApplied):
		return false, false, m.journal.forget(ctx, version, up)
	case errors.Is(err, goose.ErrNotApplied): // a Down that went on would revert one version too many
		return false, false, cmp.Or(m.journal.forget(ctx, version, up), ErrOvertaken)
	}
	return err == nil, up, err
}

// withLock runs fn while it holds the migration lock.
func (m *Migrator) withLock(ctx context.Context, fn func(ctx context.Context) error) error {
	held, release, err := m.lock(ctx)
	if err != nil {
		return err
	}
	err = fn(held)
	if cause := context.Cause(held); err != nil && cause != nil {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	released := release()
	if err == nil && errors.Is(released, ErrLockLost) {
		return nil // what fn has done is committed
	}
	return errors.Join(err, released)
}

// Status writes a line for each migration: when it was applied, and its file.
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
		fmt.Fprintf(w, "%-20s  %s\n", applied, m.names[s.Source.Version])
	}
	return nil
}
