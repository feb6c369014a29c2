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

	"firsttap/migrations"
	"firsttap/repository/primary"
)

const (
	// About four connections per core give the most commits per second; a hundred give half as many.
	decideConns = 12
	serveConns  = 12 // the API lets the backoffice read by 7 at once: lists, searches and previews two each, and one export
	workConns   = 8  // the relay's expansions take four at most, and webhooks are written, leased and completed by one each
	watchConns  = 3  // a poll, one that was given up and goes on in the server, and the probe
	// UsualPatience is the patience of an instance. A transaction that holds a row commits within milliseconds or is stuck. A COMMIT takes
	// no context: a claim must not hang in it.
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

// openMySQL opens the pools of the server at rawURL.
func (d *DB) openMySQL(ctx context.Context, rawURL string) (err error) {
	if d.config, err = MySQLConfig(rawURL); err != nil {
		return err
	}
	d.config.Timeout, d.config.ReadTimeout = 2*d.Patience, max(ioTimeout, 2*d.Patience)
	if d.Version, err = serverVersion(ctx, d.config); err != nil {
		return fmt.Errorf("database %s: %w; %s", d.config.Addr, err, Advice(err, d.config, DatabaseSetting, InstanceConns))
	}
	d.Dialect, d.text = SchemaOf(d.Version), newText(mysqlWords)
	if IsTiDB(d.Version) {
		d.text = newText(tidbWords)
	}
	d.config.Params[rowLockWait] = seconds(d.Patience)
	quick, reading := d.config.Clone(), d.config.Clone()
	quick.ReadTimeout, quick.WriteTimeout = 2*d.Patience, 2*d.Patience
	limitReads(reading, d.config.ReadTimeout-serverGivesUpBefore)
	watching := quick.Clone()
	watching.Params[tableLockWait] = seconds(d.Patience)
	var errs [4]error
	d.Decide, errs[0] = d.primaryPool(ctx, "decide", quick, decideConns, 0)
	d.Serve, errs[1] = d.primaryPool(ctx, "serve", reading, serveConns, 0)
	d.Work, errs[2] = d.primaryPool(ctx, "work", d.config, workConns, workRecheck)
	d.Watch, errs[3] = d.primaryPool(ctx, "watch", watching, watchConns, 0)
	d.probe = d.conns["watch"]
	if err = errors.Join(errs[:]...); err == nil && d.ReplicaURL != "" {
		err = d.openReplica(d.ReplicaURL)
	}
	return err
}

// primaryPool returns a pool of connections to the server, which are checked when they are taken from the pool after that time.
func (d *DB) primaryPool(ctx context.Context, name string, config *driver.Config, conns int, every time.Duration) (*Pool, error) {
	connector, err := primary.NewConnector(config, conns, every, d.primary)
	if err != nil {
		return nil, err
	}
	return d.newPool(ctx, name, LimitPool(sql.OpenDB(connector), conns))
}

// migratingServer returns connections for the migrations. A step on a large table takes long, and so does the wait for another process's
// step.
func (d *DB) migratingServer() (*sql.DB, error) {
	slow := d.config.Clone()
	slow.ReadTimeout, slow.WriteTimeout = 0, 0
	slow.RejectReadOnly = false // the operator gets the server's error
	connector, err := driver.NewConnector(slow)
	return sql.OpenDB(connector), err
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

// mysqlDialect is gorm's for a MySQL.
func mysqlDialect(statements gorm.ConnPool) gorm.Dialector {
	return mysql.New(mysql.Config{Conn: statements, SkipInitializeWithVersion: true})
}

// MySQLPool returns a pool for connections that MySQLConfig's configuration opens, with statements that have words in braces.
func MySQLPool(conns *sql.DB) (*Pool, error) {
	db, err := gorm.Open(mysqlDialect(&textPool{ConnPool: conns, text: newText(mysqlWords)}), gormConfig())
	return &Pool{db}, err
}

// LimitPool bounds a pool, and closes what is idle before the server ends the session.
func LimitPool(pool *sql.DB, conns int) *sql.DB {
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(sessionSeconds * time.Second * 3 / 4)
	return pool
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
	return LimitPool(sql.OpenDB(connector), conns), migrations.MySQL, err
}
