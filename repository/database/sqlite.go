package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	driver "github.com/glebarez/go-sqlite" // the pure-Go driver named "sqlite"
	"github.com/glebarez/sqlite"

	"firsttap/migrations"
)

// sqliteReaders is the number of connections that read while the one writer writes.
const sqliteReaders = 8

// openSQLite opens the pools of the file at path.
func (d *DB) openSQLite(ctx context.Context, path string) (err error) {
	d.Dialect, d.text, d.path = migrations.SQLite, newText(sqliteWords), path
	d.clock = func() string { return strconv.FormatInt(d.Now().UnixMicro(), 10) }
	if _, err := CheckFile(path); err != nil {
		return err
	}
	// SQLite has one writer at a time: a second connection would only wait for the file, in no order.
	if d.Decide, err = d.sqlitePool(ctx, "decide", 1); err != nil {
		return err
	}
	if d.Serve, err = d.sqlitePool(ctx, "serve", sqliteReaders); err != nil {
		return err
	}
	d.Work, d.Watch = d.Decide, d.Serve
	d.probe, err = SQLiteConns(path, probeTimeout*3/4, 1)
	return err
}

// TakesWrites returns nil if the file is writable.
func TakesWrites(ctx context.Context, db *sql.DB) error {
	return unlessHeld(ctx, db, func() error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		// BEGIN succeeds also if the file is not writable.
		_, err = tx.ExecContext(ctx, "PRAGMA user_version = 0")
		return errors.Join(err, tx.Rollback())
	})
}

// unlessHeld returns the error of a write on the only connection of a pool. One that waited in vain is none if others have committed
// meanwhile: only a transaction that goes on and on keeps the file from all.
func unlessHeld(ctx context.Context, db *sql.DB, write func() error) error {
	var before, after int
	const version = "PRAGMA data_version" // changes with each commit of another connection
	if err := db.QueryRowContext(ctx, version).Scan(&before); err != nil {
		return err
	}
	err := write()
	if !IsBusy(err) {
		return err
	}
	if db.QueryRowContext(ctx, version).Scan(&after) == nil && after != before {
		return nil
	}
	return fmt.Errorf("another process holds the file's write lock: %w", err)
}

// IsBusy reports whether a file is locked by another connection.
func IsBusy(err error) bool {
	const busy = 5
	var refused *driver.Error
	return errors.As(err, &refused) && refused.Code()&0xff == busy
}

// sqliteDSN selects a write-ahead log that is flushed with each commit, so that a committed claim survives a power cut, and
// transactions that take the write lock when they begin rather than fail at their first write.
func sqliteDSN(path string, busy time.Duration) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + url.Values{
		"_pragma": {fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds()), "journal_mode(WAL)", "synchronous(FULL)"},
		"_txlock": {"immediate"},
	}.Encode()
}

// sqlitePool opens a pool. SQLite does not wait for another process that gives a new file its log at the same time, whatever busy_timeout
// says, so this is tried again.
func (d *DB) sqlitePool(ctx context.Context, name string, conns int) (*Pool, error) {
	wait := 2 * d.Patience // while another process locks the file
	pool, err := SQLiteConns(d.path, wait, conns)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(wait); ; time.Sleep(10 * time.Millisecond) {
		if err = pool.PingContext(ctx); !IsBusy(err) || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s can't be opened: %w; %s", d.path, err, FileAdvice(d.path, err)), pool.Close())
	}
	return d.newPool(ctx, name, pool)
}

// SQLiteConns returns a pool of so many connections to the file at path, which wait for so long while another process locks it.
func SQLiteConns(path string, busy time.Duration, conns int) (*sql.DB, error) {
	pool, err := sql.Open(sqlite.DriverName, sqliteDSN(path, busy))
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	return pool, nil
}
