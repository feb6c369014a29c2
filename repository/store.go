// Package repository keeps dispatches, drivers, claims, events and the outbox in MySQL, MariaDB or SQLite.
//
// It owns every transaction. A change and the events to announce are committed together or not at all, and only the
// database's clock decides.
package repository

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"

	"gorm.io/gorm"

	"firsttap/migrations"
)

// Store is the database. Safe for concurrent use.
type Store struct {
	// claims is a pool of its own, and a small one: a row that somebody holds must not keep unrelated reads waiting,
	// and more committing connections make fewer commits.
	claims *gorm.DB
	// writes is where every other change goes, general where reads do: changes that wait for a row keep no read waiting.
	writes  *gorm.DB
	general *gorm.DB
	// relay is where the outbox is worked on: a backlog of pushes keeps no claim and no read waiting.
	relay *gorm.DB
	// doors is where it is looked up which keys there are, on a single connection: strangers take none from anybody else.
	doors     *gorm.DB
	dialect   dialect
	listeners commitListeners
	log       *slog.Logger
	closers   []func() error
}

// dialect is what differs between the databases.
type dialect struct {
	name migrations.Dialect
	// readOnly is the SQL for whether the server takes no writes, and what it would answer may be old.
	readOnly string
	// invalidateClaimConns has every connection for claims given up that is there by now: one of them led to such a server.
	invalidateClaimConns func()
	// ping is nil where the database takes writes. It waits for nobody's transaction, and for no connection of a pool.
	ping func(context.Context) error
	// now is the SQL for the database's clock in microseconds.
	now func() string
	// forUpdate and forShare lock the row a SELECT finds; SQLite's transactions hold the whole file.
	forUpdate, forShare string
	// skipLocked locks what a SELECT finds but for what others have locked.
	skipLocked string
	// forceIndex is the SQL, behind a table's name, that has it read along that index. A server that may choose reads the whole
	// table backwards instead and hopes to find a page early, or an index from its end to where the page begins.
	forceIndex func(index string) string
	// hasRegion is the SQL for a driver v's regions, a JSON array, having one.
	hasRegion string
	// retryable reports an error that says "again": nothing was written, and the same thing may well succeed.
	retryable func(error) bool
	// migrator also returns how to close what it opened.
	migrator func() (*migrations.Migrator, func() error, error)
	// durability returns what is wrong with the server's settings. What could not be looked at is the error.
	durability func(context.Context, *sql.DB) ([]string, error)
}

// Open connects to the database that url names: mysql://user:password@host:port/name or sqlite://path. It keeps
// trying until ctx ends while the server is not there yet.
func Open(ctx context.Context, url string, log *slog.Logger) (*Store, error) {
	scheme, rest, found := strings.Cut(url, "://")
	switch {
	case found && scheme == "mysql":
		return openMySQL(ctx, url, log)
	case found && scheme == "sqlite" && rest != "":
		return openSQLite(rest, log)
	}
	return nil, errors.New("a database URL is mysql://user:password@host:port/name or sqlite://path")
}

// Close waits for nothing: what is under way fails.
func (s *Store) Close() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// Ping reports whether the database answers and takes writes.
func (s *Store) Ping(ctx context.Context) error { return unavailable(s.dialect.ping(ctx)) }

// Migrate calls fn with the migrator of this database.
func (s *Store) Migrate(fn func(*migrations.Migrator) error) error {
	m, done, err := s.dialect.migrator()
	if err != nil {
		return err
	}
	return errors.Join(fn(m), done())
}
