package database

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
	// UsualPatience is the patience of an instance. A transaction that holds a row commits within milliseconds or is stuck. A COMMIT takes no
	// context: a claim must not hang in it.
	UsualPatience = time.Second
	// InstanceConns is the most that an instance opens: those of the pools, and those of the jobs' locks, which are up to JobConns.
	InstanceConns = decideConns + serveConns + workConns + watchConns + JobConns
	// JobConns is the most that the locks of jobs open.
	JobConns = 36
	// A backstop for a frozen server. Contexts end calls earlier.
	ioTimeout = 10 * time.Second
	// The server executes a read for so much less than the client waits, so that it does not go on without the client. MariaDB applies
	// the limit to every statement, so only the pool for reads has it.
	serverGivesUpBefore = time.Second
	// workRecheck is how old the check of a connection for work may be. The relay mostly writes, so a read-only server shows anyway.
	workRecheck = time.Second
)

func openMySQL(ctx context.Context, rawURL string, o Options) (*DB, error) {
	config, err := MySQLConfig(rawURL)
	if err != nil {
		return nil, err
	}
	config.Timeout, config.ReadTimeout = 2*o.Patience, max(ioTimeout, 2*o.Patience)
	d := newDB(o)
	if d.Version, err = serverVersion(ctx, config); err != nil {
		return nil, fmt.Errorf("database %s: %w; %s", config.Addr, err, Advice(err, config, DatabaseSetting, InstanceConns))
	}
	if err := d.openPools(config); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.Dialect, d.text = SchemaOf(d.Version), mysqlText
	if IsTiDB(d.Version) {
		d.text = tidbText
	}
	d.migrator = func() (*migrations.Migrator, func() error, error) {
		// A migration step on a large table takes long, and so does the wait for another process's step.
		slow := config.Clone()
		slow.ReadTimeout, slow.WriteTimeout = 0, 0
		slow.RejectReadOnly = false // the operator gets the server's error
		connector, err := driver.NewConnector(slow)
		if err != nil {
			return nil, nil, err
		}
		db := sql.OpenDB(connector)
		m, err := migrations.New(d.Dialect, db, o.Log)
		return m, db.Close, err
	}
	switch {
	case o.ReplicaURL == "":
		return d, nil
	case IsTiDB(d.Version):
		err = errors.New(NoReplicaOfTiDB + "; " + UnsetReplica)
	default:
		if err = d.openReplica(o.ReplicaURL); err != nil {
			err = fmt.Errorf("the replica: %w", err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// openPools opens the pools to a server of config, and the checks of it.
func (d *DB) openPools(config *driver.Config) (err error) {
	config.Params[rowLockWait] = seconds(d.Patience)
	at := &primary.Server{}
	d.leaveServer = at.Leave
	quick := config.Clone()
	quick.ReadTimeout, quick.WriteTimeout = 2*d.Patience, 2*d.Patience
	if d.Decide, err = d.primaryPool(quick, decideConns, 0, at); err != nil {
		return err
	}
	reading := config.Clone()
	limitReads(reading, config.ReadTimeout-serverGivesUpBefore)
	if d.Serve, err = d.primaryPool(reading, serveConns, 0, at); err != nil {
		return err
	}
	if d.Work, err = d.primaryPool(config, workConns, workRecheck, at); err != nil {
		return err
	}
	watching := quick.Clone()
	watching.Params[tableLockWait] = seconds(d.Patience)
	if d.Watch, err = d.primaryPool(watching, watchConns, 0, at); err != nil {
		return err
	}
	probe, err := d.Watch.SQL()
	d.ping = func(ctx context.Context) error { return commits(ctx, probe) }
	d.hasTables = func(ctx context.Context) error { return changesTables(ctx, probe) }
	return err
}

// IsMariaDB reports whether a version is that of a MariaDB.
func IsMariaDB(version string) bool { return strings.Contains(version, "MariaDB") }

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
	config.Timeout, config.ReadTimeout, config.WriteTimeout = 2*UsualPatience, ioTimeout, ioTimeout
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
		err = CheckLogFormat(ctx, db)
	}
	return version, err
}

// primaryPool returns a pool of connections to the server, which are checked when they are taken from the pool after that time.
func (d *DB) primaryPool(config *driver.Config, conns int, every time.Duration, at *primary.Server) (*Pool, error) {
	connector, err := primary.NewConnector(config, conns, every, at)
	if err != nil {
		return nil, err
	}
	pool := LimitPool(sql.OpenDB(connector), conns)
	d.closers = append(d.closers, pool.Close)
	return poolOf(pool)
}

// poolOf returns the pool of the connections to a MySQL.
func poolOf(conns *sql.DB) (*Pool, error) {
	db, err := gorm.Open(mysql.New(mysql.Config{Conn: conns, SkipInitializeWithVersion: true}), gormConfig())
	return &Pool{db}, err
}

// MySQLPool returns a pool for connections that MySQLConfig's configuration opens, with statements that have words in braces.
func MySQLPool(conns *sql.DB) (*Pool, error) {
	p, err := poolOf(conns)
	if err == nil {
		pool := &textPool{ConnPool: p.db.ConnPool, text: &mysqlText}
		p.db.ConnPool, p.db.Statement.ConnPool = pool, pool
	}
	return p, err
}

// commits returns nil once the server has committed a write: a server that answers and commits nothing is away. It writes one row, which is
// no lock that is held, and only if no instance has done so in the last probeFresh: else it waits for such a write that is being committed.
func commits(ctx context.Context, probe *sql.DB) error {
	const fresh = "lock_until BETWEEN UTC_TIMESTAMP(6) - INTERVAL 1500000 MICROSECOND AND UTC_TIMESTAMP(6)"
	_, err := probe.ExecContext(ctx, "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('"+probeRow+
		"', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), '') ON DUPLICATE KEY UPDATE lock_until = IF("+fresh+", lock_until, UTC_TIMESTAMP(6))")
	if IsServerError(err, Deadlock) { // instances that insert the row together; the server commits one of them
		return nil
	}
	return err
}

// changesTables is DB.hasTables. It needs the right to change rows of each table, and locks no row.
func changesTables(ctx context.Context, probe *sql.DB) error {
	_, err := probe.ExecContext(ctx, `UPDATE dispatches d, claims c, events e, drivers v, taps t, devices p
SET d.round = d.round, c.round = c.round, e.round = e.round, v.version = v.version, t.round = t.round, p.platform = p.platform WHERE 1 = 0`)
	if IsServerError(err) && !IsServerError(err, passing...) {
		return err
	}
	return nil // commits finds out whether the server answers at all
}

// LimitPool bounds a pool, and closes what is idle before the server ends the session.
func LimitPool(pool *sql.DB, conns int) *sql.DB {
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(sessionSeconds * time.Second * 3 / 4)
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
		pool, err := SQLiteConns(path, 2*UsualPatience, 1) // one writer at a time
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
	return LimitPool(sql.OpenDB(connector), conns), migrations.MySQL, nil
}
