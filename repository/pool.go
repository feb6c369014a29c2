package repository

import (
	"database/sql"
	"strconv"
	"strings"

	"github.com/glebarez/sqlite"

	"firsttap/migrations"
)

// OpenPool returns up to conns connections to the database at url, for what is kept beside the dispatches and must not
// wait for them. It does not connect.
func OpenPool(url string, conns int) (*sql.DB, migrations.Dialect, error) {
	if path, ok := strings.CutPrefix(url, "sqlite://"); ok {
		pool, err := sql.Open(sqlite.DriverName, sqliteDSN(path, sqliteBusy))
		if err != nil {
			return nil, "", err
		}
		pool.SetMaxOpenConns(1) // one writer at a time
		return pool, migrations.SQLite, nil
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
	return limited(sql.OpenDB(connector), conns), migrations.MySQL, nil
}
