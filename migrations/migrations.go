// Package migrations holds the schema, one folder for MySQL, MariaDB and TiDB and one for SQLite, and has goose apply it.
//
// On SQLite a file is one transaction. A file for the servers is one statement, as they commit each change of a definition by itself. Its
// version is recorded when it is done, and the record is marked before it is taken back. What a killed process has done without a record
// is executed again by the next call of Up or Down: what exists already, or is gone, counts as done.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

//go:embed mysql/*.sql sqlite/*.sql
var files embed.FS

// Dialect is a kind of database. MariaDB has MySQL's, and TiDB has the same files.
type Dialect string

// The dialects.
const (
	MySQL  Dialect = "mysql"
	SQLite Dialect = "sqlite"
	TiDB   Dialect = "tidb"
)

// LockWait bounds how long one process waits for another that migrates.
const LockWait = 60 * time.Second

// ErrBusy means that another process has been migrating for LockWait.
var ErrBusy = fmt.Errorf("another process has been migrating for %s", LockWait)

// Migrator applies and reverts the migrations of one database.
type Migrator struct {
	db       *sql.DB
	provider *goose.Provider
	store    records
	files    map[int64]file
	versions []int64 // those of files, the oldest first
	server   *server // nil on SQLite
}

type file struct{ name, up, down string }

// New returns a Migrator for db, which on SQLite waits LockWait for a locked file. Its sessions on a server must not end while they
// wait for an answer.
func New(dialect Dialect, db *sql.DB, log *slog.Logger) (*Migrator, error) {
	schema, err := fs.Sub(files, map[Dialect]string{MySQL: "mysql", TiDB: "mysql", SQLite: "sqlite"}[dialect])
	if err != nil {
		return nil, err
	}
	return newMigrator(dialect, db, schema, log)
}

func newMigrator(dialect Dialect, db *sql.DB, schema fs.FS, log *slog.Logger) (*Migrator, error) {
	m := &Migrator{db: db, files: map[int64]file{}}
	names, err := fs.Glob(schema, "*.sql")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := fs.ReadFile(schema, name)
		if err != nil {
			return nil, err
		}
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, fmt.Errorf("migrations: %s: %w", name, err)
		}
		up, down, _ := strings.Cut(string(text), "-- +goose Down\n")
		m.files[version] = file{name, strings.Replace(up, "-- +goose Up\n", "", 1), down}
	}
	m.versions = slices.Sorted(maps.Keys(m.files))
	of, options := goose.DialectSQLite3, []goose.ProviderOption{goose.WithDisableGlobalRegistry(true)}
	if dialect != SQLite {
		m.server = &server{log: log}
		of, schema = goose.DialectMySQL, nil
		options = append(options, goose.WithGoMigrations(m.server.migrations(m.files)...))
	}
	store, err := database.NewStore(of, goose.DefaultTablename)
	if err != nil {
		return nil, err
	}
	m.store = records{store.(database.StoreExtender), m.server}
	m.provider, err = goose.NewProvider(goose.DialectCustom, db, schema, append(options, goose.WithStore(m.store))...)
	return m, err
}

