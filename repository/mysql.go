package repository

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"firsttap/migrations"
	"firsttap/repository/primary"
)

const (
	// About four connections per core give the most commits per second; a hundred give half as many.
	decideConns = 12
	serveConns  = 12 // the API lets the backoffice read by 7 at once: lists, searches and previews two each, and one export
	workConns   = 8  // the relay's expansions take four at most, and webhooks are written, leased and completed by one each
	watchConns  = 3  // a look, a replica's position and the probe
	// A transaction that holds a row commits within milliseconds or is stuck. A COMMIT takes no context: a claim must not hang in
	// it.
	usualPatience = time.Second
	// A backstop for a frozen server. Contexts end calls earlier.
	ioTimeout = 10 * time.Second
	// The server executes a read for so much less than the client waits, so that it does not go on without the client. MariaDB applies
	// the limit to every statement, so only the pool for reads has it.
	serverGivesUpBefore = time.Second
	// workRecheck is how old the check of a connection for work may be. The relay mostly writes, so a read-only server shows anyway.
	workRecheck = time.Second
)

func openMySQL(ctx context.Context, rawURL string, o Options) (*Store, error) {
	config, err := MySQLConfig(rawURL)
	if err != nil {
		return nil, err
	}
	config.Timeout, config.ReadTimeout = 2*o.Patience, max(ioTimeout, 2*o.Patience)
	log := o.Log
	version, err := serverVersion(ctx, config)
	if err != nil {
		e := examination{setting: databaseSetting, conns: instanceConns, config: config}
		return nil, fmt.Errorf("database %s: %w; %s", config.Addr, err, e.afterNoConnection(err))
	}
	config.Params[rowLockWait] = seconds(o.Patience)
	s := &Store{log: log, options: o, looks: newLooks()}
	at := &primary.Server{}
	quick := config.Clone()
	quick.ReadTimeout, quick.WriteTimeout = 2*o.Patience, 2*o.Patience
	if s.decide, err = s.primaryPool(quick, decideConns, 0, at); err != nil {
		return nil, err
	}
	reading := config.Clone()
	limitReads(reading, config.ReadTimeout-serverGivesUpBefore)
	if s.serve, err = s.primaryPool(reading, serveConns, 0, at); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if s.work, err = s.primaryPool(config, workConns, workRecheck, at); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	watching := quick.Clone()
	watching.Params[tableLockWait] = seconds(o.Patience)
	if s.watch, err = s.primaryPool(watching, watchConns, 0, at); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	probe, err := s.watch.DB()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.dialect = dialect{
		name:        schemaOf(version),
		ping:        func(ctx context.Context) error { return commits(ctx, probe) },
		hasTables:   func(ctx context.Context) error { return changesTables(ctx, probe) },
		text:        mysqlText,
		leaveServer: at.Leave,
		migrator: func() (*migrations.Migrator, func() error, error) {
			// A migration step on a large table takes long, and so does the wait for another process's step.
			slow := config.Clone()
			slow.ReadTimeout, slow.WriteTimeout = 0, 0
			slow.RejectReadOnly = false // the operator gets the server's error
			connector, err := driver.NewConnector(slow)
			if err != nil {
				return nil, nil, err
			}
			db := sql.OpenDB(connector)
			m, err := migrations.New(s.dialect.name, db, log)
			return m, db.Close, err
		},
		durability: durabilityOf(version),
	}
	prepare := s.callClaims
	if isTiDB(version) {
		prepare = s.onTiDB
	}
	if err := prepare(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if o.ReplicaURL != "" {
		if err := s.openReplica(o.ReplicaURL, version); err != nil {
			return nil, errors.Join(fmt.Errorf("the replica: %w", err), s.Close())
		}
	}
	return s, nil
}

func isMariaDB(version string) bool { return strings.Contains(version, "MariaDB") }

// CheckURL reports what is wrong with a mysql:// URL, without connecting.
func CheckURL(rawURL string) error {
	config, err := MySQLConfig(rawURL)
	if err == nil {
		_, err = driver.NewConnector(config)
	}
	return err
}

// MySQLConfig parses mysql://user:password@host:port/name, with the driver's values for ?tls=.
func MySQLConfig(rawURL string) (*driver.Config, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("the database URL can't be parsed") // err contains the password
	}
	name := strings.TrimPrefix(u.Path, "/")
	if u.Hostname() == "" || name == "" || strings.Contains(name, "/") {
		return nil, errors.New("the database URL lacks a host or a database name")
	}
	if u.Fragment != "" {
		return nil, errors.New("the database URL has a #: write %23 for one in a password")
	}
	if port, err := strconv.Atoi(cmp.Or(u.Port(), "3306")); err != nil || port < 1 || port > math.MaxUint16 {
		return nil, errors.New("the database URL's port is not from 1 to 65535")
	}
	options, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the database URL's options can't be parsed")
	}
	for key, values := range options {
		if key != "tls" {
			return nil, fmt.Errorf("the database URL has an option %q; the only one is tls", key)
		}
		if len(values) > 1 || values[0] == "" {
			return nil, errors.New("the database URL's option tls has no value, or several: want one, such as true")
		}
	}
	config := driver.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", u.Host, name
	if u.Port() == "" {
		config.Addr += ":3306"
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.TLSConfig = options.Get("tls")
	config.ParseTime = true
	config.InterpolateParams = true // one round trip for a statement instead of three
	config.ClientFoundRows = true   // RowsAffected counts matched rows, not changed ones
	config.RejectReadOnly = true    // closes a connection whose server takes no writes any more
	config.Timeout, config.ReadTimeout, config.WriteTimeout = 2*usualPatience, ioTimeout, ioTimeout
	config.Logger = driver.Logger(&driver.NopLogger{}) // every error is returned, and logged where it is handled
	config.Params = sessionParams()
	return config, nil
}

