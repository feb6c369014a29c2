package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"

	driver "github.com/go-sql-driver/mysql"

	"firsttap/repository/primary"
)

// DatabaseSetting and ReplicaSetting name the settings with the URLs of the servers.
const (
	DatabaseSetting = "FIRSTTAP_DATABASE_URL"
	ReplicaSetting  = "FIRSTTAP_DATABASE_READ_URL"
)

// Advice says what to do about the error of a connection to the server of config, which a setting names and to which an instance opens so
// many connections.
func Advice(err error, config *driver.Config, setting string, conns int) string {
	const accessDenied, noDatabaseRight, noSuchDatabase, tooManyConnections, hostNotAllowed = 1045, 1044, 1049, 1040, 1130
	var refused *driver.MySQLError
	if errors.As(err, &refused) {
		switch refused.Number {
		case accessDenied:
			return "correct the user and the password in " + setting + " (escape / ? # @ and % in them)"
		case noDatabaseRight:
			return "GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON " + config.DBName +
				".* TO the user; with FIRSTTAP_MIGRATE=auto, ALL: " +
				`docs/operations.md, "What it needs"`
		case noSuchDatabase:
			return "CREATE DATABASE " + config.DBName + ", or correct the name in " + setting
		case tooManyConnections:
			return fmt.Sprintf("raise max_connections: an instance opens up to %d", conns)
		case hostNotAllowed:
			return "create the user for this machine's address"
		case primary.NotPrepared:
			return "the server is without the majority of its Galera cluster: bring the other nodes back, or use one of the majority"
		}
		return "see the server's error"
	}
	if errors.Is(err, errLogFormat) {
		return "set binlog_format=ROW"
	}
	if n := (net.Error)(nil); errors.As(err, &n) || errors.Is(err, driver.ErrInvalidConn) || errors.Is(err, io.EOF) {
		return "check that the server runs at that address and that no firewall is between"
	}
	return "check the address, and tls= in " + setting
}

// errLogFormat says that a server writes nothing in sessions like ours.
var errLogFormat = errors.New("binlog_format=STATEMENT: the server refuses writes under READ-COMMITTED")

// CheckLogFormat returns errLogFormat if the server has the setting, which a session can't change without a privilege.
func CheckLogFormat(ctx context.Context, db *sql.DB) error {
	logs, err := ShowValues(ctx, db, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format')")
	if err == nil && logs["log_bin"] == "ON" && logs["binlog_format"] == "STATEMENT" {
		err = errLogFormat
	}
	return err
}

// ShowValues returns the result of a SHOW statement with names and values.
func ShowValues(ctx context.Context, db *sql.DB, query string) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		values[name] = value
	}
	return values, rows.Err()
}