// Up applies all missing migrations, and returns how many. ErrBusy.
func (m *Migrator) Up(ctx context.Context) (steps int, err error) {
	if n, err := m.Pending(ctx); err != nil || n == 0 {
		return 0, err
	}
	err = m.locked(ctx, func() error {
		recorded, err := m.recorded(ctx)
		if err == nil {
			err = m.prepare(ctx, recorded)
		}
		for _, version := range m.missing(recorded) {
			if err != nil {
				break
			}
			if _, err = m.provider.ApplyVersion(ctx, version, true); err == nil {
				steps++
			} else if now, readErr := m.recorded(ctx); readErr == nil && now[version] { // by another process, on SQLite
				err = nil
			} else {
				err = fmt.Errorf("%s: %w", m.files[version].name, err)
			}
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("migrate up: %w", err)
	}
	return steps, err
}

// prepare makes goose's table ready for what is missing. What is left of a version that a process began to take back counts as done.
func (m *Migrator) prepare(ctx context.Context, recorded map[int64]bool) error {
	statement := fmt.Sprint("DELETE FROM goose_db_version WHERE NOT is_applied AND version_id <= ", slices.Max(m.versions))
	if m.server == nil { // of two processes that apply a version there, one can record it
		statement = `CREATE TABLE IF NOT EXISTS goose_db_version (id INTEGER PRIMARY KEY AUTOINCREMENT, version_id INTEGER NOT NULL UNIQUE,
			is_applied INTEGER NOT NULL, tstamp TIMESTAMP DEFAULT (datetime('now')));
			INSERT OR IGNORE INTO goose_db_version (version_id, is_applied) VALUES (0, 1)`
	} else if len(recorded) == 0 {
		return nil
	}
	_, err := m.db.ExecContext(ctx, statement)
	return err
}

// Down reverts the newest migration and deletes the data that only it has columns for. It returns false if there was none. ErrBusy.
func (m *Migrator) Down(ctx context.Context) (took bool, err error) {
	err = m.locked(ctx, func() error {
		name, _, err := m.Newest(ctx)
		if err != nil || name == "" {
			return err
		}
		version, _ := goose.NumericComponent(name) // as in newMigrator
		_, err = m.provider.ApplyVersion(ctx, version, false)
		took = err == nil
		return err
	})
	if err != nil {
		err = fmt.Errorf("migrate down: %w", err)
	}
	return took, err
}

// Newest returns the name of what Down would revert next, and the SQL of it; "" if there is nothing.
func (m *Migrator) Newest(ctx context.Context) (name, down string, err error) {
	recorded, err := m.recorded(ctx)
	newest := slices.Max(append(slices.Collect(maps.Keys(recorded)), 0))
	f, ours := m.files[newest]
	if newest > 0 && !ours {
		err = fmt.Errorf("the database has migration %d, and this FirstTap release does not", newest)
	}
	return f.name, strings.TrimSpace(f.down), err
}

// Count returns how many migrations there are.
func (m *Migrator) Count() int { return len(m.versions) }

// Pending returns how many migrations Up would apply. It waits for no other process, and writes nothing.
func (m *Migrator) Pending(ctx context.Context) (int, error) {
	recorded, err := m.recorded(ctx)
	return len(m.missing(recorded)), err
}

// missing returns the versions that are not applied, the oldest first.
func (m *Migrator) missing(recorded map[int64]bool) []int64 {
	return slices.DeleteFunc(slices.Clone(m.versions), func(v int64) bool { return recorded[v] })
}

// recorded returns the versions that are recorded, also those of another release: true for one that is applied, and false for one that a
// process began to take back.
func (m *Migrator) recorded(ctx context.Context) (map[int64]bool, error) {
	list, err := m.store.ListMigrations(ctx, m.db)
	if isError(err, noSuchTable) || err != nil && strings.Contains(err.Error(), "no such table: "+goose.DefaultTablename) {
		return nil, nil
	}
	all := map[int64]bool{}
	for _, r := range list {
		if r.Version > 0 { // 0 is goose's own
			all[r.Version] = r.IsApplied
		}
		if r.Version > 0 && r.Version < m.versions[0] { // the numbers of programs that were never released began at 1
			err = errors.New("a FirstTap from before 1.0.0 made this database, and no release can use it: use a new one")
		}
	}
	return all, busy(err)
}

// Began returns when the first migration was applied, which a copy of the database has too.
func (m *Migrator) Began(ctx context.Context) (time.Time, error) {
	record, err := m.store.GetMigration(ctx, m.db, m.versions[0])
	if err != nil {
		return time.Time{}, fmt.Errorf("the first migration's time: %w", err)
	}
	return record.Timestamp.UTC(), nil
}

// Status writes a line for each migration: when it was applied, and its file.
func (m *Migrator) Status(ctx context.Context, w io.Writer) error {
	recorded, err := m.recorded(ctx)
	if err != nil {
		return fmt.Errorf("migrate status: %w", err)
	}
	for _, version := range m.versions {
		state := "pending"
		if recorded[version] {
			record, err := m.store.GetMigration(ctx, m.db, version)
			if err != nil {
				return fmt.Errorf("migrate status: %w", err)
			}
			state = record.Timestamp.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%-20s  %s\n", state, m.files[version].name)
	}
	return nil
}
