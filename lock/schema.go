package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// Dialect is the SQL dialect of a database.
type Dialect string

// The dialects. MySQL includes MariaDB 10.6 and later.
const (
	MySQL  Dialect = "mysql"
	SQLite Dialect = "sqlite"
)

// Schema returns the statements that create this package's tables if they do not exist: shedlock for [Table], which
// ShedLock's own table can replace; fences for [Fences]; and on MySQL lock_sessions and lock_rows for [Sessions].
//
// Names are compared byte by byte. On MySQL, times are in UTC in every session's time zone.
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

// maxOwner is the size of the column locked_by.
const maxOwner = 255

// checkNameAndOwner refuses what the columns would truncate or fold, which would make two names equal.
func checkNameAndOwner(name, owner string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if owner == "" || len(owner) > maxOwner {
		return fmt.Errorf("%w: an owner has 1 to %d bytes, not %d", ErrInvalid, maxOwner, len(owner))
	}
	return nil
}

// querier is a *sql.DB, a *sql.Conn or a *sql.Tx.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// execNumber runs a statement that writes at most one row, and returns a number that the statement computes for that row,
// which must not be 0. It returns 0 if nothing was written: no row matched or, for an INSERT, the row exists.
//
// On MySQL the statement returns the number by LAST_INSERT_ID(expression), which is a part of the server's reply. Unlike
// the count of affected rows, it also distinguishes an unchanged row from a missing one. On SQLite the statement uses
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
	number, err := result.LastInsertId()
	if err != nil || number == 0 {
		return 0, err
	}
	if changed, err := result.RowsAffected(); err != nil || changed > 0 {
		return number, err
	}
	// The row is unchanged; or the server is a TiDB, which returns the number also if no row matched.
	var version string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil || isTiDB(version) {
		return 0, err
	}
	return number, nil
}

func isTiDB(version string) bool { return strings.Contains(version, "TiDB") }

// queryNumber reads all rows, because SQLite commits the statement only then.
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

// isMySQL reports whether err is a MySQL error with that number.
func isMySQL(err error, number uint16) bool {
	var refused *mysql.MySQLError
	return errors.As(err, &refused) && refused.Number == number
}
