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
	store    database.Store
	files    map[int64]file
	versions []int64 // those of files, the oldest first
	server   *server // nil on SQLite
}

// file is a migration.
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
		options = append(options, goose.WithSessionLocker(m.server), goose.WithGoMigrations(m.server.migrations(m.files)...))
	}
	if m.store, err = database.NewStore(of, goose.DefaultTablename); err != nil {
		return nil, err
	}
	m.provider, err = goose.NewProvider(of, db, schema, options...)
	return m, err
}

// Up applies all missing migrations, and returns how many. ErrBusy.
func (m *Migrator) Up(ctx context.Context) (steps int, err error) {
	missing, half, err := m.missing(ctx)
	if err == nil && half {
		// What is left of it counts as done when it is applied again.
		_, err = m.db.ExecContext(ctx, "DELETE FROM goose_db_version WHERE NOT is_applied")
	}
	if err != nil {
		return 0, fmt.Errorf("migrate up: %w", busy(err))
	}
	for _, version := range missing {
		_, err := m.provider.ApplyVersion(ctx, version, true)
		if err == nil {
			steps++
			continue
		}
		if recorded, readErr := m.recorded(ctx); readErr != nil || !recorded[version] { // by whichever process
			return steps, fmt.Errorf("migrate up: %s: %w", m.files[version].name, busy(err))
		}
	}
	return steps, nil
}

// Down reverts the newest migration and deletes the data that only it has columns for. It returns false if there was none. ErrBusy.
func (m *Migrator) Down(ctx context.Context) (took bool, err error) {
	newest, f, err := m.newest(ctx)
	if err != nil || newest == 0 {
		return false, err
	}
	if _, err := m.provider.ApplyVersion(ctx, newest, false); err != nil {
		return false, fmt.Errorf("migrate down: %s: %w", f.name, busy(err))
	}
	return true, nil
}

// Newest returns the name of what Down would revert next, and the SQL of it; "" if there is nothing.
func (m *Migrator) Newest(ctx context.Context) (name, down string, err error) {
	_, f, err := m.newest(ctx)
	return f.name, strings.TrimSpace(f.down), err
}

// newest returns the newest version that is recorded, 0 if there is none.
func (m *Migrator) newest(ctx context.Context) (version int64, f file, err error) {
	recorded, err := m.recorded(ctx)
	for v := range recorded {
		version = max(version, v)
	}
	f, ours := m.files[version]
	if version > 0 && !ours {
		err = fmt.Errorf("the database has migration %d, and this FirstTap release does not", version)
	}
	return version, f, err
}

// Count returns how many migrations there are.
func (m *Migrator) Count() int { return len(m.versions) }

// Pending returns how many migrations Up would apply. It waits for no other process, and writes nothing.
func (m *Migrator) Pending(ctx context.Context) (int, error) {
	missing, _, err := m.missing(ctx)
	return len(missing), err
}

// missing returns the versions that are not applied, the oldest first, and whether a process began to take one back.
func (m *Migrator) missing(ctx context.Context) (versions []int64, half bool, err error) {
	recorded, err := m.recorded(ctx)
	for v, applied := range recorded {
		if v < m.versions[0] {
			err = errors.New("a FirstTap from before 1.0.0 made this database, and no release can use it: use a new one")
		}
		half = half || !applied
	}
	return slices.DeleteFunc(slices.Clone(m.versions), func(v int64) bool { return recorded[v] }), half, err
}

// recorded returns the versions that are recorded, also those of another release: true for one that is applied, and false for one that a
// process began to take back.
func (m *Migrator) recorded(ctx context.Context) (map[int64]bool, error) {
	list, err := m.store.ListMigrations(ctx, m.db)
	if err != nil && !isError(err, noSuchTable) && !strings.Contains(err.Error(), "no such table: "+goose.DefaultTablename) {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	all := map[int64]bool{}
	for _, r := range list {
		if r.Version > 0 { // 0 is goose's own
			all[r.Version] = r.IsApplied
		}
	}
	return all, nil
}

// busy returns ErrBusy if another process has locked SQLite's file for too long.
func busy(err error) error {
	const locked = 5
	var refused interface{ Code() int } // of SQLite's driver
	if errors.As(err, &refused) && refused.Code()&0xff == locked {
		return ErrBusy
	}
	return err
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
