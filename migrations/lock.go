package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

// LockWait bounds how long one process waits for another that migrates.
const LockWait = 60 * time.Second

// ErrBusy means that another process has been migrating for LockWait.
var ErrBusy = fmt.Errorf("another process has been migrating for %s", LockWait)

// ErrOvertaken means that another process has gone on with the migration meanwhile. It may be repeated.
var ErrOvertaken = errors.New("another process has gone on with this migration")

// ErrLockLost means that another process may have begun with the migration. It may be repeated.
var ErrLockLost = errors.New("the migration lock was lost")

const (
	lockName = "CONCAT('firsttap.migrate:', LEFT(SHA2(DATABASE(), 256), 32))"
	// lockSessionTimeout is how long the server keeps the lock of a silent process; lockHeartbeat is the interval of the
	// heartbeats.
	lockSessionTimeout = 60 * time.Second
	lockHeartbeat      = 10 * time.Second
	briefTimeout       = 5 * time.Second
)

// namedLock takes MySQL's GET_LOCK on a connection of its own, with which the lock ends. Named locks are global to the server, so
// the name contains a hash of the database's name. It waits up to wait for the lock, which is checked whenever untilHeartbeat returns nil.
func namedLock(ctx context.Context, db *sql.DB, wait time.Duration, untilHeartbeat func(context.Context) error) (held context.Context, release func() error, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	var got sql.NullInt64
	if _, err = conn.ExecContext(ctx, fmt.Sprintf("SET SESSION wait_timeout = %d", int(lockSessionTimeout.Seconds()))); err == nil {
		err = conn.QueryRowContext(ctx, "SELECT GET_LOCK("+lockName+", ?)", int(wait.Seconds())).Scan(&got)
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
		for untilHeartbeat(held) == nil {
			if err := execBriefly(ctx, conn, "DO 0"); err != nil {
				lose(fmt.Errorf("%w: %w", ErrLockLost, err))
			}
		}
	}()
	return held, func() error {
		lose(context.Canceled)
		<-beating
		err := execBriefly(ctx, conn, "DO RELEASE_LOCK("+lockName+")")
		closeSession(conn) // with it the lock ends in any case
		if err != nil {
			return fmt.Errorf("%w: %w", ErrLockLost, err)
		}
		return nil
	}, nil
}

// execBriefly executes a quick statement, also after the end of ctx.
func execBriefly(ctx context.Context, conn *sql.Conn, statement string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), briefTimeout)
	defer cancel()
	_, err := conn.ExecContext(ctx, statement)
	return err
}

// closeSession ends the server's session instead of returning it to the pool, as its settings were changed.
func closeSession(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the returned error is ErrBadConn itself
	_ = conn.Close()
}

// fileLock takes the write lock of a SQLite file of its own, which the operating system releases with the process. The
// database itself can't be locked like that, as each step is a transaction of its own. It waits as long as db's busy_timeout.
func fileLock(ctx context.Context, db *sql.DB) (held context.Context, release func() error, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, err := conn.ExecContext(ctx, "BEGIN EXCLUSIVE"); err != nil {
		const busy = 5
		var refused interface{ Code() int } // of SQLite's driver
		if errors.As(err, &refused) && refused.Code()&0xff == busy {
			err = ErrBusy
		}
		return nil, nil, errors.Join(err, conn.Close())
	}
	return ctx, func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(err, conn.Close())
	}, nil
}