// serverVersion returns the version of a server that takes writes. errLogFormat.
func serverVersion(ctx context.Context, config *driver.Config) (version string, err error) {
	connector, err := primary.NewConnector(config, 1, 0, &primary.Server{})
	if err != nil {
		return "", err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	if err = db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err == nil {
		err = checkLogFormat(ctx, db)
	}
	return version, err
}

// primaryPool returns a pool of connections to the server, which are checked when they are taken from the pool after that time.
func (s *Store) primaryPool(config *driver.Config, conns int, every time.Duration, at *primary.Server) (*gorm.DB, error) {
	pool, err := s.openPrimary(config, conns, every, at)
	if err != nil {
		return nil, err
	}
	return gorm.Open(mysql.New(mysql.Config{Conn: pool, SkipInitializeWithVersion: true}), gormConfig())
}

func (s *Store) openPrimary(config *driver.Config, conns int, every time.Duration, at *primary.Server) (*sql.DB, error) {
	connector, err := primary.NewConnector(config, conns, every, at)
	if err != nil {
		return nil, err
	}
	pool := limitPool(sql.OpenDB(connector), conns)
	s.closers = append(s.closers, pool.Close)
	return pool, nil
}

// commits returns nil once the server has committed a write: a server that answers and commits nothing is away. It writes one row, which is
// no lock that is held, and only if no instance has done so in the last probeFresh: else it waits for such a write that is being committed.
func commits(ctx context.Context, probe *sql.DB) error {
	const fresh = "lock_until BETWEEN UTC_TIMESTAMP(6) - INTERVAL 1500000 MICROSECOND AND UTC_TIMESTAMP(6)"
	_, err := probe.ExecContext(ctx, "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('"+probeRow+
		"', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), '') ON DUPLICATE KEY UPDATE lock_until = IF("+fresh+", lock_until, UTC_TIMESTAMP(6))")
	if isServerError(err, deadlock) { // instances that insert the row together; the server commits one of them
		return nil
	}
	return err
}

// changesTables is dialect.hasTables. It needs the right to change rows of each table, and locks no row.
func changesTables(ctx context.Context, probe *sql.DB) error {
	_, err := probe.ExecContext(ctx, `UPDATE dispatches d, claims c, events e, drivers v, taps t, devices p
SET d.round = d.round, c.round = c.round, e.round = e.round, v.version = v.version, t.round = t.round, p.platform = p.platform WHERE 1 = 0`)
	if isServerError(err) && !isServerError(err, passing...) {
		return err
	}
	return nil // commits finds out whether the server answers at all
}

func limitPool(pool *sql.DB, conns int) *sql.DB {
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(sessionSeconds * time.Second * 3 / 4) // before the server ends the session
	return pool
}

// gormConfig turns off gorm's own transactions and its log: errors are logged where they are handled.
func gormConfig() *gorm.Config {
	return &gorm.Config{SkipDefaultTransaction: true, TranslateError: true, Logger: logger.Discard}
}

// OpenPool returns a pool of up to conns connections to the database at url, for users that must not wait for the Store's
// connections. It does not connect.
func OpenPool(url string, conns int) (*sql.DB, migrations.Dialect, error) {
	if path, ok := strings.CutPrefix(url, "sqlite://"); ok {
		pool, err := sqliteConns(path, 2*usualPatience, 1) // one writer at a time
		return pool, migrations.SQLite, err
	}
	config, err := MySQLConfig(url)
	if err != nil {
		return nil, "", err
	}
	connector, err := primary.NewConnector(config, conns, 0, &primary.Server{})
	if err != nil {
		return nil, "", err
	}
	return limitPool(sql.OpenDB(connector), conns), migrations.MySQL, nil
}
