package repository

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"firsttap/migrations"
)

const (
	// About four connections per core commit the most; a hundred commit half of that.
	claimConns   = 8
	writeConns   = 8
	generalConns = 8
	relayConns   = 4
	doorConns    = 1
	// A row's holder commits within milliseconds or is stuck.
	lockWaitSeconds = "1"
	dialTimeout     = 2 * time.Second
	// A backstop for a server that is frozen. Contexts end calls earlier, but for a COMMIT, which takes none: a claim
	// must not hang on it.
	ioTimeout      = 10 * time.Second
	claimIOTimeout = 2 * time.Second
	// The server ends a session that says nothing for this long, whatever it is in the middle of: an instance that stands
	// still, or whose machine is gone, does not hold a row for the eight hours that are usual.
	sessionTimeout = "wait_timeout"
	sessionSeconds = 60
	// serverReadTimeout is what the server gives a read: a little less than the client waits for it, which would leave the server
	// working for nobody. On a MariaDB it ends whatever the session does, not only reads: it is for a pool that only reads.
	serverReadTimeout = ioTimeout - time.Second
	// relayRecheck is how often a connection of the relay's is asked whether its server takes writes: its work is to write, so
	// that a server that takes none is noticed anyway.
	relayRecheck          = time.Second
	migrateSessionSeconds = 7 * 24 * 60 * 60
)

func openMySQL(ctx context.Context, rawURL string, log *slog.Logger) (*Store, error) {
	config, err := MySQLConfig(rawURL)
	if err != nil {
		return nil, err
	}
	version, err := serverVersion(ctx, config, log)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", config.Addr, err)
	}
	isolation, readLimit, limit := "transaction_isolation", "max_execution_time", serverReadTimeout.Milliseconds()
	if strings.Contains(version, "MariaDB") {
		isolation, readLimit, limit = "tx_isolation", "max_statement_time", int64(serverReadTimeout.Seconds())
	}
	// Under REPEATABLE READ one who lost goes on reading PENDING in the same transaction, and gap locks make
	// unrelated inserts wait.
	config.Params[isolation] = "'READ-COMMITTED'"
	config.Params["innodb_lock_wait_timeout"] = lockWaitSeconds
	config.Params[sessionTimeout] = strconv.Itoa(sessionSeconds)
	config.Params["sql_mode"] = "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"

	s := &Store{log: log}
	impatient := config.Clone()
	impatient.ReadTimeout, impatient.WriteTimeout = claimIOTimeout, claimIOTimeout
	claims, err := newPrimary(impatient, neverRecheck) // its statements ask
	if err != nil {
		return nil, err
	}
	if s.claims, err = s.mysqlPool(claims, claimConns); err != nil {
		return nil, err
	}
	if s.writes, err = s.primaryPool(impatient, writeConns, 0); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	reading := config.Clone()
	reading.Params[readLimit] = strconv.FormatInt(limit, 10)
	if s.general, err = s.primaryPool(reading, generalConns, 0); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if s.relay, err = s.primaryPool(config, relayConns, relayRecheck); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if s.doors, err = s.primaryPool(impatient, doorConns, 0); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	pinged, err := newPrimary(impatient, 0)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	probe := limitPool(sql.OpenDB(pinged), 1)
	s.closers = append(s.closers, probe.Close)
	s.dialect = dialect{
		name:                 migrations.MySQL,
		ping:                 probe.PingContext,
		readOnly:             readOnlySQL,
		invalidateClaimConns: claims.invalidate,
		now:                  func() string { return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))" },
		forUpdate:            " FOR UPDATE",
		forShare:             " LOCK IN SHARE MODE", // MariaDB has no FOR SHARE
		// At READ COMMITTED: at REPEATABLE READ the UPDATE that follows waits behind any open transaction.
		skipLocked: " FOR UPDATE SKIP LOCKED",
		forceIndex: func(index string) string { return " FORCE INDEX (" + index + ")" },
		hasRegion:  "JSON_CONTAINS(v.regions, JSON_QUOTE(?))",
		retryable: func(err error) bool {
			const deadlock = 1213
			var e *driver.MySQLError
			return errors.As(err, &e) && e.Number == deadlock
		},
		migrator: func() (*migrations.Migrator, func() error, error) {
			// A step may take as long as the table is large, and waiting for another process's longer still.
			patient := config.Clone()
			patient.ReadTimeout, patient.WriteTimeout = 0, 0
			patient.RejectReadOnly = false // the operator is to read why
			// Nor does a session end that waits for another one's step.
			patient.Params[sessionTimeout] = strconv.Itoa(migrateSessionSeconds)
			connector, err := driver.NewConnector(patient)
			if err != nil {
				return nil, nil, err
			}
			db := sql.OpenDB(connector)
			m, err := migrations.New(migrations.MySQL, db, nil, log)
			return m, db.Close, err
		},
		durability: mysqlDurability,
	}
	return s, nil
}

