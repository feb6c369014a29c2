package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
)

// Dialect is the kind of a database.
type Dialect string

// The dialects. MariaDB, 10.6 or later, speaks MySQL's.
const (
	MySQL  Dialect = "mysql"
	SQLite Dialect = "sqlite"
)

// Schema returns the statements that create the tables of this package, where they are missing: shedlock for [Table]
// (ShedLock's own does as well), fences for [Fences], and on MySQL lock_sessions and lock_rows for [Sessions].
//
// Names are compared byte by byte. On a server, times are UTC whatever the session's time zone.
func (d Dialect) Schema() []string {
	if d == SQLite {
		return []string{
			`CREATE TABLE IF NOT EXISTS shedlock (name TEXT NOT NULL PRIMARY KEY, lock_until TEXT NOT NULL,
	locked_at TEXT NOT NULL, locked_by TEXT NOT NULL) WITHOUT ROWID`,
			`CREATE TABLE IF NOT EXISTS fences (name TEXT NOT NULL PRIMARY KEY, fence INTEGER NOT NULL) WITHOUT ROWID`,
		}
	}
	const name = "name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL"
	return []string{
		`CREATE TABLE IF NOT EXISTS shedlock (` + name + `, lock_until DATETIME(6) NOT NULL,
	locked_at DATETIME(6) NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name)) ENGINE=InnoDB`,
		`CREATE TABLE IF NOT EXISTS fences (` + name + `, fence BIGINT NOT NULL, PRIMARY KEY (name)) ENGINE=InnoDB`,
		`CREATE TABLE IF NOT EXISTS lock_rows (` + name + `, PRIMARY KEY (name)) ENGINE=InnoDB`,
		// session_id is NULL once the name was released.
		`CREATE TABLE IF NOT EXISTS lock_sessions (
	strategy VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, ` + name + `, fence BIGINT NOT NULL,
	locked_by VARCHAR(255) NULL, session_id BIGINT NULL, locked_at DATETIME(6) NULL,
	PRIMARY KEY (strategy, name)) ENGINE=InnoDB`,
	}
}

// maxOwner is what locked_by holds.
const maxOwner = 255

// checkNameAndOwner refuses what a column would cut or fold: then two names would be one, and an owner not know its own row.
func checkNameAndOwner(name, owner string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if owner == "" || len(owner) > maxOwner {
		return fmt.Errorf("%w: an owner has 1 to %d bytes, not %d", ErrInvalid, maxOwner, len(owner))
	}
	return nil
}

// querier is what a *sql.DB, a *sql.Conn and a *sql.Tx have in common.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// execNumber runs a statement that writes at most one row, and returns what it computes for that: never 0, which says that
// nothing was written, because there is no such row or, for an INSERT, because there is one.
//
// On MySQL the statement hands it over by LAST_INSERT_ID(expression), which the server sends with its answer; that also
// tells a row that was written as it was before from none, as the count of affected rows does not. On SQLite it has a
// RETURNING.
func (d Dialect) execNumber(ctx context.Context, db querier, query string, args ...any) (int64, error) {
	if d == SQLite {
		return queryNumber(ctx, db, query, args...)
	}
	result, err := db.ExecContext(ctx, query, args...)
	if isMySQL(err, duplicateKey) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// queryNumber reads to the end of the rows: only then is the statement committed, or not.
func queryNumber(ctx context.Context, db querier, query string, args ...any) (n int64, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := rows.Scan(&n); err != nil {
			return 0, err
		}
	}
	return n, rows.Err()
}

const (
	duplicateKey = 1062
	noSuchThread = 1094
)

// isMySQL reports whether err is the server's error of that number.
func isMySQL(err error, number uint16) bool {
	var refused *mysql.MySQLError
	return errors.As(err, &refused) && refused.Number == number
}
