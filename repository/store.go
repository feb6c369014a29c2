// Package repository keeps dispatches, drivers, claims, events and the outbox in MySQL, MariaDB or SQLite.
//
// It owns every transaction. What a change decided and what is to be told of it are committed together or not at
// all, and the database's clock is the only one that counts.
package repository

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
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
	doors   *gorm.DB
	dialect dialect
	options Options
	log     *slog.Logger
	closers []func() error
}

// dialect is what differs between the databases.
type dialect struct {
	name migrations.Dialect
	// readOnly is the SQL for whether the server takes no writes, and what it would answer may be old.
	readOnly string
	// demoted has every connection for claims given up that is there by now: one of them led to such a server.
	demoted func()
	// ping is nil where the database takes writes. It waits for nobody's transaction, and for no connection of a pool.
	ping func(context.Context) error
	// now is the SQL for the database's clock in microseconds.
	now func() string
	// forUpdate and forShare lock the row a SELECT finds; SQLite's transactions hold the whole file.
	forUpdate, forShare string
	// skipLocked locks what a SELECT finds but for what others have locked.
	skipLocked string
	// along is the SQL, behind a table's name, that has it read along that index. A server that may choose reads the whole
	// table backwards instead and hopes to find a page early, or an index from its end to where the page begins.
	along func(index string) string
	// hasRegion is the SQL for a driver v's regions, a JSON array, having one.
	hasRegion string
	// retryable reports an error that says "again": nothing was written, and the same thing may well succeed.
	retryable func(error) bool
	// migrator also returns how to close what it opened.
	migrator func() (*migrations.Migrator, func() error, error)
	// durability returns what is wrong with the server's settings. What could not be looked at is the error.
	durability func(context.Context, *sql.DB) ([]string, error)
}

// Options are what a Store works with besides its database. The zero value announces nothing, and leaves the outbox rows
// that it writes to the first relay that polls for them.
type Options struct {
	// OnCommit is called with every change that this process has committed, after its COMMIT and before the caller learns
	// of it. It is called by many goroutines at once and must not block.
	OnCommit func(dispatch.Dispatch, []dispatch.Event)
	// OutboxOwner leases each outbox row for OutboxLease as the row is written, so that the relay that hears of it by OnCommit
	// need not poll. Another relay may take the row over when the lease expires. "" writes rows that are due at once.
	OutboxOwner string
	OutboxLease time.Duration
	// Watch observes every statement.
	Watch Watch
	// Log is where the Store warns. Nil discards.
	Log *slog.Logger
}

// Open connects to the database that url names: mysql://user:password@host:port/name or sqlite://path. While the server
// does not answer it tries again, until ctx ends.
func Open(ctx context.Context, url string, o Options) (s *Store, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	scheme, rest, found := strings.Cut(url, "://")
	switch {
	case found && scheme == "mysql":
		s, err = openMySQL(ctx, url, o.Log)
	case found && scheme == "sqlite" && rest != "":
		s, err = openSQLite(rest, o.Log)
	default:
		err = errors.New("a database URL is mysql://user:password@host:port/name or sqlite://path")
	}
	if err != nil {
		return nil, err
	}
	if s.options = o; o.Watch != nil {
		s.observe(o.Watch)
	}
	return s, nil
}

// announce calls OnCommit with what has just been committed.
func (s *Store) announce(d dispatch.Dispatch, events []dispatch.Event) {
	if s.options.OnCommit != nil && len(events) > 0 {
		s.options.OnCommit(d, events)
	}
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

// transact runs fn in a transaction. Any error but ErrUnknown means that nothing was written; ErrUnknown, that the
// COMMIT was sent and its reply is missing.
func transact(ctx context.Context, db *gorm.DB, fn func(tx *gorm.DB) error) error {
	tx := db.WithContext(ctx).Begin()
	if tx.Error != nil {
		return unavailable(tx.Error)
	}
	// Also after 1205, which undoes one statement and leaves the others to be committed, and after a panic, which
	// would leave the rows locked. After a COMMIT it does nothing.
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit().Error; err != nil {
		return fmt.Errorf("%w: commit: %w", dispatch.ErrUnknown, err)
	}
	return nil
}

// unavailable turns an error of the database's into ErrUnavailable, and leaves an error of the domain as it is.
func unavailable(err error) error {
	if err == nil || errors.Is(err, dispatch.ErrUnknown) || errors.Is(err, dispatch.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", dispatch.ErrUnavailable, err)
}

func micros(t time.Time) int64 { return t.UnixMicro() }

func optionalMicros(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	us := t.UnixMicro()
	return &us
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

func fromOptionalMicros(us *int64) *time.Time {
	if us == nil {
		return nil
	}
	t := fromMicros(*us)
	return &t
}

// optional is s, or NULL for none.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