// CheckURL reports what is wrong with a mysql:// URL, without connecting.
func CheckURL(rawURL string) error {
	config, err := MySQLConfig(rawURL)
	if err == nil {
		_, err = driver.NewConnector(config)
	}
	return err
}

// MySQLConfig reads mysql://user:password@host:port/name, with ?tls= as the driver takes it.
func MySQLConfig(rawURL string) (*driver.Config, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("the database URL can't be parsed") // err would show the password
	}
	name := strings.TrimPrefix(u.Path, "/")
	if u.Hostname() == "" || name == "" || strings.Contains(name, "/") {
		return nil, errors.New("the database URL lacks a host or a database name")
	}
	config := driver.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", u.Host, name
	if u.Port() == "" {
		config.Addr += ":3306"
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.TLSConfig = u.Query().Get("tls")
	config.ParseTime = true
	config.InterpolateParams = true // one round trip a statement instead of three
	config.ClientFoundRows = true   // RowsAffected tells whether the condition held, not whether a value changed
	config.RejectReadOnly = true    // a connection to a server that takes no writes any more is given up
	config.Timeout, config.ReadTimeout, config.WriteTimeout = dialTimeout, ioTimeout, ioTimeout
	config.Logger = driver.Logger(&driver.NopLogger{}) // every error is returned, and logged where it is handled
	config.Params = map[string]string{}
	return config, nil
}

// serverVersion waits until the server is there and takes writes.
func serverVersion(ctx context.Context, config *driver.Config, log *slog.Logger) (version string, err error) {
	connector, err := newPrimary(config, 0)
	if err != nil {
		return "", err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	retry := time.NewTicker(500 * time.Millisecond)
	defer retry.Stop()
	for {
		err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
		var refused *driver.MySQLError
		if err == nil || errors.As(err, &refused) {
			return version, err
		}
		log.Warn("the database is not there yet", "address", config.Addr, "error", err)
		select {
		case <-ctx.Done():
			return "", err
		case <-retry.C:
		}
	}
}

func (s *Store) primaryPool(config *driver.Config, conns int, every time.Duration) (*gorm.DB, error) {
	connector, err := newPrimary(config, every)
	if err != nil {
		return nil, err
	}
	return s.mysqlPool(connector, conns)
}

func (s *Store) mysqlPool(connector *primaryConnector, conns int) (*gorm.DB, error) {
	pool := limitPool(sql.OpenDB(connector), conns)
	s.closers = append(s.closers, pool.Close)
	return gorm.Open(mysql.New(mysql.Config{Conn: pool, SkipInitializeWithVersion: true}), gormConfig())
}

func limitPool(pool *sql.DB, conns int) *sql.DB {
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(sessionSeconds * time.Second * 3 / 4) // by us, before the server does it
	return pool
}

// gormConfig leaves transactions to this package, and logging to whoever handles the error.
func gormConfig() *gorm.Config {
	return &gorm.Config{SkipDefaultTransaction: true, TranslateError: true, Logger: logger.Discard}
}

// OpenPool returns up to conns connections to the database at url, for what is kept beside the dispatches and must not
// wait for them. It does not connect.
func OpenPool(url string, conns int) (*sql.DB, migrations.Dialect, error) {
	if path, ok := strings.CutPrefix(url, "sqlite://"); ok {
		pool, err := sqliteConns(path, sqliteBusy, 1) // one writer at a time
		return pool, migrations.SQLite, err
	}
	config, err := MySQLConfig(url)
	if err != nil {
		return nil, "", err
	}
	config.Params["innodb_lock_wait_timeout"] = lockWaitSeconds
	config.Params[sessionTimeout] = strconv.Itoa(sessionSeconds)
	connector, err := newPrimary(config, 0)
	if err != nil {
		return nil, "", err
	}
	return limitPool(sql.OpenDB(connector), conns), migrations.MySQL, nil
}
