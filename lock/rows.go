package lock

import (
	"context"
	"database/sql"
	"time"
)

// Rows is a Strategy by row locks: a transaction holds a name's row, which the others skip (SELECT ... FOR UPDATE SKIP
// LOCKED). Winning, losing and releasing a name cost two statements each, extending one; losing to somebody who has just
// won, some more.
//
// A transaction that is open keeps others from changing the tables lock_rows and lock_sessions by DDL. List, Show and
// Break lock the row of a name whose holder has died, for a moment in which whoever tries to acquire it is told that it
// is held.
type Rows struct{ sessions *Sessions }

// Rows returns the strategy that holds names by the sessions' transactions.
func (s *Sessions) Rows() *Rows { return &Rows{sessions: s} }

const (
	// rowLockSQL is whether the name has a row, which session asks, who has the name, 1 if it is the session's now, and
	// whether the server takes writes.
	rowLockSQL = "SELECT (SELECT COUNT(*) FROM lock_rows WHERE name = ?), CONNECTION_ID(), " +
		"(SELECT locked_by FROM lock_sessions WHERE strategy = 'rows' AND name = ? AND session_id IS NOT NULL), " +
		"(SELECT 1 FROM lock_rows WHERE name = ? FOR UPDATE SKIP LOCKED), " + isWritable
	rowUnlockSQL  = "UPDATE lock_sessions SET session_id = NULL WHERE strategy = 'rows' AND name = ? AND session_id = CONNECTION_ID()"
	rowHoldersSQL = "SELECT s.name, IF(s.session_id IS NULL, NULL, " +
		"IF((SELECT 1 FROM lock_rows r WHERE r.name = s.name FOR UPDATE SKIP LOCKED) IS NULL, s.session_id, NULL)), " +
		"s.session_id, s.locked_by, s.fence FROM lock_sessions s WHERE s.strategy = 'rows'"
)

// Acquire implements Strategy.
func (r *Rows) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Grant, error) {
	return r.sessions.acquire(ctx, r, name, owner, ttl)
}

// List implements Registry.
func (r *Rows) List(ctx context.Context) ([]Holder, error) { return r.sessions.list(ctx, r) }

// Show implements Registry.
func (r *Rows) Show(ctx context.Context, name string) (Holder, error) {
	return r.sessions.show(ctx, r, name)
}

// Break implements Registry. It kills the holder's session, which the server allows its user and administrators.
func (r *Rows) Break(ctx context.Context, name string) (Holder, error) {
	return r.sessions.breakSession(ctx, r, name)
}

func (r *Rows) strategy() string     { return "rows" }
func (r *Rows) pool() *sql.DB        { return r.sessions.rows }
func (r *Rows) holdersQuery() string { return rowHoldersSQL }

const (
	// rowsTries and rowsPause are for a row that is locked, and nobody says by whom: someone has just taken it and is about
	// to say so, or only looks whether it is locked.
	rowsTries = 4
	rowsPause = 2 * time.Millisecond
)

// tryLock asks at once for the row itself. A cheaper look at whether it is locked would have to lock it for a moment, and
// of several that look at the same time none would get it.
func (r *Rows) tryLock(ctx context.Context, conn *sql.Conn, name string) (id int64, err error) {
	for try := 1; ; try++ {
		found, err := r.lockRow(ctx, conn, name)
		switch {
		case err != nil:
			return 0, err
		case found.mine.Valid:
			return found.id, nil
		case found.rows == 0:
			err = r.createRow(ctx, conn, name)
		case found.owner.Valid || try == rowsTries:
			return 0, &HeldError{Owner: found.owner.String}
		default:
			err = sleep(ctx, rowsPause)
		}
		if err != nil {
			return 0, err
		}
	}
}

// rowLockResult is the answer to rowsTake.
type rowLockResult struct {
	rows  int
	id    int64
	owner sql.NullString
	mine  sql.NullInt64
}

func (r *Rows) lockRow(ctx context.Context, conn *sql.Conn, name string) (found rowLockResult, err error) {
	var writes bool
	err = conn.QueryRowContext(ctx, rowLockSQL, name, name, name).Scan(&found.rows, &found.id, &found.owner, &found.mine, &writes)
	if err == nil && !writes {
		return found, errReadOnly
	}
	if err == nil && !found.mine.Valid {
		// Sessions are not in autocommit mode: the SELECT has begun a transaction.
		_, err = conn.ExecContext(ctx, "ROLLBACK")
	}
	return found, err
}

// createRow makes the name's row. An INSERT of one that is there would wait for whoever holds it, so those who find none
// come one after another, by the lock of its row in lock_sessions, and look again.
func (r *Rows) createRow(ctx context.Context, conn *sql.Conn, name string) error {
	_, err := conn.ExecContext(ctx, `INSERT INTO lock_sessions (strategy, name, fence) VALUES ('rows', ?, 0)
ON DUPLICATE KEY UPDATE fence = fence`, name)
	if err == nil {
		_, err = conn.ExecContext(ctx, `INSERT INTO lock_rows (name) SELECT ? FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM lock_rows WHERE name = ?)`, name, name)
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	return err
}

// verify needs no look at the row: the transaction is there as long as the session is.
func (r *Rows) verify(ctx context.Context, conn *sql.Conn, _ string) error {
	return expectOne(ctx, conn, "SELECT "+isWritable)
}

func (r *Rows) unlock(ctx context.Context, conn *sql.Conn, name string) error {
	_, err := conn.ExecContext(ctx, rowUnlockSQL, name)
	if err == nil {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	return err
}
