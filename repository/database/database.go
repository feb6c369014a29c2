package database

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/glebarez/sqlite"
	driver "github.com/go-sql-driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"firsttap/migrations"
	"firsttap/repository/primary"
)

// DB is a database with its pools. It is safe for concurrent use.
type DB struct {
	// Decide is the pool for changes, Serve that for reads, and Work that for the relay and webhooks: changes that wait for a row's lock
	// delay no reads, and a backlog of notifications delays neither. Watch is for the poll and for the check whether the database commits:
	// they wait for none of the others.
	Decide, Serve, Work, Watch *Pool
	// Dialect is that of the migrations, and Version what the server says of itself, "" for SQLite.
	Dialect migrations.Dialect
	Version string
	// Options are those that it was opened with. Patience is not 0, and Log and Now are not nil.
	Options

	text    *text
	clock   func() string // SQLite's
	conns   map[string]*sql.DB
	probe   *sql.DB         // for the check whether the database commits: it waits for no transaction
	config  *driver.Config  // of a server
	path    string          // of a file
	primary *primary.Server // not used for a file, which is never demoted
	replica *replica        // nil for none
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
		db = &DB{Options: o, conns: map[string]*sql.DB{}, primary: &primary.Server{}}
		switch path, ok := strings.CutPrefix(url, "sqlite://"); {
		case ok && o.ReplicaURL != "":
			err = errors.New("an SQLite database has no replica")
		case ok && path != "":
			err = db.openSQLite(ctx, path)
		case strings.HasPrefix(url, "mysql://"):
			err = db.openMySQL(ctx, url)
		default:
			err = errors.New("a database URL is mysql://user:password@host:port/name or sqlite://path")
		}
		if err != nil {
			err = errors.Join(err, db.Close())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return db, nil
}

// Close closes all connections at once: statements that are running fail.
func (d *DB) Close() error {
	var errs []error
	// Of SQLite's, the one that writes is the last: it puts the log away.
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(d.conns))) {
		errs = append(errs, d.conns[name].Close())
	}
	if d.probe != nil {
		errs = append(errs, d.probe.Close())
	}
	return errors.Join(errs...)
}

// SQLite reports whether the database is a file of SQLite, which has one writer at a time.
func (d *DB) SQLite() bool { return d.Dialect == migrations.SQLite }

// NoSessionLocks returns why locks that a session holds do not work on this kind of server, "" if they do. It does not know a Galera
// cluster: the doctor does.
func (d *DB) NoSessionLocks() string {
	if IsTiDB(d.Version) {
		return NoSessionLocksOnTiDB
	}
	return ""
}

// Migrate calls fn with the migrator of this database, which has a connection of its own.
func (d *DB) Migrate(fn func(*migrations.Migrator) error) error {
	open := d.migratingServer
	if d.SQLite() {
		open = func() (*sql.DB, error) { return SQLiteConns(d.path, migrations.LockWait, 1) }
	}
	conns, err := open()
	if err != nil {
		return err
	}
	m, err := migrations.New(d.Dialect, conns, d.Log)
	if err == nil {
		err = fn(m)
	}
	return errors.Join(err, conns.Close())
}

// Stale closes the present connections, as one of them led to a server that takes no writes any more, and returns ErrUnavailable. The next
// statement has a new connection, to the server that takes writes now.
func (d *DB) Stale() error {
	d.primary.Leave()
	return Unavailable(ErrStale)
}

// Tx is a transaction, or a connection of a pool. Its methods are those of gorm, which maps rows to structs.
type Tx = *gorm.DB

// Pool is a pool of connections. It is safe for concurrent use.
type Pool struct{ db *gorm.DB }

// Pools returns the connection pools by name, for their metrics. SQLite has one for all writes.
func (d *DB) Pools() map[string]*sql.DB { return d.conns }

// newPool returns a pool of the connections, which are closed with d. It opens the first of them.
func (d *DB) newPool(ctx context.Context, name string, conns *sql.DB) (*Pool, error) {
	d.conns[name] = conns
	statements := &textPool{ConnPool: conns, name: name, text: d.text, clock: d.clock}
	var dialect gorm.Dialector = &sqlite.Dialector{Conn: statements}
	if !d.SQLite() {
		dialect = mysqlDialect(statements)
	}
	db, err := gorm.Open(dialect, gormConfig())
	statements.observer = d.Observer // SQLite has been asked for its version
	if err == nil {
		err = conns.PingContext(ctx)
	}
	return &Pool{db}, err
}

// gormConfig turns off gorm's own transactions and its log: errors are logged where they are handled.
func gormConfig() *gorm.Config {
	return &gorm.Config{SkipDefaultTransaction: true, TranslateError: true, Logger: logger.Discard}
}

// With returns the pool for statements that end with ctx.
func (p *Pool) With(ctx context.Context) Tx { return p.db.WithContext(ctx) }

// QueryContext sends a query without gorm, which costs as much as a short statement does.
func (p *Pool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return p.db.Statement.ConnPool.QueryContext(ctx, query, args...)
}

// SQL returns the connections. Statements that are sent by them have no words in braces, and no observer sees them.
func (p *Pool) SQL() (*sql.DB, error) { return p.db.DB() }
