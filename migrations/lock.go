package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

// LockWait is how long one process waits for another that migrates.
const LockWait = 60 * time.Second

// ErrBusy is that another process has been migrating all the time.
var ErrBusy = fmt.Errorf("another process has been migrating for %s", LockWait)

var errLockLost = errors.New("the lock that keeps other processes from migrating was lost")

const (
	lockName = "CONCAT('firsttap.migrate:', LEFT(SHA2(DATABASE(), 256), 32))"
	// lockSessionTimeout is for how long the server keeps the lock of a process that it hears nothing from, and lockBeat is how
	// often it hears.
	lockSessionTimeout = 60 * time.Second
	lockHeartbeat      = 10 * time.Second
	briefTimeout       = 5 * time.Second
)

// namedLock is MySQL's GET_LOCK, on a connection of its own so that it ends with it. The name carries the database's:
// named locks belong to the whole server.
func namedLock(ctx context.Context, db *sql.DB) (held context.Context, release func() error, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	var got sql.NullInt64
	if _, err = conn.ExecContext(ctx, fmt.Sprintf("SET SESSION wait_timeout = %d", int(lockSessionTimeout.Seconds()))); err == nil {
		err = conn.QueryRowContext(ctx, "SELECT GET_LOCK("+lockName+", ?)", int(LockWait.Seconds())).Scan(&got)
	}
	if err == nil && got.Int64 != 1 {
		err = ErrBusy
	}
	if err != nil {
		closeSession(conn)
		return nil, nil, err
	}
	held, lose := context.WithCancelCause(ctx)
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		for sleep(held, lockHeartbeat) == nil {
			if err := execBriefly(ctx, conn, "DO 0"); err != nil {
				lose(fmt.Errorf("%w: %w", errLockLost, err))
			}
		}
	}()
	return held, func() error {
		lose(context.Canceled)
		<-beating
		_ = execBriefly(ctx, conn, "DO RELEASE_LOCK("+lockName+")") // the session's end would do
		closeSession(conn)
		return nil
	}, nil
}

// execBriefly executes a statement that takes no time, also when ctx has ended.
func execBriefly(ctx context.Context, conn *sql.Conn, statement string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), briefTimeout)
	defer cancel()
	_, err := conn.ExecContext(ctx, statement)
	return err
}

// closeSession ends the server's session, whose settings were changed, rather than to leave it to others.
func closeSession(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // its error is this one
	_ = conn.Close()
}

// fileLock is the write lock of a SQLite file that holds nothing else: the operating system ends it with the
// process. A transaction on the database itself would not do, since each step is a transaction of its own.
func fileLock(ctx context.Context, db *sql.DB) (held context.Context, release func() error, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, err := conn.ExecContext(ctx, "BEGIN EXCLUSIVE"); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return ctx, func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(err, conn.Close())
	}, nil
}
