package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"time"

	driver "github.com/glebarez/go-sqlite" // the pure-Go driver named "sqlite"
	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"firsttap/migrations"
)

// sqliteReaders is the number of connections that read while the one writer writes.
const sqliteReaders = 8

func openSQLite(ctx context.Context, path string, o Options) (*DB, error) {
	d := newDB(o)
	d.Dialect, d.text, d.leaveServer = migrations.SQLite, sqliteText(o.Now), func() {}
	if _, err := CheckFile(path); err != nil {
		return nil, err
	}
	var err error
	// SQLite has one writer at a time: a second connection would only wait for the file, in no order.
	if d.Decide, err = d.sqlitePool(ctx, path, 1); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if d.Serve, err = d.sqlitePool(ctx, path, sqliteReaders); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.Work, d.Watch = d.Decide, d.Serve
	probe, err := SQLiteConns(path, probeTimeout*3/4, 1)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.closers = append(d.closers, probe.Close)
	d.ping = func(ctx context.Context) error { return commitsToFile(ctx, probe) }
	d.hasTables = func(ctx context.Context) error { return readsTables(ctx, probe) }
	d.migrator = func() (*migrations.Migrator, func() error, error) {
		db, err := SQLiteConns(path, migrations.LockWait, 1)
		if err != nil {
			return nil, nil, err
		}
		m, err := migrations.New(migrations.SQLite, db, o.Log)
		return m, db.Close, err
	}
	return d, nil
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

// commitsToFile is commits for a file.
func commitsToFile(ctx context.Context, probe *sql.DB) error {
	const now, past = "strftime('%Y-%m-%d %H:%M:%f', 'now')", "strftime('%Y-%m-%d %H:%M:%f', 'now', '-1.5 seconds')"
	return unlessHeld(ctx, probe, func() error {
		_, err := probe.ExecContext(ctx, "INSERT INTO shedlock (name, lock_until, locked_at, locked_by)"+
			" VALUES ('"+probeRow+"', "+now+", "+now+", '')"+
			" ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until WHERE lock_until NOT BETWEEN "+past+" AND "+now)
		return err
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

// readsTables is DB.hasTables.
func readsTables(ctx context.Context, probe *sql.DB) error {
	_, err := probe.ExecContext(ctx, "SELECT 1 FROM dispatches, claims, events, drivers, taps, devices WHERE 0")
	return err
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
	return sqliteFile(path, busy, "journal_mode(WAL)", "synchronous(FULL)")
}

func sqliteFile(path string, busy time.Duration, pragmas ...string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + url.Values{
		"_pragma": append([]string{fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds())}, pragmas...),
		"_txlock": {"immediate"},
	}.Encode()
}

func (d *DB) sqlitePool(ctx context.Context, path string, conns int) (*Pool, error) {
	wait := 2 * d.Patience // while another process locks the file
	pool, err := SQLiteConns(path, wait, conns)
	if err != nil {
		return nil, err
	}
	d.closers = append(d.closers, pool.Close)
	for end := time.Now().Add(wait); ; time.Sleep(walPause) {
		switch err := pool.PingContext(ctx); {
		case err == nil:
			db, err := gorm.Open(&sqlite.Dialector{Conn: pool}, gormConfig())
			return &Pool{db}, err
		case !IsBusy(err) || time.Now().After(end):
			return nil, fmt.Errorf("%s can't be opened: %w; %s", path, err, FileAdvice(path, err))
		}
	}
}

// walPause is the time between two attempts to give a new file a write-ahead log. SQLite does not wait for another process that does the
// same, whatever busy_timeout says.
const walPause = 10 * time.Millisecond

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
