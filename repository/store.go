// Package repository keeps dispatches, drivers, claims, events and the outbox in MySQL, MariaDB, TiDB or SQLite.
//
// It owns every transaction. A change and the events to announce are committed together or not at all, and only the
// database's clock decides.
package repository

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"math"
	"strings"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/migrations"
)

// Store is the database. It is safe for concurrent use.
type Store struct {
	// decide is the pool for changes, serve that for reads, and work that for the relay and webhooks: changes that wait for a row's lock delay
	// no reads, and a backlog of notifications delays neither. watch is for looks and for the check whether the database commits: they wait
	// for none of the others.
	decide, serve, work, watch *gorm.DB
	// doors holds an element while a KeyHashes runs: requests with invalid keys take one connection.
	doors   chan struct{}
	looks   *looks
	dialect dialect
	// procedure and lastKnown make a claim cheap; nil for SQLite, which has no round trips, and for TiDB, which has no procedures.
	procedure *claimProcedure
	lastKnown *lastKnown
	// replica answers what the backoffice lists; nil for none.
	replica *replica
	options Options
	log     *slog.Logger
	closers []func() error
}

// dialect holds the differences between the databases.
type dialect struct {
	name migrations.Dialect
	text text
	// leaveServer closes every present connection: one of them led to a read-only server.
	leaveServer func()
	// ping returns nil if the database commits writes. It waits for no transaction and for no connection of the pools above.
	ping func(context.Context) error
	// hasTables returns why the database refuses to change the tables without which no tap is decided, no dispatch is created or no driver
	// sees an offer. It changes nothing, and returns nil also while a table is locked.
	hasTables func(context.Context) error
	// migrator also returns a function that closes its connections.
	migrator func() (*migrations.Migrator, func() error, error)
	// noSessionLocks is why locks that a session holds do not work on this kind of server, "" if they do. It does not know a Galera cluster.
	noSessionLocks string
	// durability returns the settings by which committed claims may be lost, and an error if some could not be checked.
	durability func(context.Context, *sql.DB) ([]string, error)
}

// Options configure a Store. The zero value announces nothing, and leaves the events
// that it writes to the first relay that polls for them.
type Options struct {
	// OnCommit is called with every change that this process has committed, after its COMMIT and before the caller learns
	// of it. It is called by many goroutines at once and must not block.
	OnCommit func(dispatch.Dispatch, []dispatch.Event)
	// OutboxOwner leases each event for OutboxLease as it is written, so that the relay that hears of it by OnCommit
	// need not poll. Another relay may take the event over when the lease expires. "" writes events that are due at once.
	OutboxOwner string
	OutboxLease time.Duration
	// Patience is how long a statement waits for a row's lock, and a check whether the server takes writes for its answer. A dial, the
	// answer to a write, the question for a lost COMMIT and SQLite's file get twice as long. 0 means a second; tests on a busy
	// machine have more.
	Patience time.Duration
	// Retention is how long Prune leaves history; the zero value keeps it for ever.
	Retention Retention
	// ReplicaURL names a replica of the database, which must be a MySQL or MariaDB, for lists. "" for none.
	ReplicaURL string
	// Observer observes every statement.
	Observer StatementObserver
	// Log is where the Store warns. Nil discards.
	Log *slog.Logger
}

// Open connects to the database that url names: mysql://user:password@host:port/name or sqlite://path. While the database can't be
// used for a reason that passes it tries again, until ctx ends.
func Open(ctx context.Context, url string, o Options) (s *Store, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Patience == 0 {
		o.Patience = usualPatience
	}
	const untilTheEnd = math.MaxInt64
	err = UntilReachable(ctx, untilTheEnd, o.Log, func() error {
		switch path, ok := strings.CutPrefix(url, "sqlite://"); {
		case ok && o.ReplicaURL != "":
			err = errors.New("an SQLite database has no replica")
		case ok && path != "":
			s, err = openSQLite(ctx, path, o)
		case strings.HasPrefix(url, "mysql://"):
			s, err = openMySQL(ctx, url, o)
		default:
			err = errors.New("a database URL is mysql://user:password@host:port/name or sqlite://path")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.doors = make(chan struct{}, 1)
	s.prepare()
	return s, nil
}

// announce remembers what has just been committed, and calls OnCommit with it.
func (s *Store) announce(d dispatch.Dispatch, events []dispatch.Event) {
	s.lastKnown.learnDispatch(&d)
	if s.options.OnCommit != nil && len(events) > 0 {
		s.options.OnCommit(d, events)
	}
}

// Close closes all connections at once: statements that are running fail.
func (s *Store) Close() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// Ping returns nil if the database commits a write. Its schema must be migrated.
func (s *Store) Ping(ctx context.Context) error { return unavailable(s.dialect.ping(ctx)) }

// NoSessionLocks returns why locks that a session holds do not work on this kind of server, "" if they do. It does not know a Galera cluster: the
// doctor does.
func (s *Store) NoSessionLocks() string { return s.dialect.noSessionLocks }

// Migrate calls fn with the migrator of this database.
func (s *Store) Migrate(fn func(*migrations.Migrator) error) error {
	m, done, err := s.dialect.migrator()
	if err != nil {
		return err
	}
	return errors.Join(fn(m), done())
}
