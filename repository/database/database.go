package database

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"firsttap/migrations"
)

// DB is a database with its pools. It is safe for concurrent use.
type DB struct {
	// Decide is the pool for changes, Serve that for reads, and Work that for the relay and webhooks: changes that wait for a row's lock delay
	// no reads, and a backlog of notifications delays neither. Watch is for the poll and for the check whether the database commits: they wait
	// for none of the others.
	Decide, Serve, Work, Watch *Pool
	// Dialect is that of the migrations, and Version what the server says of itself, "" for SQLite.
	Dialect migrations.Dialect
	Version string
	// Patience and Log are those of the Options; Log is not nil.
	Patience time.Duration
	Log      *slog.Logger

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
	// replica answers what the backoffice lists; nil for none.
	replica  *replica
	answered atomic.Pointer[time.Time]
	observer StatementObserver
	closers  []func() error
}

// Options configure a DB.
type Options struct {
	// Patience is how long a statement waits for a row's lock, and a check whether the server takes writes for its answer. A dial, the
	// answer to a write, the question for a lost COMMIT and SQLite's file get twice as long. 0 means a second; tests on a busy
	// machine have more.
	Patience time.Duration
	// ReplicaURL names a replica of the database, which must be a MySQL or MariaDB, for lists. "" for none.
	ReplicaURL string
	// Observer observes every statement.
	Observer StatementObserver
	// Log is where the DB warns. Nil discards.
	Log *slog.Logger
	// Now is the clock of an SQLite database; nil for time.Now. A server has its own.
	Now func() time.Time
}

// Open connects to the database that url names: mysql://user:password@host:port/name or sqlite://path. While the database can't be
// used for a reason that passes it tries again, until ctx ends.
func Open(ctx context.Context, url string, o Options) (db *DB, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Patience == 0 {
		o.Patience = UsualPatience
	}
	const untilTheEnd = math.MaxInt64
	err = UntilReachable(ctx, untilTheEnd, o.Log, func() error {
		switch path, ok := strings.CutPrefix(url, "sqlite://"); {
		case ok && o.ReplicaURL != "":
			err = errors.New("an SQLite database has no replica")
		case ok && path != "":
			db, err = openSQLite(ctx, path, o)
		case strings.HasPrefix(url, "mysql://"):
			db, err = openMySQL(ctx, url, o)
		default:
			err = errors.New("a database URL is mysql://user:password@host:port/name or sqlite://path")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	db.prepare()
	return db, nil
}

// newDB returns a DB without pools.
func newDB(o Options) *DB { return &DB{Patience: o.Patience, observer: o.Observer, Log: o.Log} }

// Close closes all connections at once: statements that are running fail.
func (d *DB) Close() error {
	var errs []error
	for _, c := range d.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// Ping returns nil if the database commits a write. Its schema must be migrated. ErrUnavailable.
func (d *DB) Ping(ctx context.Context) error { return Unavailable(d.ping(ctx)) }

// SQLite reports whether the database is a file of SQLite, which has one writer at a time.
func (d *DB) SQLite() bool { return d.text.sqlite }

// NoSessionLocks returns why locks that a session holds do not work on this kind of server, "" if they do. It does not know a Galera
// cluster: the doctor does.
func (d *DB) NoSessionLocks() string {
	if IsTiDB(d.Version) {
		return NoSessionLocksOnTiDB
	}
	return ""
}

// Migrate calls fn with the migrator of this database.
func (d *DB) Migrate(fn func(*migrations.Migrator) error) error {
	m, done, err := d.migrator()
	if err != nil {
		return err
	}
	return errors.Join(fn(m), done())
}

// Stale closes the present connections, as one of them led to a server that takes no writes any more, and returns ErrUnavailable. The next
// statement has a new connection, to the server that takes writes now.
func (d *DB) Stale() error {
	d.leaveServer()
	return Unavailable(ErrStale)
}

// Answered records that a server that takes writes answered at that time, by this process's clock; the zero time records that it did not.
// The Probe counts it as a check.
func (d *DB) Answered(at time.Time) {
	if at.IsZero() {
		d.answered.Store(nil)
		return
	}
	d.answered.Store(&at)
}

// Tx is a transaction, or a connection of a pool. Its methods are those of gorm, which maps rows to structs.
type Tx = *gorm.DB

// Pool is a pool of connections. It is safe for concurrent use.
type Pool struct{ db *gorm.DB }

// With returns the pool for statements that end with ctx.
func (p *Pool) With(ctx context.Context) Tx { return p.db.WithContext(ctx) }

// QueryContext sends a query without gorm, which costs as much as a short statement does.
func (p *Pool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return p.db.Statement.ConnPool.QueryContext(ctx, query, args...)
}

// SQL returns the connections. Statements that are sent by them have no words in braces, and no observer sees them.
func (p *Pool) SQL() (*sql.DB, error) { return p.db.DB() }
