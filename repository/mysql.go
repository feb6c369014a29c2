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
	isolation := "transaction_isolation"
	if strings.Contains(version, "MariaDB") {
		isolation = "tx_isolation"
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
	if s.claims, err = s.mysqlPool(impatient, claimConns); err != nil {
		return nil, err
	}
	if s.writes, err = s.mysqlPool(impatient, writeConns); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if s.general, err = s.mysqlPool(config, generalConns); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if s.relay, err = s.mysqlPool(config, relayConns); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.dialect = dialect{
		name:      migrations.MySQL,
		now:       func() string { return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))" },
		forUpdate: " FOR UPDATE",
		forShare:  " LOCK IN SHARE MODE", // MariaDB has no FOR SHARE
		// At READ COMMITTED: at REPEATABLE READ the UPDATE that follows waits behind any open transaction.
		skipLocked: " FOR UPDATE SKIP LOCKED",
		along:      func(index string) string { return " FORCE INDEX (" + index + ")" },
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
			delete(patient.Params, sessionTimeout)
			connector, err := driver.NewConnector(patient)
			if err != nil {
				return nil, nil, err
			}
			db := sql.OpenDB(connector)
			m, err := migrations.New(migrations.MySQL, db, nil)
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
	config.Timeout, config.ReadTimeout, config.WriteTimeout = dialTimeout, ioTimeout, ioTimeout
	config.Logger = driver.Logger(&driver.NopLogger{}) // every error is returned, and logged where it is handled
	config.Params = map[string]string{}
	return config, nil
}

func serverVersion(ctx context.Context, config *driver.Config, log *slog.Logger) (version string, err error) {
	connector, err := driver.NewConnector(config)
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

func (s *Store) mysqlPool(config *driver.Config, conns int) (*gorm.DB, error) {
	connector, err := driver.NewConnector(config)
	if err != nil {
		return nil, err
	}
	pool := limited(sql.OpenDB(connector), conns)
	s.closers = append(s.closers, pool.Close)
	return gorm.Open(mysql.New(mysql.Config{Conn: pool, SkipInitializeWithVersion: true}), gormConfig())
}

func limited(pool *sql.DB, conns int) *sql.DB {
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(sessionSeconds * time.Second * 3 / 4) // by us, before the server does it
	return pool
}

// gormConfig leaves transactions to this package, and logging to whoever handles the error.
func gormConfig() *gorm.Config {
	return &gorm.Config{SkipDefaultTransaction: true, TranslateError: true, Logger: logger.Discard}
}
